"""A gateway at each site, one event after the other from one heap, each handled by its core."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from naive_grants import RENEW_S, Grants, Leases

from edgewise.core.dispatch.events import (
    Command,
    Event,
    Refuse,
    ReservedElsewhere,
    StreamClosed,
    StreamOpened,
)
from edgewise.core.dispatch.policy import Batch, DispatchPolicy
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import DECLARED, REASONS
from edgewise.core.grants import Ask
from edgewise.model.scenario import Scenario
from edgewise.model.topology import NodeChange
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.periods import CLOSED, OPENED, measured_for
from edgewise.sim.streams.tables import Outcome, Said

CODES = {text: code for code, text in REASONS.items()}
MESSAGES, RENEW = OPENED + 1, OPENED + 2  # last of what happens at one time


class Asked(NamedTuple):
    """A gateway's message reaches a worker.

    Attributes:
        loads: load of each stream that is to be granted; None gives it back.
        everything: they are all that the gateway has there.
    """

    site: int
    worker: int
    loads: dict[int, float | None]
    everything: bool = False


class Answered(NamedTuple):
    """A worker's answer reaches a gateway: which of the streams that were asked for do not fit."""

    asked: Asked
    refused: frozenset[int]
    others_qps: float


class Renewed(NamedTuple):
    """A gateway tells the workers of a cluster all that it has there, by worker and stream."""

    site: int
    cluster: int
    loads: dict[int, dict[int, float | None]]


Message: TypeAlias = Asked | Renewed | Answered


