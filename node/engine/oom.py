"""How often the kernel killed a process here for want of memory: the counter of our control group.

A counter that cannot be read is 0: then a killed engine is `killed`, which is true, and less than could be known.
"""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_GROUPS = Path("/proc/self/cgroup")


def oom_kills() -> int:
    """How many processes of our control group were killed so far. Reads three small files; never raises."""
    for path in counters(_text(_GROUPS)):
        if (count := count_in(_text(path))) is not None:
            return count
    return 0


def counters(groups: str) -> Iterator[Path]:
    """The files that may hold the counter, from the text of /proc/self/cgroup; the first that does is ours.

    A container sees its own group as the root, and then the path it is told leads nowhere: both are tried.
    """
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        own = path.lstrip("/")
        if ".." in own.split("/"):
            continue
        if "memory" in controllers.split(","):
            yield _ROOT / "memory" / own / "memory.oom_control"
            yield _ROOT / "memory" / "memory.oom_control"
        elif number == "0":
            yield _ROOT / own / "memory.events"
            yield _ROOT / "memory.events"


def count_in(text: str) -> int | None:
    """The counter in a `memory.events` or `memory.oom_control`; None when it has none."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
