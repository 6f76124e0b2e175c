"""A scenario before any run: what there is, how much is asked of it, and what nobody can serve."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats
from edgewise.limits import described, load
from edgewise.limits.balance import Balance, balanced, fullest
from edgewise.limits.described import FULL, Load
from edgewise.limits.offered import Offer, offered
from edgewise.limits.reach import Reach, reach_of
from edgewise.limits.rooms import SAID, NodeRoom, amount, rooms_of
from edgewise.limits.words import Limit, ordered
from edgewise.model.scenario import Scenario
from edgewise.model.services import served_by_workers, serving
from edgewise.report.summary import rate
from edgewise.workloads.services import names_of

LINES = 4  # limits that are described
OVER = 1.0 + 1e-3  # share of a capacity beyond which nobody can serve everything


class CapacityLine(NamedTuple):
    """What one link, node or group of workers has, and what is asked of it.

    Attributes:
        kind, name: as of a `Limit`.
        has: in all, as people say it.
        held: share that workers hold for life, of a node; 0 else.
        load: share of what is left that is asked for at the busiest time where work is shared out as evenly
            as can be; None: not known.
        note: what else there is to say.
    """

    kind: str
    name: str
    has: str
    held: float
    load: float | None
    note: str = ""


class Serving(NamedTuple):
    """Who can serve an application at a site.

    Attributes:
        by: groups of workers that answer in time and are accurate enough, the nearest first, with delays.
        at_times: those that keep its longer deadlines only.
        variants: of each variant the least delay, and whether that keeps every deadline, the nearest first.
    """

    site: str
    of: str
    by: tuple[tuple[str, float], ...]
    at_times: tuple[tuple[str, float], ...]
    variants: dict[str, tuple[float, bool]]


@dataclass(frozen=True)  # without slots: what is found once is kept
class Checked:
    """What is known of a scenario beforehand."""

    scenario: Scenario

    @cached_property
    def rooms(self) -> dict[str, NodeRoom]:
        """Of nodes, by name."""
        return rooms_of(self.scenario)

    @cached_property
    def reach(self) -> Reach | None:
        """Of its streams, if it has some."""
        found = reach_of(self.scenario) if self.scenario.topology.sites else None
        return found if found is not None and found.needs else None

    @cached_property
    def _offer(self) -> Offer | None:
        return offered(self.scenario, self.reach, self.rooms)

    @cached_property
    def _busiest(self) -> tuple[Balance, Floats] | None:
        """Loads at the busiest step, and the (STEPS,) least share of the fullest resource."""
        if self._offer is None:
            return None
        options, demand = self._offer.options(), np.array(self._offer.demand)
        at = int(demand.sum(axis=0).argmax())
        found = balanced(options, demand[:, at])
        bound = found.bound(options, demand)
        if (top := int(bound.argmax())) != at and bound[top] > bound[at] * 1.001:
            found = balanced(options, demand[:, top])
            bound = found.bound(options, demand)
        return found, bound

    def lines(self) -> list[CapacityLine]:
        """Nodes, then workers and links, the fullest first of each."""
        loads: dict[tuple[str, str], float] = {}
        if self._offer is not None and self._busiest is not None:
            keys = zip(self._offer.kinds, self._offer.names, strict=True)
            loads = dict(zip(keys, self._busiest[0].share.tolist(), strict=True))
        found = [self._node(room, loads.get(("node", name))) for name, room in self.rooms.items()]
        if self.reach is not None:
            for group in self.reach.groups:
                up_to = "up to " if group.pooled else ""
                count = f"{up_to}{group.most} × {group.capacity_qps / group.most:.4g} queries/s"
                found.append(
                    CapacityLine("worker", group.name, count, 0.0, loads.get(("worker", group.name)))
                )
        known = {line.name for line in found if line.kind == "worker"}
        for k, kind in enumerate(self._offer.kinds if self._offer else ()):
            assert self._offer is not None
            name, has = self._offer.names[k], self._offer.capacity[k]
            if kind == "link":
                found.append(CapacityLine("link", name, rate(has), 0.0, loads[kind, name]))
            elif kind == "worker" and name not in known:
                found.append(CapacityLine("worker", name, f"{has:.4g} requests/s", 0.0, loads[kind, name]))
        order = {"node": 0, "worker": 1, "link": 2}
        return sorted(found, key=lambda line: (order[line.kind], -(line.load or 0.0), -line.held))

    def _node(self, room: NodeRoom, share: float | None) -> CapacityLine:
        rows = [each for each in zip(SAID, room.has, room.held, strict=True) if each[1] > 0.0]
        has = ", ".join(
            f"{amount(what, total)} {'cores' if what == 'cores' else what}" for what, total, _ in rows
        )
        held = max((part / total for _, total, part in rows), default=0.0)
        most = [what for what, total, part in rows if part == held * total and part > 0.0]
        return CapacityLine("node", room.node, has, held, share, most[0] if most else "")

    def serving(self) -> list[Serving]:
        """Of each application at each site."""
        if self.reach is None:
            return []
        always, ever = self.reach.served(latest=False), self.reach.served()
        found = []
        for k, need in enumerate(self.reach.needs):
            order = np.argsort(self.reach.delay_s[k], kind="stable").tolist()
            order = [g for g in order if ever[k, g]]
            named = {g: (self.reach.groups[g].name, float(self.reach.delay_s[k, g])) for g in order}
            variants: dict[str, tuple[float, bool]] = {}
            for g in order:
                variants.setdefault(self.reach.groups[g].variant, (named[g][1], bool(always[k, g])))
            by, at_times = ([named[g] for g in order if always[k, g] == kept] for kept in (True, False))
            site = self.reach.world.site_names[need.site]
            found.append(Serving(site, need.of, tuple(by), tuple(at_times), variants))
        return found

    @cached_property
    def unserved(self) -> list[Limit]:
        """Applications that nobody can serve at some sites, always or at times; and what no node can hold."""
        if self.reach is None:
            return described.too_large(self.scenario, self.rooms)
        always: Bools = np.any(self.reach.served(latest=False), axis=1)
        found = []
        demand = load.by_need(self.reach, load.drawn(self.reach)).mean(axis=1)
        for of in dict.fromkeys(need.of for need in self.reach.needs):
            mine = [k for k, need in enumerate(self.reach.needs) if need.of == of and not always[k]]
            if mine:
                lost = sum(float(demand[k]) * self._missed(k) for k in mine) / max(float(demand.sum()), 1e-12)
                found.append(described.unserved(self.reach, self.rooms, mine, Load(1.0, lost)))
        return ordered([*found, *described.too_large(self.scenario, self.rooms)])

    def _missed(self, need: int) -> float:
        """Share of an application's deadlines that nobody keeps."""
        assert self.reach is not None
        nearest, (low, high) = self.reach.nearest(need), self.reach.needs[need].deadline_s
        if nearest is None:
            return 1.0
        delay_s = float(self.reach.delay_s[need, nearest])
        return float(delay_s > low) if high == low else min(max((delay_s - low) / (high - low), 0.0), 1.0)

    @cached_property
    def limits(self) -> list[Limit]:
        """What limits, whoever decides: what nobody can serve, then what is fullest at the busiest time."""
        return ordered([*self.unserved, *self.loads])

    @cached_property
    def loads(self) -> list[Limit]:
        """What is fullest at the busiest time, whoever decides."""
        if self._offer is None or self._busiest is None:
            return self._beside
        (balance, bound), found = self._busiest, []
        edges = load.edges_of(self.scenario.duration_s)
        for r in fullest(balance)[:LINES].tolist():
            share = float(balance.share[r])
            over = share > OVER and balance.rank[r] == 0
            lost = float(np.mean(np.maximum(bound - 1.0, 0.0) / np.maximum(bound, 1.0))) if over else 0.0
            when_s = load.when_over(bound, FULL, edges) if balance.rank[r] == 0 else None
            found.append(self._limit(r, Load(share, lost, when_s if share >= FULL else None)))
        return [*found, *self._beside]

    @property
    def _beside(self) -> list[Limit]:
        """What pipelines and jobs ask for, over all nodes."""
        return [*described.pipelines(self.scenario, self.rooms), *described.jobs(self.scenario, self.rooms)]

    def _limit(self, number: int, share: Load) -> Limit:
        assert self._offer is not None
        kind, name = self._offer.kinds[number], self._offer.names[number]
        if kind == "link":
            return described.link(self.scenario, name, self._offer.capacity[number], share)
        groups = [] if self.reach is None else [each for each in self.reach.groups if each.name == name]
        if groups:
            return described.workers(self.scenario, self.rooms, groups, share)
        return described.cores(self.scenario, name, kind, self._offer.capacity[number], share)

    @property
    def servable(self) -> bool:
        """Whether somebody can serve each application at each site, at times at least, and nodes hold all."""
        served = self.reach is None or bool(self.reach.served().any(axis=1).all())
        return served and not described.too_large(self.scenario, self.rooms)

    def in_cloud(self) -> dict[str, tuple[str, ...]]:
        """The workers in the cloud that requests of each service meet; none: they meet a pool."""
        if (spec := self.scenario.services) is None:
            return {}
        names = names_of(self.scenario, spec)
        if spec.gateways == "one":
            return dict.fromkeys(names, ())
        mine = [each for each in serving(spec, self.scenario.topology, names) if each.station == 0]
        return {name: tuple(w.name for w in mine if w.service == s) for s, name in enumerate(names)}

    def at_workers(self) -> dict[str, dict[str, int]]:
        """Of services that workers serve outside the cloud or in pools, how many in each cluster, at most."""
        if (spec := self.scenario.services) is None:
            return {}
        topology, found = self.scenario.topology, dict[str, dict[str, int]]()
        where = {node.name: node.cluster for node in topology.nodes}
        for name in sorted(served_by_workers(spec, topology)):
            mine = [where[worker.node] for worker in topology.workers if worker.variant == name]
            found[name] = dict(Counter(mine))
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scenario": self.scenario.name,
            "servable": self.servable,
            "in_cloud": {name: list(workers) or "pool" for name, workers in self.in_cloud().items()},
            "at_workers": self.at_workers(),
            "idle_workers": [worker.name for worker in self.scenario.idle],
            "capacity": [line._asdict() for line in self.lines()],
            "serving": [each._asdict() for each in self.serving()],
            "unserved": [limit.as_json() for limit in self.unserved],
            "limits": [limit.as_json() for limit in self.limits],
        }
