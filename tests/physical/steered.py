"""A controller over gateways whose workers come and go, all on one virtual clock: what its tests share."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from virtual import BEGAN_UNIX_S

from alone import Alone
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.process.entry import Following
from edgewise.runtime.store.steady import SteadyStore


class PlayedBackend(Alone):
    """Processes of workers; those of the beginning are up at once.

    Args:
        workers: by name, which `start` and `die`.
        start_s: another is up so long after it was started.
        frame_s: counted from the beginning of the frame; None: from when it was started.
    """

    def __init__(self, workers: Mapping[str, Any], start_s: float, frame_s: float | None = None) -> None:
        self._workers, self._start_s, self._frame_s = workers, start_s, frame_s
        self._handles = dict[str, Any]()

    def start(self, process: Any) -> str:
        """As a backend does."""
        loop = asyncio.get_running_loop()
        worker, handle = self._workers[process.name], f"{process.name} {loop.time()}"
        self._handles[handle] = worker
        if loop.time() > 0.0:
            frame_s = self._frame_s
            began_s = loop.time() if frame_s is None else math.floor(loop.time() / frame_s) * frame_s
            loop.call_at(began_s + self._start_s, worker.start)
        else:
            worker.start()
        return handle

    def alive(self, handle: str) -> bool:
        """As a backend does."""
        return handle in self._handles

    def look(self, process: Any, handle: str) -> Answering:
        """Whether one is ready, it says at its port."""
        return Answering(process.url, None)

    def stop(self, handle: str, force: bool = False) -> None:
        """It has nothing to do any more."""
        if handle in self._handles:
            worker = self._handles.pop(handle)
            assert not worker.queued, "who is stopped has work"
            worker.die()


def steered(
    store: SteadyStore, backend: PlayedBackend, gateways: Sequence[Any], patched: Any
) -> tuple[Controller, list[Following]]:
    """A controller that has started all that is there at first, and what lets gateways follow it."""

    async def answers(controller: Controller, method: str, path: str) -> list[dict[str, Any]]:
        pools = path.endswith("pools")
        return [
            {"gateway": each.site, "answer": _pools(each) if pools else each.services.core.report()}
            for each in gateways
        ]

    async def at_once(work: Callable[..., Any], *given: Any) -> Any:
        return work(*given)

    patched.setattr(Controller, "ask_gateways", answers)
    patched.setattr(asyncio, "to_thread", at_once)
    store.put("began_s", BEGAN_UNIX_S)
    controller = Controller(store, backend)  # type: ignore[arg-type]
    for running in store.processes("gateway"):  # nobody starts them here
        store.set_wanted(running.process.name, False)
    controller.reconcile()
    rows = [running.process for running in store.processes("worker")]
    places = {process.name: (process.url, process.settings["model"]) for process in rows}
    return controller, [Following(each, store, dict(places)) for each in gateways]


def _pools(gateway: Any) -> dict[str, Any]:
    wanted, up = ([getattr(each, what) for each in gateway.upstreams] for what in ("wanted", "up"))
    found: dict[str, Any] = gateway.session.pools(wanted, up)
    return found


async def follow(following: Following, first_s: float, period_s: float) -> None:
    """Look at once, then at `first_s` and every period from there on."""
    following.look()
    await asyncio.sleep(first_s)
    while True:
        following.look()
        await asyncio.sleep(period_s)


async def until_over(work: Sequence[Awaitable[Any]], duration_s: float) -> None:
    """Let all of it go on for so long; what fails raises."""
    tasks = [asyncio.ensure_future(each) for each in work]
    await asyncio.sleep(duration_s)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
