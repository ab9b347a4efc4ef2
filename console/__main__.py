"""The `tela` command. Isolates itself from the surrounding Python first."""

import os
import sys


def main() -> None:
    """Run the command line.

    A cluster's `module load` often sets PYTHONPATH, and a package there called `node` or `registry` would be taken
    for ours; the variable stays in the environment for the engines we start.
    """
    if os.environ.get("PYTHONPATH") and not sys.flags.isolated:
        os.execv(sys.executable, [sys.executable, "-I", "-m", "console", *sys.argv[1:]])  # noqa: S606
    from console.cli import cli

    cli(prog_name="tela")


if __name__ == "__main__":
    main()
