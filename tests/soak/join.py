"""A fabric founded by commands: how long from `tela start` to routable, and what nodes and looks cost."""

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median

TELA = (sys.executable, "-m", "console")
MODEL = "soak/model"
BEYOND_S = 2.0  # joined and routable beyond the engine's own start
NODE_MB = 60.0
STATUS_CPU_MS = 100.0


def measure(times: int = 8) -> dict[str, object]:
    """Found, start an ingress, and let workers join one after the other."""
    with tempfile.TemporaryDirectory(prefix="tela-soak-") as directory, _fabric(Path(directory)) as env:
        engine = [_engine_alone() for _ in range(times)]
        joined = [_join(env) for _ in range(times)]
        status = [_cpu_ms(env) for _ in range(times)]
        hub_mb, worker_mb = _sizes(env)
    beyond = [round(each - median(engine), 2) for each in joined]
    return {
        "load": f"a fabric made by tela init, {times} workers on the demo engine joining one after the other",
        "engine_alone_s": [round(each, 2) for each in engine],
        "start_to_routable_s": [round(each, 2) for each in joined],
        "beyond_the_engine_s": beyond,
        "ingress_rss_mb": hub_mb,
        "worker_rss_mb": worker_mb,
        "status_cpu_ms": status,
        "reached": median(beyond) <= BEYOND_S and max(hub_mb, worker_mb) <= NODE_MB and median(status) <= STATUS_CPU_MS,
    }


@contextlib.contextmanager
def _fabric(home: Path) -> Iterator[dict[str, str]]:
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "TELA_HOME"):
        env.pop(name, None)
    links = f"127.0.0.1:{_free_port()}"
    _tela(
        env, "init", "soak", "--listen", links, "--advertise", f"ws://{links}", "--operator", "soak", "--no-passphrase"
    )
    door = ("--role", "ingress,relay", "--listen", links, "--advertise", f"ws://{links}", "--http", "127.0.0.1:0")
    _tela(env, "start", *door, "--detach")
    try:
        yield env
    finally:
        _tela(env, "stop", "--all", "--now", check=False)


def _engine_alone() -> float:
    port, began = _free_port(), time.monotonic()
    command = (sys.executable, "-I", "-m", "node.engine.demo", "--port", str(port), "--model", MODEL)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.01)
        took = time.monotonic() - began
        process.kill()
    return took


def _join(env: dict[str, str]) -> float:
    began = time.monotonic()
    with _worker(env) as process:
        _until(env, lambda ready: ready)
        took = time.monotonic() - began
        process.terminate()
        process.wait()
    _until(env, lambda ready: not ready)
    return took


@contextlib.contextmanager
def _worker(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    engine = f"{sys.executable} -I -m node.engine.demo --port {{port}} --model {MODEL}"
    command = (*TELA, "start", "--process", engine)
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def _until(env, holds) -> None:
    from console.client import find
    from node.places import places

    control = find(places(env, os.getuid(), Path(env["HOME"])), "soak")
    deadline = time.monotonic() + 60.0
    while not holds(any(each["id"] == MODEL and each["routable"] for each in control.get("/view")["models"])):
        assert time.monotonic() < deadline, "it did not become so within a minute"
        time.sleep(0.01)


def _cpu_ms(env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _tela(env, "status")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000, 0)


def _sizes(env: dict[str, str]) -> tuple[float, float]:
    with _worker(env) as process:
        _until(env, lambda ready: ready)
        hub = json.loads(_tela(env, "status", "--json"))["self"]["pid"]
        return _mb(hub), _mb(process.pid)


def _mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tela(env: dict[str, str], *words: str, check: bool = True) -> str:
    done = subprocess.run((*TELA, *words), env=env, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout
