"""Waiting for a state, which has a limit: the one way to wait in tests, in place of a fixed pause.

A state is a function without arguments; it is reached when what it returns is true.
"""

import asyncio
import time

LIMIT_S = 120.0  # long, for machines that are busy
LOOK_S = 0.005


def wait_until(reached, what=None, limit_s=LIMIT_S):
    """Block until a state is reached; what it returned."""
    end_s = time.monotonic() + limit_s
    while not (found := reached()):
        assert time.monotonic() < end_s, f"not in {limit_s:g} s: {what or _said(reached)}"
        time.sleep(LOOK_S)
    return found


async def becomes(reached, what=None, limit_s=LIMIT_S):
    """The same beside others; the state may also be a coroutine function."""
    end_s = time.monotonic() + limit_s
    while True:
        found = reached()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end_s, f"not in {limit_s:g} s: {what or _said(reached)}"
        await asyncio.sleep(LOOK_S)


def _said(reached):
    code = getattr(reached, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else str(reached)
