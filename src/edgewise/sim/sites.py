"""A gateway at each site, as live: each binds by what it has heard; what a worker refuses is decided anew.

A message takes the mean one-way delay of its way. Queries of a stream flow as soon as it is bound: a grant is
a promise about load, not a lock. What a stream has sent before it moves is served where it went.
What happens between two events of the truth is played in one compiled loop, see `sim.streams.gateways`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.dispatch.events import (
    Bind,
    Command,
    Event,
    Refuse,
    Release,
    ReservedElsewhere,
    StreamClosed,
    StreamOpened,
)
from edgewise.core.dispatch.policy import CLOSE, OPEN, DispatchPolicy
from edgewise.core.dispatch.state import State
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import CODES, DECLARED, REASONS, Violation
from edgewise.core.grant_rules import NOBODY, others_qps
from edgewise.core.grants import RENEW_S, share_of_period
from edgewise.kernels.compiled import plain
from edgewise.model.scenario import Scenario
from edgewise.sim.period_loop import (
    ALL_TAKEN,
    PLAY,
    PLAY_CLOSINGS,
    REQUESTS,
    SERVE,
    THROUGH,
    Whole,
    go_through,
)
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.simulate import Simulation, next_period
from edgewise.sim.streams import desks, gateways
from edgewise.sim.streams.desk_steps import state_of
from edgewise.sim.streams.mail import HEARING
from edgewise.sim.streams.periods import COUNTED, HEARD_OF, ended_s
from edgewise.sim.streams.site_arrays import (
    BOUND,
    CARRIED,
    CLOSED,
    DECIDE,
    FULL,
    HEARD,
    LEFT,
    PLACE,
    PLAYED,
    REFUSED,
    UNDECIDED,
    UNREAD,
)
from edgewise.sim.streams.tables import Outcome, Said

Heeded = tuple[Event, list[Command]]
next_of = plain(gateways.next_of)


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


class SiteSimulation(Simulation):
    """One run with a dispatch core at each site.

    Args:
        make: makes the policy of one gateway.
        scenario, seed, given: see `Simulation`.
        note_all: fill `heeded`.
    Attributes:
        cores: of each site; `core` is that of the first.
        refusals: bindings that a worker did not grant.
        heeded: of each core, what it was told, and said.
    """

    def __init__(
        self,
        scenario: Scenario,
        make: Callable[[], DispatchPolicy],
        seed: int,
        note_all: bool = False,
        **given: Any,
    ) -> None:
        super().__init__(scenario, make(), seed, **given)
        world, retry = self.world, scenario.retry_refused
        guard = self.core.guard  # one counts for all gateways
        others = [
            DispatchCore(world, make(), seed, retry_refused=retry, guard=guard) for _ in world.site_names[1:]
        ]
        self.cores, self.refusals = [self.core, *others], 0
        self.heeded: list[list[Heeded]] = [[] for _ in self.cores]
        self._note_all = note_all
        cores = desks.cores_of([core.loads.state for core in self.cores])
        for s, core in enumerate(self.cores):
            known: State = state_of(cores, s)
            core.loads.keep_in(known)
            core.stays.update(self.core.stays)
        self._loops: dict[Any, Any] = {}
        self._decide_now, self._filled = (
            list[Any](),
            tuple[Any, ...](),
        )  # each site's score, and what a loop takes
        self._site = desks.site_of(
            cores, self.rows, world.capacity_qps, self._links.delay_s, self._alive,
            np.array([retry or bool(stream.source) for stream in self.trace], dtype=np.bool_),
            int(scenario.duration_s / RENEW_S), note_all,
        )  # fmt: skip
        self.periods = self._periods(len(self.cores))

    def finish(self) -> Outcome:
        """See `Simulation.finish`."""
        for core in self.cores[1:]:
            core.validate()
        self._count_windows()
        return super().finish()

    def measured_requests(self, now_s: float, load_qps: Floats) -> None:
        """See `Simulation.measured_requests`; each gateway books its own."""
        known = self._site.desks
        sites, workers = np.nonzero(load_qps != known.requests_qps)
        for site, w in zip(sites.tolist(), workers.tolist(), strict=True):
            known.requests_qps[site, w] = load_qps[site, w]
            both_qps = float(known.others_qps[site, w] + load_qps[site, w])
            self._told(site, ReservedElsewhere(now_s, w, both_qps))
        self.requests_qps = load_qps.sum(axis=0)

    def granted_qps(self, worker: int) -> float:
        """Load that a worker has granted."""
        return float(others_qps(self._site.granted, worker, NOBODY))

    def _play_until(self, time_s: float, including_closings: bool) -> None:
        """Let clients come and go, and messages arrive, up to `time_s`; at that time, clients only go."""
        if self._nothing_until(time_s):
            return
        scores, given = self._scores(time_s), UNDECIDED
        while True:
            why = self._play(scores, time_s, including_closings, given)
            written, given = self._read(), UNDECIDED
            if why == PLAYED:
                return
            if why == DECIDE:
                given = self._decide()
            elif why == FULL or not written:
                self._site = desks.doubled(self._site)

    def _play(self, scores: tuple[Any, ...], time_s: float, closings: bool, given: int) -> int:
        """See `exchange`; why it ends."""
        if self._together is None:
            what = self._site, self._events, self._played, time_s, closings, given
            why, self._played = self._loop_of(gateways.exchange, scores, 2, *what)(scores, *what)
        else:
            how = PLAY_CLOSINGS if closings else PLAY
            _, why = self._go(self._together, scores, how, time_s, given)
        return int(why)

    def _nothing_until(self, time_s: float) -> bool:
        """Whether nothing happens up to then: read without compiled code, to call which takes far longer."""
        known, figures = self._site.desks.figures, self._site.mail.figures
        if known[PLACE] >= 0 or figures[HEARING] > 0:
            return False
        next_s, _ = next_of(self._site, self._events, self._played)
        return bool(next_s > time_s)

    @property
    def _together(self) -> RequestSites | None:
        """Requests, if one loop serves them together with streams."""
        return self.requests if self.requests is not None and self.requests.rides else None

    def count_with(self, requests: RequestSites) -> None:
        """See `Simulation`."""
        super().count_with(requests)
        requests.ride = self._serve

    def _serve(self, to_s: float) -> int:
        """See `RequestSites.ride`."""
        assert self.requests is not None, "who calls it"
        scores = self._filled or desks.filled([])
        return self._go(self.requests, scores, SERVE, to_s)[1]

    def go_through_many(self, to_s: float) -> bool:
        """See `Simulation`; where Python has nothing to do at these moments."""
        requests = self._together
        if requests is None or requests.calm or self._note_all or any(core.heeds for core in self.cores):
            return False
        to_s = min(to_s, requests.end_s)
        if not next_period(self.periods)[0] < to_s:
            return False
        requests.stir(partial(self._through, requests, to_s))
        return True

    def _through(self, requests: RequestSites, to_s: float) -> float:
        scores = self._scores(to_s)
        while True:
            requests.wake()
            who, why = self._go(requests, scores, THROUGH, to_s)
            written = self._read()
            self._heard()
            if who == ALL_TAKEN:
                return ended_s(self.periods)
            if who == REQUESTS:
                requests.answer(why)
            elif why == DECIDE:
                at_s, what = next_period(self.periods)
                self._play_until(at_s, including_closings=what != COUNTED)
                scores = self._scores(to_s)
            elif why == FULL or (why == UNREAD and not written):
                self._site = desks.doubled(self._site)

    def _go(
        self, requests: RequestSites, scores: tuple[Any, ...], how: int, to_s: float, given: int = UNDECIDED
    ) -> tuple[int, int]:
        """See `go_through`; who needs Python, and why."""
        run, on, visits, (streams, carried, workers, ways, key, tally) = requests.given()
        assert on is not None, "they share links with streams"
        whole = Whole(
            self.periods, self._site, run, on, visits, streams, carried, workers, ways, key, tally,
            self.bound, self.reason, self.last_worker, requests.load_qps,
            share_of_period(self.periods.period_s),
        )  # fmt: skip
        what = whole, self._events, self._played, how, to_s, given
        who, why, self._played = self._loop_of(go_through, scores, 3, *what)(scores, *what)
        return who, why

    def _heard(self) -> None:
        """Cores have heard of periods, and booked requests, in compiled code."""
        p = self.periods
        if number := int(p.many[HEARD_OF]):
            for core in self.cores:
                core.loads.is_measured(number * p.period_s)
                core.now_s = max(core.now_s, number * p.period_s + p.lag_s)
        self.requests_qps = self._site.desks.requests_qps.sum(axis=0)

    def _loop_of(self, loop: Any, scores: tuple[Any, ...], answers: int, *given: Any) -> Any:
        """The loop that takes so many scores; to ask for its types takes a millisecond."""
        key = loop, len(scores)
        if key not in self._loops:
            self._loops[key] = desks.loop_for(loop, len(scores), answers, *given)
        return self._loops[key]

    def _scores(self, until_s: float) -> tuple[Any, ...]:
        """Compiled scores that decide until then; which site uses which is written into `Cores.score`."""
        cores, decide = self._site.cores, [core.compiled_score(until_s) for core in self.cores]
        cores.measured_s[:] = [core.loads.state.measured_s for core in self.cores]
        if decide != self._decide_now:
            self._decide_now, found = decide, [*dict.fromkeys(each for each in decide if each is not None)]
            which = [found.index(each) if each is not None else NOBODY for each in decide]
            cores.score[:] = [each if each < desks.SCORES else NOBODY for each in which]
            self._filled = desks.filled(found)
        return self._filled

    def _decide(self) -> int:
        """Have a core decide the stream that the loop waits for."""
        known, cores = self._site.desks, self._site.cores
        i = int(known.figures[PLACE])
        stream = self.trace[i]
        (command,) = self.cores[stream.site].handle(StreamOpened(float(cores.now_s[stream.site]), stream))
        if isinstance(command, Bind):
            known.why[i] = 0
            return command.worker
        assert isinstance(command, Refuse)
        known.why[i] = CODES[command.reason]
        return NOBODY

    def _read(self) -> int:
        """Carry out what the loop has written down; how much that was."""
        known, figures = self._site.desks, self._site.desks.figures
        written, questions, refusals, _, carried = figures.tolist()
        self.core.guard.questions += questions
        self.refusals += refusals
        figures[:PLACE] = figures[CARRIED] = 0
        for core, now_s in zip(self.cores, self._site.cores.now_s.tolist(), strict=True):
            core.now_s = max(core.now_s, now_s)
        if not written:
            return 0
        what, time_s = known.what[:, :written].copy(), known.time_s[:written].copy()
        said = what[0] <= CLOSED
        kind = np.where(what[0, said] <= REFUSED, OPEN, CLOSE)
        self.log.append(Said(float(time_s[0]), [], (time_s[said], kind, *what[2:, said])))
        self._carry(time_s[carried:], what[:, carried:])
        for row in zip(time_s.tolist(), known.qps[:written].tolist(), *what.tolist(), strict=True):
            self._book(*row)
        return int(written)

    def _book(self, at_s: float, qps: float, what: int, site: int, i: int, worker: int, why: int) -> None:
        """Bring a core's books up to what the loop has done."""
        core = self.cores[site]
        if what in (BOUND, REFUSED):
            core.books.took(self.rows, i, at_s, worker, why)
        elif what != HEARD:
            core.books.forget(i)
        if not self._note_all:
            return
        event: Event = StreamClosed(at_s, i)
        commands: list[Command] = [Release(i, worker)] if worker >= 0 else []
        if what in (BOUND, REFUSED):
            event = StreamOpened(at_s, self.trace[i])
            commands = [Bind(i, worker) if worker >= 0 else Refuse(i, REASONS[Violation(why)])]
        elif what == HEARD:
            event, commands = ReservedElsewhere(at_s, worker, qps), []
        self.heeded[site].append((event, commands))

    def _carry(self, time_s: Any, what: Any) -> None:
        """Let streams send to where they were bound; what they have sent goes where it went."""
        codes, begun = what[0].tolist(), 0
        for k in [*(k for k, code in enumerate(codes) if code == LEFT), len(codes)]:
            self._take_up(codes[begun:k], time_s[begun:k], what[:, begun:k])
            if k < len(codes):
                self.carrier.advance(float(time_s[k]))
                self.carrier.move(int(what[2, k]), int(self.bound[what[2, k]]), float(time_s[k]))
            begun = k + 1

    def _count_windows(self) -> None:
        """Count in its window what the loop has done: streams opened, bound and refused."""
        opened = self._events.kind[: self._played] == OPEN
        self._note(0, self._events.time_s[: self._played][opened])
        if played := [said.played for said in self.log if said.played]:
            time_s, kind, _, worker, _ = map(np.concatenate, zip(*played, strict=True))
            self._note(1, time_s[(kind == OPEN) & (worker >= 0)])
            self._note(2, time_s[(kind == OPEN) & (worker < 0)])

    def _note(self, row: int, time_s: Floats) -> None:
        """Count in its window what happened at each of some times."""
        if time_s.size:
            window = np.minimum(time_s / self.scenario.window_s, self._windows - 1).astype(int)
            self._counts[row] += np.bincount(window, minlength=self._windows)

    def _take_up(self, codes: list[int], time_s: Any, what: Any) -> None:
        """Streams that were bound and refused; none of them twice."""
        if REFUSED in codes:
            refused = what[0] == REFUSED
            self.bound[what[2, refused]] = NOBODY
            self.reason[what[2, refused]] = what[4, refused]
        if BOUND in codes:
            bound = what[0] == BOUND
            self.bound[what[2, bound]] = what[3, bound]
            self._attach(what[2, bound], time_s[bound])

    def _declared_bps(self) -> Floats:
        return np.ascontiguousarray(self._site.cores.link[:, DECLARED])

    def _told(self, site: int, event: Event) -> None:
        commands = self.cores[site].handle(event)
        if self._note_all:
            self.heeded[site].append((event, commands))
        if not commands:
            return
        self.carry_out(event.time_s, commands)
        bindings, refused = self.cores[site].bindings, self.cores[site].refused
        desks.rebind(self._site, site, bindings, {i: CODES[why] for i, why in refused.items()})
        for stream_id in dict.fromkeys(command.stream_id for command in commands):
            self._site = desks.settled(self._site, event.time_s, site, stream_id)

    def carry_out(self, now_s: float, commands: list[Command]) -> None:
        """See `Simulation.carry_out`."""
        super().carry_out(now_s, commands)
        for command in commands:
            if isinstance(command, Refuse):
                self.reason[command.stream_id] = CODES[command.reason]

    def begin_worker(self, w: int, now_s: float) -> None:
        """See `Simulation.begin_worker`; it has granted nothing yet."""
        desks.forget_all(self._site.granted, w)
        super().begin_worker(w, now_s)
