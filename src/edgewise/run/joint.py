"""One run of one or several kinds of work on the nodes of a scenario, and its tables.

Forbidden here: printing and files.
"""

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from edgewise.core.guard import Decided
from edgewise.core.holders import hold_records
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.run import graphs as split_models, jobs, pipelines, services, streams
from edgewise.run.shared import Joined, RunContext
from edgewise.run.tables import Columns, Make, SeedRun, Tables
from edgewise.run.workers import alone, pools
from edgewise.sim.clock import JointClock
from edgewise.sim.parts.jobs import OtherWork
from edgewise.splitting import GraphsToRun

KINDS: Mapping[str, Callable[[RunContext], Joined]] = {
    "streams": streams.joined,
    "services": services.joined,
    "pipelines": pipelines.joined,
    "graphs": split_models.joined,
    "jobs": jobs.joined,
}


@contextmanager
def unsearched() -> Iterator[None]:
    """Python does not look for garbage among what was there before: numba keeps a million objects."""
    mine = not gc.get_freeze_count()
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()


class JointRun:
    """One joint run of a scenario.

    Args:
        works: kinds of work that are run.
        chosen: what makes each policy, by decision, as `assigning.assigned` names them.
        trace: streams in place of drawn ones.
        check: validate what holds what after every moment.
        graphs: what is split, where it has been read already.
        other: work that is not simulated and holds nodes in place of workers.
    Attributes:
        joint: the clock, at the beginning.
        joined: the kinds of work, by name.
        parts: the same, on the clock.
        wires, reserved, holders, orchestrating: see `RunContext`.
    """

    @unsearched()
    def __init__(
        self,
        scenario: Scenario,
        works: Sequence[str],
        chosen: Mapping[str, Make],
        seed: int,
        trace: Sequence[Stream] | None = None,
        check: bool = False,
        graphs: GraphsToRun | None = None,
        other: OtherWork | None = None,
    ) -> None:
        run = RunContext(scenario, works, chosen, seed, trace, graphs, empty=other is not None)
        self.scenario, self.seed = scenario, seed
        self.wires, self.reserved, self.holders = run.wires, run.reserved, run.holders
        self.joined, self.plane = run.joined, run.plane
        for work in [each for each in KINDS if each in works]:
            if work == "services" and (workers := alone(run)) is not None:
                run.joined["workers"] = workers
            run.joined[work] = KINDS[work](run)
        self.parts = run.parts
        come_and_go = pools(run)
        self.orchestrating = run.orchestrating
        decided = [each.decided for each in (*run.joined.values(), come_and_go) if each is not None]
        self._decided = {decision: asked for each in decided for decision, asked in each.items()}
        parts: list[Any] = list(self.parts.values())
        parts += [come_and_go.part] if come_and_go is not None else []
        parts += [run.reserved] if run.reserved is not None else []  # it knows of the others' commands
        parts[:0] = [other] if other is not None else []
        nodes, lag_s = scenario.topology.nodes, scenario.telemetry.lag_s
        self.joint = JointClock(parts, run.plane, nodes, scenario.timeline, lag_s, check, run.holders)

    @unsearched()
    def run(self) -> dict[str, Tables]:
        """Go to the end; the tables of each kind of work."""
        self.joint.run()
        if self.wires is not None:
            self.wires.bring_up(math.inf)
        last_s = (
            0.0 if list(self.parts) == ["pipelines"] else self.scenario.duration_s
        )  # which end by themselves
        self.holders.finish(max(last_s, self.joint.now_s))
        return {work: each.tables() for work, each in self.joined.items() if each.tables is not None}

    def decided(self) -> dict[str, Decided]:
        """By decision how often its policy was to decide, and did not, so far."""
        return {decision: asked() for decision, asked in self._decided.items()}

    def use(self) -> Mapping[str, Columns]:
        """Columns of the tables of `report.use`, once it has run."""
        found = [each.use() for each in self.joined.values()]
        workers = [each["workers"] for each in found if "workers" in each]
        columns = workers[0] if workers else {}
        joined = {name: [row for each in workers for row in each[name]] for name in columns}
        links = {} if self.wires is None else self.wires.records()
        others = {name: table for each in found for name, table in each.items()}
        return others | {"holds": hold_records(self.holders.spans), "workers": joined, "links": links}


def joint_runs(
    scenario: Scenario,
    works: Sequence[str],
    chosen: Mapping[str, Make],
    seeds: Sequence[int],
    trace: Sequence[Stream] | None = None,
) -> Iterator[SeedRun]:
    """A run of each seed, in order; the first kind of work is the one that it is about."""
    graphs = None
    if "graphs" in works:
        graphs = split_models.graphs_to_run(scenario)
        chosen = {**chosen, "split": split_models.planned_once(chosen["split"])}
    for seed in seeds:
        other = jobs.other_work(scenario, seed) if tuple(works) == ("jobs",) else None
        run = JointRun(scenario, works, chosen, seed, trace, graphs=graphs, other=other)
        tables = run.run()
        about = tables.pop(works[0])
        yield SeedRun(*about, run.decided(), run.joint.decision_s(), beside=tables, use=run.use())
