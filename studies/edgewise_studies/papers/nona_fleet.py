"""A public instance for Nona: five unlike machines serve a model that two of them cannot hold.

The machines, their memory and their measured bandwidth are those of a report to exo, an engine that serves a
model from several machines (exo-explore/exo, issue 957): making a token reads every layer once, and so takes
the bytes of a machine's layers over its bandwidth. A query here is one such pass through 40 layers of 1 GB.
The report gives neither message sizes nor links: 16 KB and 10 Gbit/s are assumed, and matter little.
"""

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Key
from edgewise.core.split import QueryClass, SplitPolicy, SplitView, SplitWork
from edgewise.model.graphs import ServerGroup
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import split_policy
from edgewise.policies.split.layout import LayoutProgram, Stage, joined, layout_program
from edgewise.policies.split.layout_optimum import optimise_layout
from edgewise.seeds import VALIDATION
from edgewise.sim.parts.graphs import simulate_split
from edgewise_studies.claims import at_most, measured
from edgewise_studies.run import Run, chart, whiskers

GB = 1e9
MEMORY_GB = {"laptop": 36, "studio-a": 96, "studio-b": 64, "studio-c": 96, "studio-d": 36}
BANDWIDTH_GBPS = {"laptop": 264.4, "studio-a": 344.0, "studio-b": 308.7, "studio-c": 351.2, "studio-d": 177.6}
LAYERS, LAYER_GB = 40, 1.0
MESSAGE_BYTES, LINK_BPS = 16_384.0, 1e10
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
QUERIES, QUICK_QUERIES = 10_000, 1_000
BY_CAPACITY = (4, 12, 8, 12, 4)  # layers of each machine in proportion to its memory, as exo gives them
PIECES = 8  # of equal size, for the plan of `nona-layout`: with 40 its placements are too many to certify
PLAN_GAP = 0.25  # certified at every load within seconds; 1 % is not within minutes at high loads
BASELINES = ("by-capacity", "by-bandwidth", "whole-soonest")
OURS = ("nona-layout", "cut-once")
BETTER, EQUAL = 1 / 1.01, 1.01
CLAIMS = {
    "fleet-layout": "five unlike machines: nona-layout is at no load more than 1 % slower",
    "fleet-cut": "five unlike machines: cut-once is at every load more than 1 % faster",
    "fleet-cut-tail": "five unlike machines: its 99 % quantile at load 0.7 is no longer",
}


@cache
def machines(pieces: int = LAYERS) -> LayoutProgram:
    """The model in pieces of equal size over the machines, one pass a second."""
    tasks = tuple(Task(f"piece-{i}", LAYERS / pieces * LAYER_GB * GB) for i in range(pieces))
    edges = tuple(Edge(a.name, b.name, MESSAGE_BYTES) for a, b in itertools.pairwise(tasks))
    groups = [ServerGroup(name, 1, gbps * GB) for name, gbps in BANDWIDTH_GBPS.items()]
    names = list(BANDWIDTH_GBPS)
    links = {(a, b): LINK_BPS for i, a in enumerate(names) for b in names[i + 1 :]}
    return layout_program([QueryClass(TaskGraph("model", tasks, edges), 1.0)], joined(groups, links))


def at_load(load: float, pieces: int = LAYERS) -> LayoutProgram:
    """As many passes as keep all machines busy to `load`, were the work spread by their bandwidth."""
    rate_qps = load * sum(BANDWIDTH_GBPS.values()) / (LAYERS * LAYER_GB)
    return machines(pieces).with_rates([rate_qps])


def whole_on() -> Ints:
    """Machines whose memory holds the whole model."""
    return np.flatnonzero(np.array(list(MEMORY_GB.values())) >= LAYERS * LAYER_GB)


def within_memory(program: LayoutProgram) -> LayoutProgram:
    """Without the placements that end on a machine which cannot hold the model: each then lacks one piece."""
    last = program.stages[-1]
    keep = np.isin(last.sink, whole_on())
    kept = Stage(last.job, *(getattr(last, name)[keep] for name in Stage._fields[1:]))
    return LayoutProgram(
        program.classes, program.layout, (*program.stages[:-1], kept), program.capacity, program.pooled
    )


def slowest_stage_s(layers: Sequence[int]) -> float:
    """What limits a pipeline with so many layers on each machine."""
    return max(n * LAYER_GB / gbps for n, gbps in zip(layers, BANDWIDTH_GBPS.values(), strict=True))


@cache
def by_bandwidth() -> tuple[int, ...]:
    """The fastest pipeline within the memory: layers one by one where the stage stays shortest."""
    gbps, most = np.array(list(BANDWIDTH_GBPS.values())), np.array(list(MEMORY_GB.values())) / LAYER_GB
    layers = np.zeros(len(gbps), int)
    for _ in range(LAYERS):
        layers[np.argmin(np.where(layers < most, (layers + 1) / gbps, np.inf))] += 1
    return tuple(layers.tolist())


