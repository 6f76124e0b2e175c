"""Waiting for a state, which has a limit: the one way to wait in tests, in place of a fixed pause.

A state is a function without arguments; it is reached when what it returns is true.

Two things take a time of their own, and are no waiting: a stand-in that has to be slow (`takes`), and a
client, a handler or a fault whose moments the test gives (`pace`). After neither may a test conclude that
something has happened by now.
"""

import asyncio
import time
from pathlib import Path

LIMIT_S = 120.0  # long, for machines that are busy
LOOK_S, SELDOM_S = 0.005, 0.05  # between looks: as long as a look takes, so that half of a core is free


def wait_until(reached, what=None, limit_s=LIMIT_S):
    """Block until a state is reached; what it returned. `what` is said otherwise; it may be a function."""
    began_s = looked_s = time.monotonic()
    while not (found := reached()):
        now_s = time.monotonic()
        assert now_s < began_s + limit_s, _never(reached, what, limit_s)
        time.sleep(_rest_s(now_s - looked_s))
        looked_s = time.monotonic()
    return found


async def becomes(reached, what=None, limit_s=LIMIT_S):
    """The same beside others; the state may also be a coroutine function."""
    began_s = looked_s = time.monotonic()
    while True:
        found = reached()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        now_s = time.monotonic()
        assert now_s < began_s + limit_s, _never(reached, what, limit_s)
        await asyncio.sleep(_rest_s(now_s - looked_s))
        looked_s = time.monotonic()


def takes(seconds):
    """Hold the caller up: for a model, a policy or a task whose slowness is what the test is about."""
    time.sleep(seconds)


async def pace(seconds):
    """The time until a client sends what comes next, or until a handler answers: given, as in a scenario."""
    await asyncio.sleep(seconds)


# Begins the files with policies and tasks that tests write, which other processes load.
IN_FILES = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from waiting import takes, wait_until
"""


def _rest_s(took_s):
    return min(max(LOOK_S, took_s), SELDOM_S)


def _never(reached, what, limit_s):
    code = getattr(reached, "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else str(reached)
    return f"not in {limit_s:g} s: {what() if callable(what) else what or where}"
