"""An event loop whose clock jumps to the next timer, and a live system on it."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from edgewise.runtime import clock

BEGAN_UNIX_S = 1.7e9
TURN_S = 1e-12  # timers so near to each other are due together


class _Jump(selectors.DefaultSelector):
    """Waits for nothing: nobody outside takes part."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nobody does anything any more, and somebody waits")
        if timeout > 0.0:
            self.loop.jump()
        return super().select(0.0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can be done, then it is that of the next timer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _Jump()
        super().__init__(selector)
        selector.loop, self._clock_resolution = self, TURN_S

    def time(self) -> float:
        """The present time, from 0."""
        return self.now_s

    def jump(self) -> None:
        """To the next timer, and to no time between two."""
        self.now_s = max(self.now_s, self._scheduled[0].when())


def played(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of something that runs on a virtual clock from 0 on, as do all clocks of the runtime."""
    loop = VirtualLoop()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clock, "monotonic_s", loop.time)
        patched.setattr(clock, "unix_s", lambda: BEGAN_UNIX_S + loop.now_s)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(work)
