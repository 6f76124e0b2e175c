"""What a run was limited by: every query that was lost is put down to one thing.

A refused stream says why it was; if it had a worker before, that went down, or else had no room for it. Of
those that every suitable worker, or every link, was too full for, each counts as asked of these, so that more
than all may be asked of them. A query that was answered late counts for a link on its way that was full while
its stream lasted; else for its worker, if that was busy; else for its node, if that went down; else for its
deadline, if an idle worker there is too slow for it; else for the policy, for there was room elsewhere or
nothing was full.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.dispatch.views import REASONS, Violation
from edgewise.limits import described
from edgewise.limits.described import FULL, Load
from edgewise.limits.load import STEPS, AskedStreams, edges_of, in_steps, known, recorded, when_over
from edgewise.limits.others import other_limits
from edgewise.limits.reach import Reach, reach_of
from edgewise.limits.rooms import NodeRoom, rooms_of
from edgewise.limits.words import NEAR, Limit, ordered
from edgewise.model.scenario import Scenario
from edgewise.model.topology import NodeChange
from edgewise.model.ways import Routes, routes_of

MOST = 8  # limits that are named


def limits_of(
    scenario: Scenario, items: Mapping[str, pa.Table], use: Mapping[str, pa.Table], runs: int
) -> list[Limit]:
    """What limited the runs of one policy, the first to break first.

    Args:
        items: records of each kind of work, in the schemas of `report.schema`.
        use: tables of `report.use`.
        runs: how many seeds these are of.
    """
    rooms = rooms_of(scenario)
    routes = routes_of(scenario.topology) if scenario.topology.sites else None
    measured = measured_links(use.get("links"), scenario.duration_s, runs)
    found: list[Limit] = []
    if "streams" in items and routes is not None and items["streams"].num_rows:
        reach = reach_of(scenario)
        streams = known(reach, items["streams"])
        found += Losses(scenario, reach, rooms, routes, streams, measured, runs).limits()
    found += other_limits(scenario, rooms, items, use, measured, runs)
    kept = [each for each in ordered(found) if each.lost > 0.0 or (each.share or 0.0) >= NEAR]
    names = dict.fromkeys((each.kind, each.name) for each in kept)
    return [next(one for one in kept if (one.kind, one.name) == key) for key in names][:MOST]


def measured_links(links: pa.Table | None, duration_s: float, runs: int) -> dict[str, Floats]:
    """(STEPS,) share of each link's rate that was sent or reserved, mean over the runs."""
    if links is None or not links.num_rows:
        return {}
    names = links["link"].to_numpy(zero_copy_only=False)
    start, end, has, held, sent = (
        links[name].to_numpy() for name in ("start_s", "end_s", "capacity_bps", "reserved_bps", "sent_bits")
    )
    share = (sent / np.maximum(end - start, 1e-12) + held) / np.maximum(has, 1e-9)
    edges, found = edges_of(duration_s), {}
    for name in dict.fromkeys(names.tolist()):
        at = names == name
        found[name] = in_steps(start[at], end[at], share[at], edges) / runs
    return found


