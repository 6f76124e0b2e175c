"""What gateways say of pools of workers: the controller's side of `runtime.gateway.demand`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.orchestrate import REFUSED
from edgewise.core.orchestrate.events import StreamsCounted
from edgewise.model.pools import Orchestrated

TOTALS = ("asked", "unserved", "refused", "judged")  # since a gateway began


class PoolsSeen:
    """What they said last.

    Attributes:
        workers: of each gateway, as it sees them, by name.
    """

    def __init__(self) -> None:
        self._said: dict[str, dict[str, Any]] = {}
        self._before: dict[str, dict[str, Floats]] = {}  # totals, when they were counted

    @property
    def workers(self) -> list[dict[str, dict[str, Any]]]:
        """See the class."""
        return [said["workers"] for said in self._said.values()]

    def streams(self, worker: str) -> int:
        """So many are bound to it."""
        return sum(int(rows[worker]["streams"]) for rows in self.workers if worker in rows)

    def hear(self, said: Mapping[str, dict[str, Any]]) -> None:
        """What each gateway says."""
        self._said = dict(said)

    def counted(self, what: Orchestrated) -> StreamsCounted:
        """What came since it was asked before."""
        pools, of = len(what.workers), {name: p for p, names in enumerate(what.workers) for name in names}
        wide = {"refused": (pools, len(REFUSED)), "judged": (pools, 2)}
        shapes = {name: wide.get(name, (pools,)) for name in TOTALS}
        new, load = {name: np.zeros(shapes[name]) for name in TOTALS}, dict[str, float]()
        for gateway, said in self._said.items():
            totals = {name: np.array(said[name], dtype=np.float64) for name in TOTALS}
            if any(totals[name].shape != shapes[name] for name in TOTALS):
                continue  # one that is yet to be started anew has other pools
            before = self._before.get(gateway, {})
            for name, total in totals.items():
                old = before.get(name, np.zeros_like(total))
                new[name] += total - old if old.shape == total.shape and (total >= old).all() else total
            self._before[gateway] = totals
            new["unserved"] += np.array(said["waiting"])
            new["refused"] += np.array(said["waiting_refused"])
            for name, view in said["workers"].items():
                load[name] = load.get(name, 0.0) + float(view["load"])
        found = np.zeros((len(what.nodes), pools))
        for name in load.keys() & of.keys():
            found[what.nodes.index(what.node_of[name]), of[name]] += load[name]
        ok, all_ = new["judged"].T
        in_time = np.where(all_ > 0, ok / np.maximum(all_, 1), 1.0)
        return StreamsCounted(found, new["asked"], new["unserved"], in_time, new["refused"].astype(np.int64))