class Pipeline:
    """Every query takes the machines in their order, each for its layers."""

    def __init__(self, layers: Sequence[int]) -> None:
        self.name = "pipeline"
        self.servers = np.repeat(np.arange(len(layers)), layers)

    def reset(self, program: SplitWork, key: Key) -> None:
        """Nothing to learn."""

    def decide(self, view: SplitView) -> Ints:
        """See `SplitPolicy`."""
        return self.servers


class CutOnce:
    """Whole, or cut into two pieces, where the query would finish first: `cut-once`, or never cut.

    Args:
        cuts: after how many layers it may be cut.
    """

    def __init__(self, cuts: Sequence[int]) -> None:
        self.name = "cut-once" if cuts else "whole-soonest"
        big, gbps, memory = whole_on(), list(BANDWIDTH_GBPS.values()), list(MEMORY_GB.values())
        ways = [(LAYERS, b, b) for b in big.tolist()] + [
            (cut, a, b)
            for cut in cuts
            for a in range(len(gbps))
            for b in big.tolist()
            if a != b and cut * LAYER_GB < min(memory[a], LAYERS * LAYER_GB)
        ]
        self.cut, self.first, self.second = np.array(ways).T
        speed = np.array(gbps) / LAYER_GB
        self.first_s, self.second_s = self.cut / speed[self.first], (LAYERS - self.cut) / speed[self.second]
        self.send_s = np.where(self.first == self.second, 0.0, 8.0 * MESSAGE_BYTES / LINK_BPS)

    def reset(self, program: SplitWork, key: Key) -> None:
        """Nothing to learn."""

    def decide(self, view: SplitView) -> Ints:
        """See `SplitPolicy`."""
        wait_s = view.ledger.work_s
        there_s = wait_s[self.first] + self.first_s + self.send_s
        best = int(np.argmin(np.maximum(there_s, wait_s[self.second]) + self.second_s))
        placed: Ints = np.where(np.arange(LAYERS) < self.cut[best], self.first[best], self.second[best])
        return placed


def made(name: str, load: float) -> tuple[SplitPolicy, LayoutProgram]:
    """A policy, and the program that it places."""
    if name == "nona-layout":
        program = within_memory(at_load(load, PIECES))
        return split_policy(name, program, optimise_layout(program, PLAN_GAP)), program
    if name in ("by-capacity", "by-bandwidth"):
        return Pipeline(BY_CAPACITY if name == "by-capacity" else by_bandwidth()), at_load(load)
    return CutOnce(range(1, LAYERS) if name == "cut-once" else ()), at_load(load)


def times_s(name: str, load: float, queries: int, seeds: Sequence[int]) -> list[Floats]:
    """Completion times of each seed; all policies meet the same queries."""
    policy, program = made(name, load)
    return [simulate_split(policy, program, queries, seed).settled().time_s for seed in seeds]


def fleet(run: Run) -> None:
    """Means over load and a tail, against the baseline that is best on validation seeds at each load."""
    queries, loads = (QUICK_QUERIES, (0.5, 0.7)) if run.quick else (QUERIES, LOADS)
    chosen = range(VALIDATION.start, VALIDATION.start + 2)
    rivals = {
        load: run.rival(
            {name: [-t.mean() for t in times_s(name, load, queries, chosen)] for name in BASELINES}, chosen
        )
        for load in loads
    }
    times = {
        (name, load): times_s(name, load, queries, run.seeds)
        for name in (*BASELINES, *OURS)
        for load in loads
    }
    means = {key: np.array([t.mean() for t in found]) for key, found in times.items()}
    for policy, id, most in (("nona-layout", "fleet-layout", EQUAL), ("cut-once", "fleet-cut", BETTER)):
        ratios = {load: means[policy, load] / means[rivals[load], load] for load in loads}
        worst = max(loads, key=lambda load, ratios=ratios: float(ratios[load].mean()))
        words = "; ".join(f"{load}: {ratios[load].mean():.3f} of {rivals[load]}" for load in loads)
        run.claim(id, measured(ratios[worst], f"load {worst}, the worst ({words})"), at_most(most))
    ours, theirs = (
        np.array([np.quantile(t, 0.99) for t in times[name, 0.7]]) for name in ("cut-once", rivals[0.7])
    )
    run.claim("fleet-cut-tail", measured(ours / theirs, f"against {rivals[0.7]}"), at_most(EQUAL))
    run.figure("fleet", fleet_figure(loads, means))


def fleet_figure(loads: Sequence[float], means: dict[tuple[str, float], Floats]) -> Figure:
    """Mean time of a pass over load, with 95 % intervals; log scale."""
    title, below = "five unlike machines: a pass through 40 layers", "load, as a share of all their bandwidth"
    with chart(7.0, 4.2, title, below, "seconds, mean", columns=3) as (figure, axes):
        for name in (*BASELINES, *OURS):
            rows = [means[name, load] for load in loads]
            whiskers(axes, loads, rows, marker="o", markersize=3, label=name)
        axes.set_yscale("log")
        axes.set_ylim(top=3.0)
    return figure
