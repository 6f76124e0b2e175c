"""Nona, N1 to N4: splitting DAG queries over servers, against what it is compared with.

N1 completion time over load, N2 over link capacity and server power, N3 predicted against simulated,
N4 size and solve time; and five unlike machines of a public report (`nona_fleet`). `SETTING` is frozen; the
best baseline of each load and the share of free servers of `nona-free` are chosen on validation seeds.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from edgewise.arrays import Floats
from edgewise.policies.split import QueryClass, SplitProgram, blind, build_program, contract, equal, optimise
from edgewise.policies.split.optimum import mean_work_s
from edgewise.policies.split.policy import split_policy
from edgewise.profiling.dags import light_file, task_graph
from edgewise.profiling.gpt2 import gpt2
from edgewise.seeds import VALIDATION
from edgewise.sim.parts.graphs import simulate_split, tune_share
from edgewise_studies.claims import at_least, at_most, exact, measured, within
from edgewise_studies.frozen import setting_text
from edgewise_studies.papers import nona_fleet
from edgewise_studies.papers.nona_figures import link_figure, load_figure
from edgewise_studies.run import Run, reproduction

SETTING: dict[str, Any] = {
    "servers": 10,
    "power_ops": 1e11,
    "loads": [0.1, 0.3, 0.5, 0.7, 0.9],
    "workloads": {
        "resnet50": {"models": ["resnet50"], "link_bps": 1e10, "queries": 15_000},
        "inception": {"models": ["inception-v1"], "link_bps": 1e10, "queries": 6_000},
        "gpt2": {"models": ["gpt2"], "link_bps": 1e11, "queries": 2_000},
        "mix": {
            "models": ["alexnet", "resnet50", "densenet121", "vgg19", "gpt2"],
            "link_bps": 1e11,
            "queries": 5_000,
        },
    },
    "rule": "least-loaded",
}
BASELINES = (
    "whole-random", "whole-round-robin", "whole-shortest-queue", "whole-two-choices", "whole-least-loaded",
    "scatter", "equal", "blind", "earliest-finish",
)  # fmt: skip
OURS = ("nona", "nona-queues", "nona-free")
QUEUED = ("nona-queues", "nona-free")  # their formula knows servers and bursts
NOISE = 1.01  # a ratio up to this counts as equal
BISECTIONS = 8  # steps of a capacity: 0.4 points of load
DELAYS = (1.02, 1.2)  # times the time of a whole query alone: at which delay capacity is compared
LIGHT = 0.3  # load at which splitting has room
QUICK_LOADS, QUICK_WORKLOADS = (0.1, LIGHT, 0.5, 0.9), ("gpt2",)  # the fewest queries
QUICK_QUERIES, LINK_QUERIES = 1_000, 6_000
PAPER = 350.0
N3_LOADS = (0.1, 0.5, 0.9)
N3_MODELS = ("resnet50", "gpt2")
MANY = 20  # times as many servers: nobody waits for one


@cache
def contracted(name: str) -> QueryClass:
    """A network, contracted, one query a second."""
    graph = task_graph(gpt2(), name) if name == "gpt2" else task_graph(light_file(name), name)
    return QueryClass(contract(graph).graph, 1.0)


@cache
def one_qps(workload: str, servers: int, queues: bool) -> SplitProgram:
    """A workload with one query of each class a second; enumerated once."""
    what = SETTING["workloads"][workload]
    classes = [contracted(name) for name in what["models"]]
    return build_program(classes, servers, SETTING["power_ops"], what["link_bps"], queues=queues)


def program_of(workload: str, load: float, servers: int | None = None, queues: bool = False) -> SplitProgram:
    """Classes of equal rates that keep the servers of the setting busy to `load`."""
    count = servers or SETTING["servers"]
    rate_qps = load * full_rate_qps(one_qps(workload, count, False))
    base = one_qps(workload, count, queues)
    return base.with_rates([rate_qps] * len(base.classes))


def full_rate_qps(program: SplitProgram) -> float:
    """Rate of each class, all equal, at which the setting's servers are just busy."""
    work = sum(task.work_ops for job in program.classes for task in job.graph.tasks)
    return float(SETTING["servers"] * program.power_ops / work)


