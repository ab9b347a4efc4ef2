"""What steps of the script are made of: claims that must hold, and things that must come to be within a time."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp

from registry.errors import TelaError

EACH_S = 0.02
FAILURES = (AssertionError, TelaError, TimeoutError, OSError, aiohttp.ClientError, ValueError)  # what a step may end as


def hold(claim: bool, otherwise: str) -> None:
    """A claim of the script.

    Raises:
        AssertionError: when it does not hold; unlike a bare assert it is never optimised away.
    """
    if not claim:
        raise AssertionError(otherwise)


async def until(is_so: Callable[[], Awaitable[bool]], within_s: float, otherwise: str) -> None:
    """Wait until something is so, looking again and again.

    Raises:
        AssertionError: it was not so in time.
    """
    try:
        async with asyncio.timeout(within_s):
            while True:
                if await is_so():
                    return
                await asyncio.sleep(EACH_S)
    except TimeoutError:
        raise AssertionError(f"within {within_s:.0f} s {otherwise}") from None
