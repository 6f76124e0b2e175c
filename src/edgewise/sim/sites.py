"""A gateway at each site, as live: each binds by what it has heard; what a worker refuses is decided anew.

A message takes the mean one-way delay of its way. Queries of a stream flow as soon as it is bound: a grant is
a promise about load, not a lock. A stream that moves leaves behind what it has sent and was not served yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edgewise.core.dispatch.events import (
    Command,
    Event,
    Measured,
    Refuse,
    ReservedElsewhere,
    StreamClosed,
    StreamOpened,
    Tick,
)
from edgewise.core.dispatch.policy import Batch, DispatchPolicy
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import DECLARED, REASONS
from edgewise.core.grants import Ask, Grants, Leases
from edgewise.model.scenario import Scenario
from edgewise.model.topology import NodeChange
from edgewise.sim.simulate import CLOSED, NEWS, OPENED, Simulation
from edgewise.sim.streams.tables import Outcome, Said

CODES = {text: code for code, text in REASONS.items()}
MESSAGES, RENEW = OPENED + 1, OPENED + 2  # last of what happens at one time
RENEW_S = 1.0  # a gateway tells each worker so often all that it has there


def simulation_of(
    scenario: Scenario, make: Callable[[], DispatchPolicy], seed: int, **given: Any
) -> Simulation:
    """A run of a scenario, with as many gateways as it says.

    Args:
        make: makes the policy of one gateway.
        given: see `Simulation`.
    """
    if scenario.streams.gateways == "per_site":
        return SiteSimulation(scenario, make, seed, **given)
    return Simulation(scenario, make(), seed, **given)


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


class Heard(NamedTuple):
    """News for the gateway of one site."""

    site: int
    event: Event


class SiteSimulation(Simulation):
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
        others = [DispatchCore(world, make(), seed, retry_refused=retry) for _ in world.site_names[1:]]
        self.cores, self.refusals = [self.core, *others], 0
        self._leases = [Leases(core.bindings) for core in self.cores]
        self._grants = [Grants(float(capacity_qps)) for capacity_qps in world.capacity_qps]
        self._loads: dict[tuple[int, int], float] = {}  # asked for often
        for k in range(1, int(scenario.duration_s / RENEW_S) + 1):
            self._push(k * RENEW_S, RENEW, None)

    def finish(self) -> Outcome:
        """See `Simulation.finish`."""
        for core in self.cores[1:]:
            core.validate()
            self.core.faults.update(core.faults)
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
        elif isinstance(what, StreamClosed):  # what it has sent is served
            site = self.trace[what.stream_id].site
            self.log.append(Said(now_s, self.cores[site].handle(what)))
            self._settle(now_s, site, what.stream_id)
        elif isinstance(what, Heard):
            self._told(*what)
        elif kind == MESSAGES:
            self._deliver(now_s, what)
        else:
            super()._take(now_s, kind, what)

    def _handle(self, event: Event) -> None:
        """News and the beginning of a window are for every gateway."""
        for site in range(len(self.cores)):
            self._told(site, event)
        if isinstance(event, Tick):
            self._note_active()

    def _report(self, measured: Measured) -> None:
        """Beside what is reserved, what other gateways' streams declare is not left of a link."""
        if (links := measured.telemetry.links) is None:
            super()._report(measured)
            return
        declared = np.stack([core.view().link[DECLARED] for core in self.cores])
        for site, others_bps in enumerate(declared.sum(axis=0) - declared):
            left = np.stack([np.maximum(links[0] - others_bps, 0.0), links[1]])
            event = replace(measured, telemetry=replace(measured.telemetry, links=left))
            self._push(measured.time_s, NEWS, Heard(site, event))

    def _told(self, site: int, event: Event) -> None:
        commands = self.cores[site].handle(event)
        self._carry_out(event.time_s, commands)
        for stream_id in dict.fromkeys(command.stream_id for command in commands):
            self._settle(event.time_s, site, stream_id)

    def _carry_out(self, now_s: float, commands: list[Command]) -> None:
        super()._carry_out(now_s, commands)
        for command in commands:
            if isinstance(command, Refuse):
                self.reason[command.stream_id] = CODES[command.reason]

    def _settle(self, now_s: float, site: int, stream_id: int) -> None:
        """Tell workers what was bound to them, and what is given back."""
        for told in self._leases[site].settle(stream_id):
            load_qps = self._load_qps(stream_id, told.worker) if isinstance(told, Ask) else None
            self._send(now_s, site, [Asked(site, told.worker, {stream_id: load_qps})])

    def _renew(self, now_s: float) -> None:
        """Every gateway tells all that it has to each worker of which anybody has anything."""
        taken = [w for w, grants in enumerate(self._grants) if any(grants.loads.values())]
        for site, core in enumerate(self.cores):
            loads: dict[int, dict[int, float | None]] = {w: {} for w in taken}
            for i, w in core.bindings.items():
                loads.setdefault(w, {})[i] = self._load_qps(i, w)
            clusters = self.world.cluster
            for cluster in dict.fromkeys(clusters[w] for w in loads):
                there = {w: each for w, each in loads.items() if clusters[w] == cluster}
                self._send(now_s, site, [Asked(site, w, each, True) for w, each in there.items()])

    def _send(self, now_s: float, site: int, messages: Sequence[Asked | Answered]) -> None:
        """Send messages between a gateway and workers of one cluster."""
        worker = messages[0].worker if isinstance(messages[0], Asked) else messages[0].asked.worker
        delay_s = float(self._links.delay_s[site, self.world.cluster[worker]])
        if delay_s < np.inf:
            self._push(now_s + delay_s, MESSAGES, messages)
            return
        for message in messages:
            self._lost(message if isinstance(message, Asked) else message.asked)

    def _deliver(self, now_s: float, messages: Sequence[Asked | Answered]) -> None:
        answers = []
        for message in messages:
            if isinstance(message, Answered):
                self._reach_gateway(now_s, message)
            elif self._alive[message.worker]:
                answers.append(self._answer(now_s, message))
            else:
                self._lost(message)
        if answers:
            self._send(now_s, answers[0].asked.site, answers)

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
        for i in [i for i, load_qps in loads.items() if load_qps is not None]:
            if everything and core.bindings.get(i) != worker:
                continue
            if leases.answered(i, worker, granted=i not in answer.refused):
                self.refusals += 1
                self._carry_out(now_s, core.handle(StreamClosed(now_s, i)))
                self._told(site, StreamOpened(now_s, self.trace[i]))
            else:
                self._settle(now_s, site, i)

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
            load_qps = self.core.share_qps(worker, stream.rate_qps, stream.size_bytes)
            self._loads[stream_id, worker] = load_qps
        return self._loads[stream_id, worker]