@dataclass
class Study:
    """One workload: programs, shares and simulated means, each computed once.

    Attributes:
        queries: of each run.
        shares: load → share of the free servers, chosen on validation seeds.
        means, p99: (policy, load) → (seeds,) of the completion times in seconds.
        predicted: (policy, load) → the formula's mean.
        rivals: load → best baseline on validation seeds.
        probed: (policy, load, seed) → mean, for `capacity`.
    """

    name: str
    queries: int
    shares: dict[float, float] = field(default_factory=dict)
    means: dict[tuple[str, float], Floats] = field(default_factory=dict)
    p99: dict[tuple[str, float], Floats] = field(default_factory=dict)
    predicted: dict[tuple[str, float], float] = field(default_factory=dict)
    rivals: dict[float, str] = field(default_factory=dict)
    probed: dict[tuple[str, float, int], float] = field(default_factory=dict)

    def simulate(
        self, policy: str, load: float, seeds: Sequence[int], queries: int = 0
    ) -> tuple[Floats, Floats]:
        """(seeds,) means and 99 % quantiles."""
        program = program_of(self.name, load, queues=policy in QUEUED)
        made = split_policy(policy, program, share=self.share(load))
        self.predicted[policy, load] = made.plan.forecast.mean_s if made.plan else np.nan
        runs = [simulate_split(made, program, queries or self.queries, seed).settled() for seed in seeds]
        times = [run.time_s for run in runs]
        return np.array([t.mean() for t in times]), np.array([np.quantile(t, 0.99) for t in times])

    def share(self, load: float) -> float:
        """That of the nearest load for which one was chosen; 0 before any was."""
        return self.shares[min(self.shares, key=lambda known: abs(known - load))] if self.shares else 0.0

    def choose(self, run: Run, loads: Sequence[float]) -> None:
        """Share and rival of each load, on validation seeds."""
        seeds = range(VALIDATION.start, VALIDATION.start + 2)
        for load in loads:
            self.shares[load] = tune_share(program_of(self.name, load, queues=True), self.queries, seeds)
            found = {name: -self.simulate(name, load, seeds)[0] for name in BASELINES}
            self.rivals[load] = run.rival(found, seeds)

    def measure(self, seeds: Sequence[int], loads: Sequence[float]) -> None:
        """Every policy at every load; all meet the same queries."""
        for load in loads:
            for name in (*OURS, *BASELINES):
                self.means[name, load], self.p99[name, load] = self.simulate(name, load, seeds)

    def ratios(self, policy: str, load: float, rival: str | None = None) -> Floats:
        """(seeds,) mean of a policy over that of the best baseline."""
        return self.means[policy, load] / self.means[rival or self.rivals[load], load]

    def worst(self, policy: str, loads: Sequence[float]) -> float:
        """The load at which a policy does worst against the best baseline."""
        return max(loads, key=lambda load: float(self.ratios(policy, load).mean()))

    def capacity(self, policy: str, seed: int, delay: float) -> float:
        """Largest load with a mean of at most `delay` times that of a whole query alone (bisection)."""
        alone_s = mean_work_s(program_of(self.name, 0.5))
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if (policy, middle, seed) not in self.probed:
                found = self.simulate(policy, middle, [seed], self.queries // 2)[0]
                self.probed[policy, middle, seed] = float(found[0])
            good = self.probed[policy, middle, seed] <= delay * alone_s
            low, high = (middle, high) if good else (low, middle)
        return low


def n1(run: Run, study: Study, loads: Sequence[float]) -> None:
    """Ratios at fixed load, and capacity at fixed delay."""
    name = study.name
    for policy, id in (("nona-free", "n1-never-worse"), ("nona", "n1-paper-never-worse")):
        load = study.worst(policy, loads)
        detail = f"ratio of means at load {load}, the worst; best baseline there: {study.rivals[load]}"
        run.claim(f"{id}-{name}", measured(study.ratios(policy, load), detail), at_most(NOISE))
    detail = f"load {LIGHT}, against {study.rivals[LIGHT]}, share {study.shares[LIGHT]}"
    run.claim(f"n1-better-{name}", measured(study.ratios("nona-free", LIGHT), detail), at_most(1 / NOISE))
    tail = study.p99["nona-free", LIGHT] / study.p99[study.rivals[LIGHT], LIGHT]
    run.claim(f"n1-tail-{name}", measured(tail, detail), at_most(NOISE))
    middle = 0.5
    greedy = 1.0 / study.ratios("nona-free", middle, "earliest-finish")
    run.claim(
        f"n1-greedy-{name}", measured(greedy, f"earliest-finish over ours, load {middle}"), at_least(NOISE)
    )


def n1_capacity(run: Run, study: Study) -> None:
    """How much more can be served at the same delay."""
    for delay in DELAYS:
        ours, theirs = (
            np.array([study.capacity(policy, seed, delay) for seed in run.seeds])
            for policy in ("nona-free", "whole-least-loaded")
        )
        detail = f"gain over whole-least-loaded: to load {ours.mean():.3f} instead of {theirs.mean():.3f}"
        id = f"n1-capacity-{study.name}-{round(100 * delay)}"
        run.claim(id, measured(ours / np.maximum(theirs, 0.5**BISECTIONS), detail), at_least(NOISE))


def saturation(workload: str, ours_s: float) -> tuple[float, float, str]:
    """Loads at which the equal or blind split is 350 times slower, and saturates: (share, load, name)."""
    one = program_of(workload, 1.0)
    found = []
    for name, make in (("blind", blind), ("equal", equal)):
        theta = make(one).theta
        full = 1.0 / max(one.forecast(theta).load, 1e-12)  # ρ rises with the rate
        low, high = 0.0, full
        for _ in range(60):
            middle = (low + high) / 2
            mean = one.with_rates(list(one.rates_qps * middle)).forecast(theta).mean_s
            low, high = (low, middle) if mean >= PAPER * ours_s else (middle, high)
        found.append((low / full, full, name))
    return min(found)


def n1_paper(run: Run, study: Study, loads: Sequence[float], load: float) -> None:
    """ "Up to 350 times": the most that is measured while no link is full, and where 350 would be met."""
    share, full, name = saturation(study.name, float(study.means["nona-free", load].mean()))
    detail = (
        f"by the formula the {name} split is {PAPER:.0f} times slower than nona-free (load {load}) from "
        f"{share:.5f} of the load {full:.3f} at which its link is full; beyond, any ratio is possible"
    )
    ratios = {
        (rival, at): study.ratios("nona", at, rival)
        for at in loads
        for rival, make in (("blind", blind), ("equal", equal))
        if (program := program_of(study.name, at)).forecast(make(program).theta).load < 1.0
    }
    if not ratios:
        run.claim(
            f"n1-up-to-{study.name}", exact(0.0, f"a link is full at every load; {detail}"), at_least(PAPER)
        )
        return
    rival, at = min(ratios, key=lambda key: float(ratios[key].mean()))
    most = 1.0 / ratios[rival, at]
    run.claim(
        f"n1-up-to-{study.name}", measured(most, f"over {rival} at load {at}; {detail}"), at_least(PAPER)
    )


def n2(run: Run) -> None:
    """From local to distributed as the link gets faster, and back as the servers do."""
    links = np.logspace(8, 12, 41)
    base = program_of("inception", 0.1)
    plans = [optimise(base.with_link(float(link))) for link in links]
    value = np.array([plan.forecast.mean_s for plan in plans])
    alone_s = base.forecast(_local(base)).mean_s
    slow = exact(float(value[0] / alone_s), "0.1 Gb/s against everything on one server")
    run.claim("n2-local", slow, within(0.98, 1.0001))
    sent = np.array([_bits(plan.program, plan.theta) for plan in plans])
    sent /= max(sent.max(), 1.0)
    step = exact(
        float(np.abs(np.diff(sent)).max()), "largest change of the data sent, ten capacities a decade"
    )
    run.claim("n2-smooth", step, at_most(0.25))
    chosen = links[-1:] if run.quick else links[::5]
    simulated = _over_links(base, chosen, run.seeds, QUICK_QUERIES if run.quick else LINK_QUERIES)
    run.claim("n2-distributed", measured(simulated[-1], "1 Tb/s, load 0.1, simulated"), at_most(0.95))
    run.figure("n2-links", link_figure(links, value / alone_s, sent, chosen, simulated))


def _local(program: SplitProgram) -> Floats:
    theta = np.zeros(program.variables)
    theta[program.arrays.start[:-1]] = 1.0
    return theta


def _bits(program: SplitProgram, theta: Floats) -> float:
    """Data sent per query on average."""
    return program.forecast(theta).load * program.link_bps / float(program.rates_qps.sum())


def _over_links(base: SplitProgram, links: Floats, seeds: Sequence[int], queries: int) -> list[Floats]:
    """For each capacity (seeds,) simulated means of nona-free over whole-least-loaded."""
    found, queued = [], base.with_queues()
    for link in links:
        program = queued.with_link(float(link))
        share = tune_share(program, queries, [VALIDATION.start])
        pair = [split_policy(p, program, share=share) for p in ("nona-free", "whole-least-loaded")]
        times = [
            [simulate_split(p, program, queries, s).settled().time_s.mean() for s in seeds] for p in pair
        ]
        found.append(np.array(times[0]) / np.array(times[1]))
    return found


def n3(run: Run, study: Study, loads: Sequence[float]) -> None:
    """Predicted over simulated, and what is left of the error when nobody waits for a server."""
    for load in loads:
        for policy, id in (("nona", "n3-paper"), ("nona-queues", "n3-queues")):
            ratio = study.predicted[policy, load] / study.means[policy, load]
            claim = f"{id}-{study.name}-{round(100 * load)}"
            run.claim(claim, measured(ratio, "predicted over simulated mean"), within(0.9, 1.1))
    load = 0.5
    many = program_of(study.name, load, MANY * SETTING["servers"])
    made = split_policy("nona", many)
    assert made.plan is not None
    means = [simulate_split(made, many, study.queries, seed).settled().time_s.mean() for seed in run.seeds]
    ratio = made.plan.forecast.mean_s / np.array(means)
    detail = f"paper's formula, load {load}, {MANY} times as many servers for the same queries"
    run.claim(f"n3-link-only-{study.name}", measured(ratio, detail), within(0.9, 1.1))


def n4(run: Run) -> None:
    """Every model and the mix: size and time."""
    slowest, words = 0.0, []
    for name in SETTING["workloads"]:
        program = program_of(name, 0.5)
        optimise(program)  # compiled by now
        began = time.perf_counter()
        optimise(program)
        took = time.perf_counter() - began
        slowest = max(slowest, took)
        tasks = sum(len(job.graph.tasks) for job in program.classes)
        words.append(f"{name}: {tasks} tasks, {program.variables} probabilities, {1e3 * took:.1f} ms")
    run.claim("n4-seconds", exact(slowest, "; ".join(words)), at_most(1.0))


_NAMES = tuple(SETTING["workloads"])
_CLAIMS = (
    {
        f"n1-never-worse-{n}": f"{n}: nona-free is at no load more than 1 % slower than the best baseline"
        for n in _NAMES
    }
    | {
        f"n1-paper-never-worse-{n}": f"{n}: nona as printed is at no load more than 1 % slower"
        for n in _NAMES
    }
    | {
        f"n1-better-{n}": f"{n}: nona-free is more than 1 % faster than the best baseline at load {LIGHT}"
        for n in _NAMES
    }
    | {f"n1-tail-{n}": f"{n}: its 99 % quantile at load {LIGHT} is no longer" for n in _NAMES}
    | {f"n1-greedy-{n}": f"{n}: earliest-finish is more than 1 % slower at load 0.5" for n in _NAMES}
    | {
        f"n1-capacity-{n}-{round(100 * delay)}": f"{n}: 1 % more load at {delay} times the time alone"
        for n in _NAMES
        for delay in DELAYS
    }
    | {
        f"n1-up-to-{n}": f"{n}: at some load, no link full, nona is 350 times faster than a blind split"
        for n in _NAMES
    }
    | {
        "n2-local": "on a slow link everything stays on one server",
        "n2-smooth": "data sent changes in small steps with the capacity",
        "n2-distributed": "on a fast link splitting saves 5 % and more, simulated",
    }
    | {
        f"{id}-{n}-{round(100 * load)}": f"{n} at load {load}: {words} within 10 % of the simulation"
        for id, words in (
            ("n3-paper", "the paper's formula is"),
            ("n3-queues", "with bursts and servers it is"),
        )
        for n in N3_MODELS
        for load in N3_LOADS
    }
    | {f"n3-link-only-{n}": f"{n}: within 10 % when nobody waits for a server" for n in N3_MODELS}
    | {"n4-seconds": "every model and the mix solved within a second"}
    | nona_fleet.CLAIMS
)
# About `nona-free` and `nona-queues`; the rest is about the formula and plans of the paper.
OF_OURS = (
    "n1-never", "n1-better", "n1-tail", "n1-greedy", "n1-capacity", "n2-distributed", "n3-queues",
    "fleet",
)  # fmt: skip


_THEOREM = "tests/theory/test_split_theory.py::"
_WITHDRAWN = {
    f"n1-350-{n}": "that a formula with a pole passes 350 near it cannot fail; n1-up-to asks for it before"
    for n in _NAMES
} | {
    "n2-monotone": f"a theorem, so a test: {_THEOREM}test_a_faster_link_never_makes_the_optimum_slower",
    "n4-gap": "the search goes on until its gap is that small, so it could not fail; a test: "
    "tests/studies/test_nona_case.py::test_every_workload_is_solved_to_the_gap_that_is_asked_for",
    "n2-power": f"a theorem, so a test: {_THEOREM}test_faster_servers_make_splitting_pay_less",
}


@reproduction(
    "nona",
    paper="Nona (CloudNet 2024)",
    claims=_CLAIMS,
    ours=[id for id in _CLAIMS if id.startswith(OF_OURS)],
    withdrawn=_WITHDRAWN,
    seeds=(10, 4),
    setting=lambda: setting_text(SETTING),
)
def nona(run: Run) -> None:
    """N1 to N4; N4 measures time, so a quick run leaves it out."""
    if not run.quick:
        run.step("N4: sizes")
        n4(run)
    loads = QUICK_LOADS if run.quick else tuple(SETTING["loads"])
    for number, name in enumerate(SETTING["workloads"]):
        if not run.quick or name in QUICK_WORKLOADS:
            over_load(run, name, loads)
        if number == 0:
            run.step("N2: link and power")
            n2(run)
    run.step("five unlike machines")
    nona_fleet.fleet(run)


def over_load(run: Run, name: str, loads: Sequence[float]) -> None:
    """N1 and N3 of a workload."""
    study = Study(name, QUICK_QUERIES if run.quick else SETTING["workloads"][name]["queries"])
    run.step(f"{name}: validation")
    study.choose(run, loads)
    run.step(f"{name}: policies over load")
    study.measure(run.seeds, loads)
    n1(run, study, loads)
    n1_paper(run, study, loads, 0.5)
    if name in N3_MODELS:
        n3(run, study, N3_LOADS)
    if not run.quick:
        run.step(f"{name}: capacity")
        n1_capacity(run, study)
    run.figure(f"n1-{name}", load_figure(name, loads, study.means, study.predicted, (*OURS, *BASELINES)))
    tails = load_figure(name, loads, study.p99, {}, (*OURS, *BASELINES), "99 % quantile")
    run.figure(f"n1-p99-{name}", tails)
