"""Whether processes answer: what runs and does not is killed, so that it is started anew.

Who is slow is not stuck. On a busy machine an answer may take seconds, so each check waits for one longer
than anybody should take, and a process is killed only after a longer time without any. A check that ended
much later than its time-out says that we were held up ourselves, and nothing of who was asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace

from edgewise.runtime import clock, http
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.store import Process, Running

log = logging.getLogger("edgewise.controller")
ANSWER_S = 5.0  # for one check
PATIENCE_S = 10.0  # without an answer, and a process is killed
HELD_UP_S = 1.0  # a check that ends so much after its time-out does not count
LOADING_S = 300.0  # a large network on a slow disk
ASK_S = 1.0  # for whether one is ready
LIVE, READY = "/v2/health/live", "/v2/health/ready"
Look = Callable[[Process, str], Answering]
Answer = Callable[[Process, str, float], Awaitable[http.Response | None]]


class Health:
    """Checks processes.

    Args:
        kill: of a handle, what is stuck.
        look: what the backend says of a process and its handle.
        answer: what a process answers at a path, None where it gives nothing in so many seconds.
    Attributes:
        served: handles that have answered, or were ready.
    """

    def __init__(self, kill: Callable[[str], None], look: Look, answer: Answer) -> None:
        self._kill, self._look, self._answer = kill, look, answer
        self.served: set[str] = set()
        self.silent_s: dict[str, float] = {}  # for how long a handle has not answered

    async def check(self, rows: list[Running], period_s: float) -> None:
        """Ask all of them; done each period."""
        await asyncio.gather(*(self._check(running, period_s) for running in rows))

    async def ready(self, process: Process, handle: str, path: str = READY) -> bool:
        """Whether a process is ready: its backend says so, or it does itself where the backend cannot know.

        Args:
            path: of another question than whether it takes requests, which only the process can answer.
        """
        seen = self._look(process, handle)
        if seen.ready is not None and path == READY:
            return seen.ready
        answer = await self._answer(replace(process, address=seen.url), path, ASK_S)
        return answer is not None and answer.status == 200

    def away(self, process: Process, handle: str) -> bool:
        """Whether the server of a process, which somebody else runs, is not there, or not ready."""
        return process.taken and self._look(process, handle).ready is False

    def forget(self, known: Container[str | None]) -> None:
        """Forget handles that are not known any more."""
        self.served = {handle for handle in self.served if handle in known}
        self.silent_s = {handle: s for handle, s in self.silent_s.items() if handle in known}

    async def _check(self, running: Running, period_s: float) -> None:
        if (handle := running.handle) is None or running.process.taken:  # what is not ours is never ended
            return
        if (ready := self._look(running.process, handle).ready) is not None:
            if ready:
                self.served.add(handle)
            return  # who knows that also ends what hangs
        began_s = clock.monotonic_s()
        answer = await self._answer(running.process, LIVE, ANSWER_S)
        took_s = clock.monotonic_s() - began_s
        if answer is not None:
            self.served.add(handle)
            self.silent_s.pop(handle, None)
            return
        loading = handle not in self.served and clock.unix_s() - running.started_s < LOADING_S
        if loading or took_s > ANSWER_S + HELD_UP_S:
            return
        self.silent_s[handle] = self.silent_s.get(handle, 0.0) + period_s + took_s
        if self.silent_s[handle] >= PATIENCE_S:
            log.warning("does not answer", extra={"who": running.process.name})
            self._kill(handle)
