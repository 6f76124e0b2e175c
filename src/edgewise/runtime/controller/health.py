"""Whether processes answer: what runs and does not is killed, so that it is started anew.

Who is slow is not stuck. On a busy machine an answer may take seconds, so each check waits for one longer
than anybody should take, and a process is killed only after a longer time without any. A check that ended
much later than its time-out says that we were held up ourselves, and nothing of who was asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container

from edgewise.runtime import clock, http
from edgewise.runtime.store import Process, Running

log = logging.getLogger("edgewise.controller")
ANSWER_S = 5.0  # for one check
PATIENCE_S = 10.0  # without an answer, and a process is killed
HELD_UP_S = 1.0  # a check that ends so much after its time-out does not count
LOADING_S = 300.0  # a large network on a slow disk
Answer = Callable[[Process, float], Awaitable[http.Response | None]]


class Health:
    """Checks processes.

    Args:
        kill: of a handle, what is stuck.
        answer: what a process answers when it is asked whether it lives, None where it gives nothing in
            so many seconds.
    Attributes:
        served: handles that have answered.
    """

    def __init__(self, kill: Callable[[str], None], answer: Answer) -> None:
        self._kill, self._answer = kill, answer
        self.served: set[str] = set()
        self._silent_s: dict[str, float] = {}  # for how long a handle has not answered

    async def check(self, rows: list[Running], period_s: float) -> None:
        """Ask all of them; done each period."""
        await asyncio.gather(*(self._check(running, period_s) for running in rows))

    def forget(self, known: Container[str | None]) -> None:
        """Forget handles that are not known any more."""
        self.served = {handle for handle in self.served if handle in known}
        self._silent_s = {handle: s for handle, s in self._silent_s.items() if handle in known}

    async def _check(self, running: Running, period_s: float) -> None:
        if (handle := running.handle) is None:
            return
        began_s = clock.monotonic_s()
        answer = await self._answer(running.process, ANSWER_S)
        took_s = clock.monotonic_s() - began_s
        if answer is not None:
            self.served.add(handle)
            self._silent_s.pop(handle, None)
            return
        loading = handle not in self.served and clock.unix_s() - running.started_s < LOADING_S
        if loading or took_s > ANSWER_S + HELD_UP_S:
            return
        self._silent_s[handle] = self._silent_s.get(handle, 0.0) + period_s + took_s
        if self._silent_s[handle] >= PATIENCE_S:
            log.warning("does not answer", extra={"who": running.process.name})
            self._kill(handle)
