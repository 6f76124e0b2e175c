"""One loop over all that the controller does again and again, in a fixed order.

What looks at the store, the ledger and processes is a step of the loop, so the steps of one turn see one
state, whoever else writes it. What waits for answers of gateways, for a thread or for a disk goes on beside
the loop and is not begun anew before it has ended: who hangs holds up nothing but what is asked of them.

Each pass says why it looks again and again, and is not told. `docs/reference/runtime.md` lists these.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from edgewise.runtime import clock
from edgewise.runtime.backends.contract import Counted

LONGEST_S = 1.0  # of a pause of the loop
ROUNDING_S = 1e-9


@dataclass(slots=True)
class Pass:
    """Something that is done again and again.

    Attributes:
        name: in the documentation.
        period_s: from its end to its next beginning.
        why: nobody can tell us instead.
        step: does it; a coroutine function is awaited beside the loop.
        share: most of the time that it may take; a longer step has a longer pause after it.
        due_s: its next step, on the clock that only grows.
        steps, took_s: how many there were, and how long they took in all.
    """

    name: str
    period_s: float
    why: str
    step: Callable[[], Coroutine[Any, Any, None] | None]
    share: float = 1.0
    due_s: float = 0.0
    steps: int = 0
    took_s: float = 0.0

    def turn(self) -> None:
        """Do it, if it is due."""
        if (began_s := clock.monotonic_s()) >= self.due_s:
            self.step()
            now_s = clock.monotonic_s()
            self._note(now_s - began_s)
            late = now_s - self.due_s >= ROUNDING_S  # of sums of times
            self.due_s = (now_s if late else self.due_s) + self.period_s

    async def keep(self) -> None:
        """Do it beside the loop, for ever."""
        while True:
            began_s = clock.monotonic_s()
            if (rest := self.step()) is not None:
                await rest
            took_s = clock.monotonic_s() - began_s
            self._note(took_s)
            await clock.sleep(max(self.period_s, took_s * (1.0 / self.share - 1.0)))

    def _note(self, took_s: float) -> None:
        self.steps += 1
        self.took_s += took_s


def counted(passes: Sequence[Pass]) -> tuple[Counted, Counted]:
    """What passes took, for who watches the system."""
    steps = {each.name: float(each.steps) for each in passes}
    took_s = {each.name: each.took_s for each in passes}
    return (
        Counted("edgewise_controller_passes", "What the controller does again and again.", "of", steps),
        Counted("edgewise_controller_pass_seconds", "How long that took in all.", "of", took_s),
    )


async def reconcile(passes: Sequence[Pass], over: Callable[[], bool] = lambda: False) -> None:
    """Go on until it is over, or until a step fails at what nobody expects.

    Raises:
        Exception: what that was; a controller ends with it, and its successor goes on.
    """
    beside = [each for each in passes if inspect.iscoroutinefunction(each.step)]
    inside = [each for each in passes if each not in beside]
    work = [turns(inside, over), *(each.keep() for each in beside)]
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        with suppress(asyncio.CancelledError):
            task.result()


async def turns(passes: Sequence[Pass], over: Callable[[], bool] = lambda: False) -> None:
    """The loop alone: do what is due, in order, until it is over."""
    while not over():
        for each in passes:
            each.turn()
        left_s = min((each.due_s - clock.monotonic_s() for each in passes), default=LONGEST_S)
        await clock.sleep(max(left_s, 0.0))