class NaiveSites(Simulation):
    """One run with a dispatch core at each site.

    Args:
        make: makes the policy of one gateway.
        scenario, seed, given: see `Simulation`.
    Attributes:
        cores: of each site; `core` is that of the first.
        refusals: bindings that a worker did not grant.
    """

    def __init__(
        self, scenario: Scenario, make: Callable[[], DispatchPolicy], seed: int, **given: Any
    ) -> None:
        super().__init__(scenario, make(), seed, **given)
        world, retry = self.world, scenario.retry_refused
        guard = self.core.guard  # one counts for all gateways
        others = [
            DispatchCore(world, make(), seed, retry_refused=retry, guard=guard) for _ in world.site_names[1:]
        ]
        self.cores, self.refusals = [self.core, *others], 0
        for core in others:
            core.stays.update(self.core.stays)
        self._leases = [Leases(core) for core in self.cores]
        self._grants = [Grants(float(capacity_qps)) for capacity_qps in world.capacity_qps]
        self._believed = [set[int]() for _ in self.cores]  # where others have something, as each has heard
        clusters = range(len(world.cluster_names))
        self._workers_of = [np.flatnonzero(world.cluster == c).tolist() for c in clusters]
        self._loads: dict[tuple[int, int], float] = {}  # asked for often
        self._declared = deque[Any]()  # of each period that gateways have yet to hear of
        for k in range(1, int(scenario.duration_s / RENEW_S) + 1):
            self._push(k * RENEW_S, RENEW, None)

    def finish(self) -> Outcome:
        """See `Simulation.finish`."""
        for core in self.cores[1:]:
            core.validate()
        return super().finish()

    def granted_qps(self, worker: int) -> float:
        """Load that a worker has granted."""
        return sum(sum(loads.values()) for loads in self._grants[worker].loads.values())

    def _openings_and_closings(self) -> Batch:
        """They take their turns with messages, one by one."""
        for stream in self.trace:
            self._push(stream.open_s, OPENED, StreamOpened(stream.open_s, stream))
            self._push(stream.close_s, CLOSED, StreamClosed(stream.close_s, stream.id))
        none = np.zeros(0, dtype=np.int64)
        return Batch(np.zeros(0), none, none)

    def _take(self, now_s: float, kind: int, what: Any) -> None:
        if kind == RENEW:
            self._renew(now_s)
        elif isinstance(what, StreamOpened):
            self._counts[0, min(int(now_s / self.scenario.window_s), self._windows - 1)] += 1
            self._told(what.stream.site, what)
            self._refuse_for_good(what.stream.site, what.stream.id, now_s)
        elif isinstance(what, StreamClosed):  # what it has sent is served
            core = self.cores[site := self.trace[what.stream_id].site]
            if what.stream_id in core.bindings or what.stream_id in core.refused:
                self.log.append(Said(now_s, core.handle(what)))
                self._settle(now_s, site, what.stream_id)
                self._leases[site].closed(what.stream_id)
        elif kind == MESSAGES:
            self._deliver(now_s, what)
        else:
            super()._take(now_s, kind, what)

    def _declared_bps(self) -> Any:
        """Noted here, and left out by `_hear`."""
        self._declared.append(np.stack([core.view().link[DECLARED] for core in self.cores]))
        return super()._declared_bps()

    def _hear(self) -> None:
        """Beside what is reserved, what other gateways' streams declare is not left of a link."""
        declared, measured = self._declared.popleft(), measured_for(self.periods, 0)
        for site, others_bps in enumerate(declared.sum(axis=0) - declared):
            told = measured.telemetry
            if told.links is not None:
                left = np.stack([np.maximum(told.links[0] - others_bps, 0.0), told.links[1]])
                told = replace(told, links=left)
            self._told(site, replace(measured, telemetry=told))

    def _told(self, site: int, event: Event) -> None:
        commands = self.cores[site].handle(event)
        self.carry_out(event.time_s, commands)
        for stream_id in dict.fromkeys(command.stream_id for command in commands):
            self._settle(event.time_s, site, stream_id)

    def carry_out(self, now_s: float, commands: list[Command]) -> None:
        super().carry_out(now_s, commands)
        for command in commands:
            if isinstance(command, Refuse):
                self.reason[command.stream_id] = CODES[command.reason]

    def _settle(self, now_s: float, site: int, stream_id: int) -> None:
        """Tell workers what was bound to them, and what is given back."""
        for told in self._leases[site].settle(stream_id):
            load_qps = self._load_qps(stream_id, told.worker) if isinstance(told, Ask) else None
            cluster = int(self.world.cluster[told.worker])
            self._send(now_s, site, cluster, [Asked(site, told.worker, {stream_id: load_qps})])

    def _renew(self, now_s: float) -> None:
        """Every gateway tells each worker all that it has there."""
        for site, core in enumerate(self.cores):
            loads: dict[int, dict[int, float | None]] = {}
            for i, w in core.bindings.items():
                loads.setdefault(w, {})[i] = self._load_qps(i, w)
            for cluster in range(len(self.world.cluster_names)):
                self._send(now_s, site, cluster, [Renewed(site, cluster, loads)])

    def _send(self, now_s: float, site: int, cluster: int, messages: Sequence[Message]) -> None:
        """Send messages between a gateway and workers of one cluster."""
        delay_s = float(self._links.delay_s[site, cluster])
        if delay_s < np.inf:
            self._push(now_s + delay_s, MESSAGES, messages)
            return
        for message in messages:
            if not isinstance(message, Renewed):
                self._lost(message if isinstance(message, Asked) else message.asked)

    def _deliver(self, now_s: float, messages: Sequence[Message]) -> None:
        answers = []
        for message in messages:
            if isinstance(message, Answered):
                self._reach_gateway(now_s, message)
            elif isinstance(message, Renewed):
                answers += [self._answer(now_s, asked) for asked in self._all_of(message)]
            elif self._alive[message.worker]:
                answers.append(self._answer(now_s, message))
            else:
                self._lost(message)
        if answers:
            site, worker = answers[0].asked.site, answers[0].asked.worker
            self._send(now_s, site, int(self.world.cluster[worker]), answers)

    def _all_of(self, told: Renewed) -> Iterator[Asked]:
        """What each worker is told; left out is who has granted nothing, where the gateway knows that."""
        for w in self._workers_of[told.cluster]:
            there = told.loads.get(w, {})
            news = there or w in self._believed[told.site] or any(self._grants[w].loads.values())
            if news and self._alive[w]:
                yield Asked(told.site, w, there, True)

    def _answer(self, now_s: float, asked: Asked) -> Answered:
        """A worker grants what fits."""
        grants, gateway = self._grants[asked.worker], self.world.site_names[asked.site]
        wanted = {str(i): load_qps for i, load_qps in asked.loads.items() if load_qps is not None}
        if asked.everything:
            refused = grants.renew(now_s, gateway, wanted)
        else:
            for i in asked.loads:
                grants.release(now_s, gateway, str(i))
            refused = [i for i, load_qps in wanted.items() if not grants.grant(now_s, gateway, i, load_qps)]
        return Answered(asked, frozenset(map(int, refused)), grants.others_qps(now_s, gateway))

    def _reach_gateway(self, now_s: float, answer: Answered) -> None:
        """Note what was granted; what was not is decided anew, now that the others' load is known."""
        site, worker, loads, everything = answer.asked
        core, leases = self.cores[site], self._leases[site]
        if everything or answer.refused:
            self._told(site, ReservedElsewhere(now_s, worker, answer.others_qps))
            (self._believed[site].add if answer.others_qps else self._believed[site].discard)(worker)
        for i in [i for i, load_qps in loads.items() if load_qps is not None]:
            if everything and core.bindings.get(i) != worker:
                continue
            if leases.answered(i, worker, granted=i not in answer.refused):
                self.refusals += 1
                self.carry_out(now_s, core.handle(StreamClosed(now_s, i)))
                self._told(site, StreamOpened(now_s, self.trace[i]))
                self._refuse_for_good(site, i, now_s)
            else:
                self._settle(now_s, site, i)

    def _refuse_for_good(self, site: int, stream_id: int, now_s: float) -> None:
        """The client of a stream that is over goes."""
        if self._leases[site].over(stream_id):
            self.cores[site].handle(StreamClosed(now_s, stream_id))

    def _lost(self, asked: Asked) -> None:
        """Nobody answers: what is bound stays so until the news of it arrives."""
        for i, load_qps in asked.loads.items():
            if load_qps is not None and not asked.everything:
                self._leases[asked.site].answered(i, asked.worker, granted=True)

    def _change_node(self, change: NodeChange) -> None:
        """A worker that starts again has granted nothing yet."""
        super()._change_node(change)
        if change.up:
            for w in np.flatnonzero(self.world.node == self.world.node_names.index(change.node)):
                self._grants[w] = Grants(self._grants[w].capacity_qps)

    def _load_qps(self, stream_id: int, worker: int) -> float:
        if (stream_id, worker) not in self._loads:
            stream = self.trace[stream_id]
            load_qps = self.core.loads.share_qps(worker, stream.rate_qps, stream.size_bytes)
            self._loads[stream_id, worker] = load_qps
        return self._loads[stream_id, worker]
