"""What time it is: the one way in which live processes ask.

Sleeps and timers are the event loop's. Who replaces these two, and the loop, moves a live system through time
at will: tests play minutes in seconds, see `tests/physical`.

    monotonic_s()   seconds that only grow; for how long something took, and until when to wait
    unix_s()        seconds since 1970; for what is written down, and read by other processes
"""

import asyncio
import math
import time
from collections.abc import Callable

monotonic_s: Callable[[], float] = time.monotonic
unix_s: Callable[[], float] = time.time


async def next_period(clock: Callable[[], float], period_s: float) -> None:
    """Sleep until a clock shows a whole number of periods; what takes longer than one leaves some out."""
    now_s = clock()
    due_s = (math.floor(now_s / period_s + 1e-9) + 1) * period_s
    await asyncio.sleep(due_s - now_s)
