"""Where a command's errors end: what may be shown is shown with what to do next, the rest is written to a file.

Nobody sees a traceback who did not ask for one (TELA_DEBUG=1). Exit codes: 1 failed, 2 used wrongly, 130 Ctrl-C.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from registry.errors import TelaError

DEBUG = "TELA_DEBUG"
REPORT = "broken.txt"
MAX_CHARS = 2_000
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
WRONG_USE = frozenset({"usage", "config"})


@contextmanager
def edge(command: str) -> Iterator[None]:
    """Run a command inside; leaves only by `SystemExit` and click's own exceptions.

    Args:
        command: its name, for the report.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit):
        raise
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):  # in the middle of a question
            sys.exit(INTERRUPTED)
        raise
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # whoever read stdout has seen enough; click ends quietly
        sys.exit(_end(error, command))


def _end(error: Exception, command: str) -> int:
    shown = _shown(error)
    if os.environ.get(DEBUG):
        sys.stderr.write(_traceback(error))
    if shown is None:
        shown = _broken(error, command)
    _say("tela: ", shown.message)
    if shown.hint:
        _say("      ", shown.hint)
    return 2 if shown.code in WRONG_USE else 1


def _say(before: str, text: str) -> None:
    """One sentence; whoever raised it may have forgotten that a part of it came from elsewhere."""
    from registry.text import clean  # noqa: PLC0415 - unicode tables, which a good end does without

    click.echo(before + clean(text, MAX_CHARS), err=True)


def _shown(error: Exception) -> TelaError | None:
    """The error that may be shown; of several tasks that failed at once, the first."""
    if isinstance(error, TelaError):
        return error
    if isinstance(error, ExceptionGroup):
        ours, others = error.split(TelaError)
        if ours is not None and others is None:
            return _shown(ours.exceptions[0])
    return None


def _broken(error: Exception, command: str) -> TelaError:
    """What is said of an error nobody expected, after writing it down."""
    from registry.text import clean  # noqa: PLC0415 - only when something broke

    what = clean(f"{type(error).__name__}: {error}")
    again = f"{DEBUG}=1 shows the details"
    try:
        hint = f"this is a fault of tela; details are in {_write(_report(error, command))}, and {again}"
    except (TelaError, OSError, RuntimeError):  # a full disk, or an account without a home
        hint = f"this is a fault of tela; {again}"
    return TelaError(f"{command or 'the command'} broke: {what}", hint=hint, code="broken")


def _report(error: Exception, command: str) -> str:
    """The command's name and the traceback. Not the arguments, which may be secrets."""
    import platform  # noqa: PLC0415 - only when something broke

    from console import __version__  # noqa: PLC0415

    return f"tela {__version__} {command}, Python {platform.python_version()}\n\n{_traceback(error)}"


def _traceback(error: Exception) -> str:
    import traceback  # noqa: PLC0415 - only when something broke

    return "".join(traceback.format_exception(error))


def _write(report: str) -> str:
    from console.here import places_here  # noqa: PLC0415 - only when something broke
    from node.places import make_private  # noqa: PLC0415
    from node.private import write_private  # noqa: PLC0415

    state = places_here().state
    make_private(state)
    write_private(state / REPORT, report.encode(errors="backslashreplace"))
    return str(state / REPORT)
