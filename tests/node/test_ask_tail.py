"""The end of a log, and following it through rotation."""

import asyncio
import os

import pytest

from node.ask.tail import follow, tail
from registry.errors import TelaError


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "e0.log"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


@pytest.mark.parametrize(
    ("lines", "most_b", "text"),
    [
        (10, 1000, b"one\ntwo\nthree\n"),
        (2, 1000, b"two\nthree\n"),
        (1, 1000, b"three\n"),
        (0, 1000, b""),
        (10, 8, b"three\n"),  # eight bytes begin inside a line
        (10, 0, b""),
    ],
)
def test_the_tail_is_the_last_whole_lines(log, lines, most_b, text):
    assert tail(log, lines, most_b)[0] == text


def test_a_line_that_is_still_being_written_counts(log):
    log.write_bytes(b"one\ntwo\nthr")
    assert tail(log, 2, 1000)[0] == b"two\nthr"


def test_any_bytes_pass(log):
    log.write_bytes(bytes(range(256)))
    assert tail(log, 9, 1000)[0] == bytes(range(256))


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing", ""):
        with pytest.raises(TelaError):
            tail(tmp_path / name, 1, 1)


def followed(log, change, wanted):
    """What is read after `change`, until it is `wanted` long."""

    async def main():
        _, place = tail(log, 0, 0)
        got = b""
        async with asyncio.timeout(10.0):
            parts = follow(log, place)
            change()
            async for part in parts:
                got += part
                if len(got) >= len(wanted):
                    await parts.aclose()
                    return got
        return got

    return asyncio.run(main())


def test_what_is_written_later_is_followed(log):
    def change():
        with log.open("ab") as file:
            file.write(b"four\n")

    assert followed(log, change, b"four\n") == b"four\n"


def test_a_log_that_was_cut_is_read_from_its_beginning(log):
    assert followed(log, lambda: log.write_bytes(b"new\n"), b"new\n") == b"new\n"


def test_a_log_that_was_replaced_is_read_from_its_beginning(log):
    def change():
        log.rename(log.with_suffix(".1"))
        log.write_bytes(b"a new and longer file than before\n")

    assert followed(log, change, b"a new and longer file than before\n") == b"a new and longer file than before\n"
