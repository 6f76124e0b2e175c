"""What a gateway and the store tell each other while it serves: where workers are, where streams are bound.

A worker whose settings change starts anew at another port, beside the one it replaces. A gateway that
starts anew finds there which worker each of its streams was bound to, and leaves it where it is.
"""

from __future__ import annotations

import asyncio
import logging

from edgewise.errors import RunError
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.steady import SteadyStore

log = logging.getLogger("edgewise.following")


class Following:
    """Keeps a gateway and the store in line.

    Args:
        gateway: restored from the store.
        places: address and model of each worker as the gateway has it, by name.
    """

    def __init__(self, gateway: Gateway, store: SteadyStore, places: dict[str, tuple[str, str]]) -> None:
        self.gateway, self.store, self._places = gateway, store, places
        self._bound: dict[int, int] = {}
        self._failed = ""

    async def keep(self, period_s: float = 0.25) -> None:
        """Go on until cancelled."""
        while True:
            self.step()
            await asyncio.sleep(period_s)

    def step(self) -> None:
        """Follow the workers that moved, and note the streams that did."""
        self.store.settle()
        try:
            self._follow()
            self._note()
            self._failed = ""
        except RunError as error:  # the next pass may do better
            if str(error) != self._failed:
                log.error("store", extra={"why": str(error)})
            self._failed = str(error)

    def _follow(self) -> None:
        names, elsewhere = self.gateway.session.world.worker_names, self.gateway.book.moves()
        for running in self.store.processes("worker"):
            name, place = running.process.name, (running.process.url, running.process.settings["model"])
            if name in self._places and self._places[name] != place:
                self._places[name] = place
                if name not in elsewhere:  # an operator gave it an address of its own
                    self.gateway.move(names.index(name), *place, self.store.secret("parts"))
                    log.info("worker followed", extra={"worker": name, "url": place[0]})

    def _note(self) -> None:
        names, bound = self.gateway.session.world.worker_names, self.gateway.session.core.bindings
        if bound == self._bound:
            return
        changed = {s for s, w in bound.items() if self._bound.get(s) != w} | self._bound.keys() - bound.keys()
        self.store.bind({s: names[bound[s]] if s in bound else None for s in changed})
        self._bound = dict(bound)
