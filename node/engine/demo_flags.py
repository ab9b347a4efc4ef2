"""The command line of the demo engine."""

import argparse
from collections.abc import Callable


def flag_parser(default_model: str) -> argparse.ArgumentParser:
    """Return what reads it; wrong flags exit with 2."""
    parser = argparse.ArgumentParser(
        prog="demo engine", description="A deterministic OpenAI-compatible engine without a model."
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: a free one, told on stdout")
    add("--model", action="append", metavar="NAME", help=f"repeatable; {default_model}")
    add("--api-key", metavar="KEY", help="asked for on /v1; TELA_ENGINE_API_KEY without it")
    add("--tokens", type=_at_least(1), default=20, metavar="N", help="length of an answer")
    add("--context", type=_at_least(2), default=8192, metavar="N", help="max_model_len")
    add("--delay-ms", type=_seconds, default=0.0, metavar="D", help="before each token")
    add("--first-ms", type=_seconds, default=0.0, metavar="F", help="before the first token")
    add("--load-ms", type=_seconds, default=0.0, metavar="L", help="until /health is 200")
    add("--crash-after", type=_at_least(0), metavar="N", help="requests served before a crash")
    add("--fault", action="append", default=[], metavar="NAME[=ARG]", help="as the header")
    add("--fault-every", type=_at_least(1), default=1, metavar="N", help="each Nth request")
    add("--failing", action="store_true", help="healthy, but every generation is a 500")
    add("--serves", action="append", choices=("chat", "completions", "embeddings"), help="repeatable; all")
    add("--say", action="append", default=[], metavar="LINE", help="printed on stderr first; repeatable")
    add("--exit", type=int, metavar="CODE", help="exit at once, after what it says")
    return parser


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(given: str) -> int:
        if int(given) < least:
            raise argparse.ArgumentTypeError(f"at least {least}")
        return int(given)

    return whole_number


def _seconds(milliseconds: str) -> float:
    if not 0 <= float(milliseconds) < 1e9:
        raise argparse.ArgumentTypeError("milliseconds, not negative")
    return float(milliseconds) / 1000
