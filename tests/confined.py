"""Python in a child process that the file system may refuse, also where the tests run as root."""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEADLINE_S = 60.0
_CAPS = "-dac_override,-dac_read_search,-fowner"  # what lets root past permissions


def command(code: str, *args: object) -> list[str]:
    """What runs `code` with its arguments in `sys.argv[1:]`, bound by permissions as anybody is."""
    run = [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]
    if os.geteuid() != 0:
        return run
    if shutil.which("setpriv") is None:
        pytest.skip("root without setpriv is refused nothing")
    return ["setpriv", f"--bounding-set={_CAPS}", f"--inh-caps={_CAPS}", *run]


def confined(code: str, *args: object) -> str:
    """Run it to its end; what it printed."""
    run = command(code, *args)
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