@dataclass
class Losses:
    """Queries of streams of some runs, and what they were lost to.

    Attributes:
        asked: (R, STEPS) share of the capacity of each link, then of each group, that was asked for.
        lost: (R,) queries.
        since_s: (R,) when the first of them was.
        others: limits that are no links or groups.
    """

    scenario: Scenario
    reach: Reach
    rooms: Mapping[str, NodeRoom]
    routes: Routes
    items: pa.Table
    measured: Mapping[str, Floats]
    runs: int
    asked: Floats = field(init=False)
    lost: Floats = field(init=False)
    since_s: Floats = field(init=False)
    others: list[Limit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.streams: AskedStreams = recorded(self.reach, self.items, self.runs)
        self.links = len(self.routes.names)
        groups = [group.capacity_qps for group in self.reach.groups]
        self.capacity = np.concatenate([self.routes.rate_bps, groups])
        self.edges = edges_of(self.scenario.duration_s)
        self.asked = np.zeros((self.capacity.size, STEPS))
        self.lost, self.since_s = np.zeros(self.capacity.size), np.full(self.capacity.size, np.inf)
        self.queries = max(float(self.items["queries"].to_numpy().sum()), 1.0)
        self.failed = self.items["failed"].to_numpy().astype(np.float64)
        self.rejected = self.items["rejected"].to_numpy().astype(np.float64)
        workers = self.items["worker"].to_pylist()
        self.group: Ints = np.array([self.reach.of_worker.get(w or "", -1) for w in workers], np.int64)
        self.site: Ints = np.array([need.site for need in self.reach.needs], np.int64)[self.streams.need]
        clusters = {name: c for c, name in enumerate(self.reach.world.cluster_names)}
        self.cluster: Ints = np.array([clusters[each.cluster] for each in self.reach.groups], np.int64)

    # who asks for what

    def _spans(self, resource: int, which: Bools | Ints, amount: Floats) -> None:
        """Some streams ask for so much of a resource while they last."""
        start_s, end_s = self.streams.open_s[which], self.streams.close_s[which]
        share = amount / self.capacity[resource] / self.runs
        self.asked[resource] += in_steps(start_s, end_s, share, self.edges)

    def way(self, site: int, cluster: int) -> Ints:
        """Links from a site to a cluster, in order."""
        row = self.routes.link[site * len(self.reach.world.cluster_names) + cluster]
        found: Ints = row[row >= 0]
        return found

    def _bound(self) -> None:
        """Streams load their worker and the links to it."""
        s = self.streams
        bps = 8.0 * s.rate_qps * s.size_bytes
        bound = np.flatnonzero(self.group >= 0)
        for g in np.unique(self.group[bound]).tolist():
            mine = bound[self.group[bound] == g]
            self._spans(self.links + g, mine, s.rate_qps[mine] * self.reach.share[s.need[mine], g])
            for site in np.unique(self.site[mine]).tolist():
                here = mine[self.site[mine] == site]
                for link in self.way(site, int(self.cluster[g])).tolist():
                    self._spans(link, here, bps[here])
        for link, name in enumerate(self.routes.names):
            if name in self.measured:
                self.asked[link] = np.maximum(self.asked[link], self.measured[name])

    def _lose(self, resource: int, which: Ints, queries: Floats) -> None:
        self.lost[resource] += queries.sum()
        self.since_s[resource] = min(self.since_s[resource], self.streams.open_s[which].min(initial=np.inf))

    # what was lost to what

    def limits(self) -> list[Limit]:
        """Of all queries together."""
        self._bound()
        reasons = self.items["reason"].to_numpy(zero_copy_only=False)
        refused = {code: np.flatnonzero(reasons == text) for code, text in REASONS.items() if text}
        self._too_full(refused[Violation.CAPACITY])
        self._no_way(refused[Violation.LINK])
        for code in (Violation.TASK, Violation.ACCURACY):
            self._unserved(refused[code], self.rejected)
        away = self._away(refused[Violation.DELAY])
        self._unserved(np.setdiff1d(refused[Violation.DELAY], away), self.rejected)
        self._down(np.concatenate([refused[Violation.DOWN], away, self._put_out()]), self.rejected)
        late = self._late()
        late = np.union1d(late, refused[Violation.POLICY])
        if late.size and (lost := float((self.failed + self.rejected)[late].sum())):
            self.others.append(described.policy(lost / self.queries, float(self.streams.open_s[late].min())))
        return [*self.others, *self._merged()]

    def _too_full(self, which: Ints) -> None:
        """Streams that the workers in reach had no room for count by these workers' capacities."""
        served, s = self.reach.served(), self.streams
        for need in np.unique(s.need[which]).tolist():
            mine = which[s.need[which] == need]
            able = np.flatnonzero(served[need])
            part = self.capacity[self.links + able] / self.capacity[self.links + able].sum()
            for g, share in zip(able.tolist(), part.tolist(), strict=True):
                amount = share * s.rate_qps[mine] * self.reach.share[need, g]
                self._spans(self.links + g, mine, amount)
                self._lose(self.links + g, mine, share * self.rejected[mine])

    def _put_out(self) -> Ints:
        """Of streams that had a worker, and were refused later, those whose node went down.

        The others count for their worker: it had no room when they were bound to it.
        """
        which = np.flatnonzero((self.rejected > 0.0) & (self.group >= 0))
        went = self._went_down(which)
        for g in np.unique(self.group[which[~went]]).tolist():
            mine = which[~went & (self.group[which] == g)]
            self._lose(self.links + g, mine, self.rejected[mine])
        return which[went]

    def _no_way(self, which: Ints) -> None:
        """Streams that no link had room for count for the fullest on the ways to workers in reach."""
        served, s = self.reach.served(), self.streams
        full = self.asked[: self.links].max(axis=1)
        for need in np.unique(s.need[which]).tolist():
            mine = which[s.need[which] == need]
            site = self.reach.needs[need].site
            ways = [self.way(site, int(self.cluster[g])) for g in np.flatnonzero(served[need]).tolist()]
            link = max(
                (link for way in ways for link in way.tolist()), key=lambda link: full[link], default=-1
            )
            if link >= 0:
                self._spans(link, mine, 8.0 * s.rate_qps[mine] * s.size_bytes[mine])
                self._lose(link, mine, self.rejected[mine])

    def _unserved(self, which: Ints, queries: Floats) -> None:
        """Streams that nobody could serve, however little there was to do, by application."""
        s = self.streams
        names = np.array([need.of for need in self.reach.needs])[s.need[which]]
        for of in dict.fromkeys(names.tolist()):
            mine = which[names == of]
            lost = float(queries[mine].sum()) / self.queries
            first_s = float(s.open_s[mine].min())
            when_s = None if first_s < 0.05 * self.scenario.duration_s else first_s
            needs = np.unique(s.need[mine]).tolist()
            self.others.append(
                described.unserved(self.reach, self.rooms, needs, Load(1.0, lost, when_s))._replace(
                    when_s=first_s
                )
            )

    def _away(self, which: Ints) -> Ints:
        """Streams that would be in time at a worker whose node is down, and nowhere else."""
        up_at, found = dict[str, bool](), np.zeros(which.size, dtype=np.bool_)
        changes = [each for each in self.scenario.timeline if isinstance(each, NodeChange)]
        deadline_s = self.items["deadline_s"].to_numpy()
        for n in np.argsort(self.streams.open_s[which], kind="stable").tolist() if changes else ():
            i = int(which[n])
            while changes and changes[0].at_s <= self.streams.open_s[i]:
                change = changes.pop(0)
                up_at[change.node] = change.up
            need = int(self.streams.need[i])
            kept = self.reach.able[need] & (self.reach.delay_s[need] <= deadline_s[i])
            nodes = {node for g in np.flatnonzero(kept).tolist() for node in self.reach.groups[g].nodes}
            found[n] = any(not up_at.get(node, True) for node in nodes)
        return which[found]

    def _down(self, which: Ints, queries: Floats) -> None:
        """Streams whose nodes were down."""
        downs = [x for x in self.scenario.timeline if isinstance(x, NodeChange) and not x.up]
        if which.size and queries[which].sum():
            lost, first_s = (
                float(queries[which].sum()) / self.queries,
                float(self.streams.open_s[which].min()),
            )
            node = max((x for x in downs if x.at_s <= first_s), key=lambda x: x.at_s, default=None)
            node = node or (downs[0] if downs else None)
            when_s = first_s if node is None else max(first_s, node.at_s)  # streams may be older than that
            self.others.append(described.down(None if node is None else node.node, lost, when_s))

    def _late(self) -> Ints:
        """Put down queries that were answered late; the streams for which nothing was too small."""
        late = np.flatnonzero((self.failed > 0.0) & (self.group >= 0))
        left = np.ones(late.size, dtype=np.bool_)
        steps = self._steps(late)
        if self.scenario.sharing != "none":
            for site, cluster in {(int(self.site[i]), int(self.cluster[self.group[i]])) for i in late}:
                way = self.way(site, cluster)
                here = left & (self.site[late] == site) & (self.cluster[self.group[late]] == cluster)
                if not way.size or not here.any():
                    continue
                full = self.asked[way][:, steps].max(axis=2)  # (way, late)
                link = way[full.argmax(axis=0)]
                over = here & (full.max(axis=0) >= FULL)
                for one in np.unique(link[over]).tolist():
                    mine = late[over & (link == one)]
                    self._lose(one, mine, self.failed[mine])
                left &= ~over
        for g in np.unique(self.group[late]).tolist():  # where queries wait for each other
            over = left & (self.group[late] == g) & (self.asked[self.links + g][steps].max(axis=1) >= NEAR)
            mine = late[over]
            self._lose(self.links + g, mine, self.failed[mine])
            left &= ~over
        went = left & self._went_down(late)
        self._down(late[went], self.failed)
        left &= ~went
        deadline_s = self.items["deadline_s"].to_numpy()[late]
        slow = left & (self.reach.delay_s[self.streams.need[late], self.group[late]] > deadline_s)
        self._unserved(late[slow], self.failed)
        unexplained: Ints = late[left & ~slow]
        return unexplained

    def _steps(self, which: Ints) -> Ints:
        """(N, 5) steps while streams lasted, from their opening to their end."""
        start, end = self.streams.open_s[which], self.streams.close_s[which]
        at = start[:, None] + np.linspace(0.0, 1.0, 5)[None, :] * (end - start)[:, None]
        return np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, STEPS - 1).astype(np.int64)

    def _went_down(self, which: Ints) -> Bools:
        """Streams during which a node of their group went down."""
        found = np.zeros(which.size, dtype=np.bool_)
        start, end = self.streams.open_s[which], self.streams.close_s[which]
        for change in self.scenario.timeline:
            if isinstance(change, NodeChange) and not change.up:
                on = np.array([change.node in group.nodes for group in self.reach.groups])
                found |= on[self.group[which]] & (start <= change.at_s) & (change.at_s <= end)
        return found

    # what is said

    def _merged(self) -> list[Limit]:
        """Links that are alike, and groups that are, are one limit."""
        names = [*self.routes.names, *(group.name for group in self.reach.groups)]
        share = self.asked.max(axis=1)
        worth = np.flatnonzero((self.lost > 0.0) | (share >= NEAR))
        order = sorted(worth.tolist(), key=lambda r: (-self.lost[r], -share[r], names[r]))
        families: dict[tuple[bool, str], list[int]] = {}
        for r in order:
            families.setdefault((r < self.links, re.sub(r"\d+", "#", names[r])), []).append(r)
        return [self._limit(mine, share) for mine in families.values()]

    def _limit(self, alike: Sequence[int], share: Floats) -> Limit:
        """Of the first of some that are alike."""
        first, lost = alike[0], float(self.lost[list(alike)].sum())
        when_s = when_over(self.asked[first], FULL, self.edges)
        if lost > 0.0 and when_s is None:
            when_s = float(self.since_s[list(alike)].min())
        load = Load(float(share[first]), lost / self.queries if lost else 0.0, when_s)
        if first < self.links:
            names = [self.routes.names[r] for r in alike]
            return described.link(self.scenario, names[0], float(self.capacity[first]), load, names)
        groups = [self.reach.groups[r - self.links] for r in alike]
        return described.workers(self.scenario, self.rooms, groups, load)
