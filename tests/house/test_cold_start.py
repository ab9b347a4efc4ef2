"""What a command costs before it does anything, counted in modules: that does not depend on the machine's mood."""

import subprocess
import sys

COUNT = """
import sys
sys.argv = ["tela", *{argv!r}]
try:
    from console.__main__ import main
    main()
except SystemExit:
    pass
print(len(sys.modules), *sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {"rich", "msgspec", "http.client", "aiohttp", "asyncio", "nacl", "uvicorn", "sqlite_utils", "websockets"}


def loaded(*argv):
    code = COUNT.format(argv=list(argv))
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    count, *names = done.stderr.split()[-1:] and done.stderr.strip().splitlines()[-1].split()
    return int(count), set(names)


def test_help_and_version_import_no_command():
    for argv in (["--help"], ["--version"]):
        count, names = loaded(*argv)
        assert not names & HEAVY
        assert count <= 160


def test_the_solver_and_the_migrations_are_not_on_the_path_of_a_node():
    code = (
        "import sys, node.main; print([name for name in ('sqlite_utils', 'pandas', 'ortools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
