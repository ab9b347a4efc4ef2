"""Looks at what `node.platform.staying` judges: service manager, cron, containers. What cannot be seen counts as no."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from node.platform import kubernetes, slurm
from node.platform.staying import Surroundings

DEADLINE_S = 5.0
LINGER = Path("/var/lib/systemd/linger")
LOGIND = (Path("/usr/lib/systemd"), Path("/etc/systemd"))  # the later one wins
CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/.singularity.d"))
CRONS = frozenset({"cron", "crond", "fcron", "busybox-crond"})
_KILLS = re.compile(r"^\s*KillUserProcesses\s*=\s*(\S+)", re.MULTILINE)


def look(env: Mapping[str, str], user: str, now: float) -> Surroundings:
    """Everything; takes a few seconds where a service manager hangs.

    Args:
        env: the environment of this process.
        user: the name of this account.
        now: unix seconds.
    """
    job, pod = slurm.read(env, now), kubernetes.read(env, {})
    return Surroundings(
        job=f"Slurm job {job.job}" if job else f"the pod {pod.job}" if pod else "",
        is_container=any(path.exists() for path in CONTAINERS),
        lingers=(LINGER / user).exists() or run(["loginctl", "show-user", user, "--property=Linger"]) == "Linger=yes",
        has_user_services=run(["systemctl", "--user", "show-environment"]) is not None,
        kills_at_logout=kills_at_logout(_texts(_logind_files())),
        has_crontab=shutil.which("crontab") is not None,
        runs_cron=not CRONS.isdisjoint(_commands()),
    )


def run(command: Sequence[str], text: str | None = None) -> str | None:
    """What a command says; None when it is missing, fails or hangs."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words, and no shell
            command, input=text, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def kills_at_logout(texts: Iterable[str]) -> bool:
    """Whether logind ends what a login leaves behind, by its files in the order they are read."""
    said = [match for text in texts for match in _KILLS.findall(text)]
    return bool(said) and said[-1].lower() in {"yes", "true", "on", "1"}


def _logind_files() -> list[Path]:
    whole = [above / "logind.conf" for above in LOGIND]
    return whole + sorted(path for above in LOGIND for path in above.glob("logind.conf.d/*.conf"))


def _texts(paths: Iterable[Path]) -> list[str]:
    found = []
    for path in paths:
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def _commands() -> set[str]:
    """Names of what runs on this host, as far as this account may see."""
    pids = (name for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names are all that is wanted
    return {text.strip() for text in _texts(Path("/proc") / pid / "comm" for pid in pids)}
