"""Time: the one way in which live processes ask for it, and wait for it.

Who replaces these, and the event loop, moves a live system through time at will: tests play minutes in
seconds, see `tests/physical`. A test sees to it that gateways and controller wait for time nowhere else.

    monotonic_s()   seconds that only grow; for how long something took, and until when to wait
    unix_s()        seconds since 1970; for what is written down, and read by other processes
    sleep(s)        all else goes on meanwhile
    later(s, do)    have something done then, unless its timer is cancelled before
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

monotonic_s: Callable[[], float] = time.monotonic
unix_s: Callable[[], float] = time.time


async def sleep(duration_s: float) -> None:
    """Wait; all else goes on meanwhile."""
    await asyncio.sleep(duration_s)


def later(delay_s: float, do: Callable[..., object], *given: Any) -> asyncio.TimerHandle:
    """Have something done when time has passed, unless the timer is cancelled before."""
    return asyncio.get_running_loop().call_later(delay_s, do, *given)


async def next_period(clock: Callable[[], float], period_s: float) -> None:
    """Sleep until a clock shows a whole number of periods; what takes longer than one leaves some out."""
    now_s = clock()
    due_s = (math.floor(now_s / period_s + 1e-9) + 1) * period_s
    await sleep(due_s - now_s)
