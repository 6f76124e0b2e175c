"""ASET's claims, asked of `chooser`: learned dispatch against every static policy, on three topologies.

A full run trains `chooser` a few times on each topology, as the cards of what ships say, and its
intervals are over trainings and seeds at once; a quick run takes what ships. The rival is the best of the
paper's seven static policies by the validation scores in the card that ships; `least-loaded-feasible` and
`slack-aware`, which the paper does not have and which `chooser` may choose too, are reported beside it. In
the second setting (A8) the rival is any static policy that `chooser` may choose.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from edgewise.arrays import Floats
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.world import World
from edgewise.model.scenario import Scenario
from edgewise.policies.cards import SHIPPED
from edgewise.policies.dispatch.meta import ALL, PAPER
from edgewise.report.figures import heat_map
from edgewise.seeds import VALIDATION
from edgewise.sim.simulate import Simulation
from edgewise.sim.streams.rollout import hindsight_bound
from edgewise_studies.calibration.learned import curve_of
from edgewise_studies.claims import Finding, at_least, at_most, better_by, exact, measured, within
from edgewise_studies.papers import field as field_rules
from edgewise_studies.robustness import STREAM_CHANGES, suite
from edgewise_studies.run import Run, band, chart, reproduction
from edgewise_studies.trainings import gained, gains_figure
from edgewise_studies.twins import as_published

CHOOSER = "chooser"
LEARNED = (CHOOSER, "lookahead", "bandit")
EVERY = (*ALL, *LEARNED)  # and the best of the field
CHIEF = ("least-loaded-feasible", "slack-aware", CHOOSER, "lookahead")  # with the rival, on every seed
RATES = (20, 40, 80, 100)  # clients per minute, besides 60
PATTERNS = ("full-edge-burst", "full-edge-steady")
SCARCE = {"scarce": "full-edge-scarce", "scarce-burst": "full-edge-scarce-burst"}  # by ids of claims
FIELD_IDS = {
    "full-edge": "beyond-field",
    **{name: f"beyond-field-{name.removeprefix('full-edge-')}" for name in ("co-dc-cloud", *PATTERNS)},
}
POINT = 0.01
ANSWERED = "queries answered in time"  # a label
VALIDATED = VALIDATION[:2]  # for choices: a load balancer of the field, the weak spot of a static policy
FEW = 2  # seeds of the policies that only figures show


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run gave.

    Attributes:
        shares: (3,) success, failed and rejected.
        windows: (windows,) success of each.
        applications: success of each application that sent queries.
        switch_s: processor time of each choice in s, so that other runs beside it do not count.
    """

    shares: Floats
    windows: Floats
    applications: dict[str, float]
    switch_s: list[float] = field(default_factory=list)


def run_one(scenario: Scenario, name: str, seed: int) -> Figures:
    """Run one policy on one seed."""
    policy, switch_s = field_rules.load(name), list[float]()
    _time_ticks(policy, switch_s)
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    simulation = Simulation(scenario, policy, seed, world=world)
    streams = simulation.run().streams
    queries = simulation.tally.queries.astype(np.float64)
    kinds = np.array(streams["application"])
    sent, ok = np.array(streams["queries"]), np.array(streams["ok"])
    apps = {str(kind): (ok[kinds == kind].sum(), sent[kinds == kind].sum()) for kind in np.unique(kinds)}
    return Figures(
        shares=queries.sum(axis=1) / max(queries.sum(), 1.0),
        windows=queries[0] / np.maximum(queries.sum(axis=0), 1.0),
        applications={kind: float(a / b) for kind, (a, b) in apps.items() if b},
        switch_s=switch_s,
    )


def _time_ticks(policy: Any, switch_s: list[float]) -> None:
    tick = getattr(policy, "tick", lambda view: None)

    def timed(view: DispatchView) -> None:
        started = time.thread_time()
        tick(view)
        switch_s.append(time.thread_time() - started)

    policy.tick = timed


class Runs:
    """Runs of scenarios under policies, several at a time.

    Args:
        run: what they are for.
        choosers: topology → cards of the trainings that stand for `chooser` there.
    """

    def __init__(self, run: Run, choosers: Mapping[str, Sequence[str]]) -> None:
        self.seeds, self._every, self.choosers = run.seeds, run.every, choosers
        self._gains: dict[str, tuple[Floats, tuple[float, float] | None]] = {}

    def of(
        self, scenario: Scenario, names: Iterable[str], seeds: Sequence[int] | None = None
    ) -> dict[str, list[Figures]]:
        """Per policy the figures of each seed; of `chooser` for each training those of each seed."""
        chosen = self.seeds if seeds is None else seeds
        whose = {name: self.cards(scenario) if name == CHOOSER else [name] for name in names}
        tasks = [(scenario, each, seed) for cards in whose.values() for each in cards for seed in chosen]
        found = iter(self._every(run_one, tasks))
        return {name: [next(found) for _ in cards for _ in chosen] for name, cards in whose.items()}

    def cards(self, scenario: Scenario) -> Sequence[str]:
        """What stands for `chooser`: the trainings on the scenario's topology, or what ships."""
        there = [topology for topology in self.choosers if scenario.name.startswith(topology)]
        return self.choosers[max(there, key=len)] if there else [CHOOSER]

    def chief(self, scenario: Scenario, rival: str) -> dict[str, list[Figures]]:
        """The rival and what is compared with it on every seed; others on a few, for figures."""
        others = [name for name in PAPER if name != rival]
        return self.of(scenario, others, self.seeds[:FEW]) | self.of(scenario, (rival, *CHIEF))

    def ahead(
        self,
        found: Mapping[str, Sequence[Figures]],
        policy: str,
        rival: str,
        row: str = "",
        detail: str = "",
    ) -> Finding:
        """One policy's success less another's, paired by seed; of `chooser` over its trainings, too.

        Args:
            row: under which name it stands in the figure of gains; not there without one.
        """
        mine, other = (success(found)[name].reshape(-1, len(self.seeds)) for name in (policy, rival))
        words = f"{policy} {mine.mean():.6g} against {rival} {other.mean():.6g}"
        if len(mine) > 1:
            each = ", ".join(f"{100.0 * gain:+.2f}" for gain in (mine - other).mean(axis=1))
            words += f"; trainings {each} points"
        gain = gained(mine - other, f"{words}; {detail}" if detail else words)
        if row:
            self._gains[row] = ((mine - other).mean(axis=1), gain.ci)
        return gain

    def figure(self) -> Figure:
        """Of each training what `chooser` gains."""
        return gains_figure(self._gains, "chooser less the best static policy of the claim")


def success(found: Mapping[str, Sequence[Figures]], share: int = 0) -> dict[str, Floats]:
    """Per policy (seeds,) success (0), failed (1) or rejected (2); of `chooser` (trainings × seeds,)."""
    return {name: np.array([figures.shares[share] for figures in each]) for name, each in found.items()}


def card(name: str) -> dict[str, Any]:
    """The card of a shipped policy."""
    found: dict[str, Any] = json.loads((SHIPPED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def rival_of(run: Run, topology: str) -> str:
    """The paper's static policy that is best on the validation seeds of the topology's card."""
    found = card(f"chooser-{topology}")
    scores = {name: [found["scores"][name]] for name in PAPER}
    return run.rival(scores, found["seeds"]["validation"] or [VALIDATION.start])


def strongest(topology: str, count: int = 3) -> list[str]:
    """The best of all static policies that `chooser` may choose, on the validation seeds of a card."""
    found = card(f"chooser-{topology}")
    return sorted(found["actions"], key=found["scores"].__getitem__, reverse=True)[:count]


def fewer_failures(found: Mapping[str, Sequence[Figures]], rival: str) -> Floats:
    """(trainings, seeds) share of queries that `chooser` fails less than the rival, less what it rejects
    more.
    """
    failed, rejected = (
        {name: values.reshape(-1, len(found[rival])) for name, values in success(found, share).items()}
        for share in (1, 2)
    )
    more = np.maximum(rejected[CHOOSER] - rejected[rival], 0.0)
    fewer: Floats = failed[rival] - failed[CHOOSER] - more
    return fewer


def weakest(validated: Mapping[str, Sequence[Figures]]) -> dict[str, tuple[str, str]]:
    """Of each of the paper's static policies the application that it serves worst against the best, and whose
    that best is: by means over validation seeds, since on the very seeds of a claim noise alone finds one."""
    apps = sorted(set.intersection(*(set(one.applications) for each in validated.values() for one in each)))
    mean = {
        (name, app): float(np.mean([one.applications[app] for one in validated[name]]))
        for name in PAPER
        for app in apps
    }
    best = {app: max(PAPER, key=lambda name: mean[name, app]) for app in apps}
    worst = {name: max(apps, key=lambda app: mean[best[app], app] - mean[name, app]) for name in PAPER}
    return {name: (app, best[app]) for name, app in worst.items()}


def no_winner(found: Mapping[str, Sequence[Figures]], weak: Mapping[str, tuple[str, str]]) -> Floats:
    """(seeds,) how far the static policy that comes nearest to winning every application is from it.

    min over policies of (success of another one in the application where this one is weakest - its own)
    """

    def success_in(name: str, app: str) -> Floats:
        return np.array([one.applications.get(app, np.nan) for one in found[name]])

    gaps = [success_in(best, app) - success_in(name, app) for name, (app, best) in weak.items()]
    return np.asarray(np.nanmin(gaps, axis=0))


_CLAIMS = {
    "a1-no-static-wins-all": "A1: every static policy is at least a point below the best in some application",
    "a2-dc-cloud": "A2: dc-cloud, λ = 60: chooser is within a point of the best static policy (no room)",
    "a3-co-dc-cloud": "A3: co-dc-cloud, λ = 60: chooser is at least a point above the best static policy",
    "a4-full-edge": "A4: full-edge, λ = 60: chooser is at least a point above the best static policy",
    "a4-fails": (
        "A4: full-edge: chooser fails a point fewer than the best static policy, not by rejecting more"
    ),
    **{
        f"a4-rate-{rate}": f"A4: full-edge, λ = {rate}: chooser is a point above the best static"
        for rate in RATES
    },
    **{f"a5-{name.split('-')[-1]}": f"A5: {name}: chooser is at least a point above" for name in PATTERNS},
    "a6-switch-time": "A6: 95 % of chooser's choices take a tenth of the time between streams or less (CPU)",
    "a7-plateau": "A7: the last ten of < 100 episodes are as good as the ten before, ± 2 points, in the mean",
    **{
        f"a8-{id}": f"A8: {name}: chooser is a point above every static policy" for id, name in SCARCE.items()
    },
    "beyond-strongest": (
        "full-edge: chooser is a point above least-loaded-feasible, which is not in the paper"
    ),
    "beyond-every": "full-edge: chooser is a point above slack-aware, the best of all that it may choose",
    **{
        id: f"{name}: chooser is a point above power of two, least request and a threshold of streams"
        for name, id in FIELD_IDS.items()
    },
    "beyond-slack": "full-edge: slack-aware, a static policy of ours, is a point above least-loaded-feasible",
    "beyond-lookahead": "full-edge: lookahead is a point above chooser",
    "beyond-switching": "full-edge: lookahead is a point above slack-aware, the best of its candidates alone",
    **{f"beyond-{id}": f"{name}: lookahead is a point above every static" for id, name in SCARCE.items()},
    "robust": "full-edge ± 20 % capacity, delay, load: chooser wins against the best static in all seven",
}


_WITHDRAWN = {
    "a4-rejects": "on full-edge nobody rejects, so it could not fail; a4-fails asks what the paper shows",
    "bound": "a theorem, so a test: tests/unit/policies/test_chooser.py::test_nothing_exceeds_the_bound",
}


@reproduction(
    "aset",
    paper="ASET, adaptive scheduling of inference streams",
    claims=_CLAIMS,
    ours=set(_CLAIMS) - {"a1-no-static-wins-all"},  # `chooser` has nine actions, ASET seven
    withdrawn=_WITHDRAWN,
    seeds=(10, 3),
    look=3,
    needs="torch",
)
def aset(run: Run) -> None:
    """A1 to A8, the bound, and what goes past the paper."""
    runs = Runs(run, {} if run.quick else _trained(run))
    _full_edge(run, runs)
    if not run.quick:
        _elsewhere(run, runs)
        _rates(run, runs)
        _scarce(run, runs)
        _robustness(run, runs)
        run.figure("gains", runs.figure())
    _plateau(run, runs)


def _trained(run: Run) -> dict[str, list[str]]:
    from edgewise_studies.papers.aset_trained import trained  # imports torch

    return trained(run)


def _full_edge(run: Run, runs: Runs) -> None:
    run.step("full-edge, every policy")
    scenario, rival = run.scenario("full-edge"), rival_of(run, "full-edge")
    found = runs.of(scenario, (*PAPER, *CHIEF) if run.quick else EVERY)
    if not run.quick:
        found |= _field(run, runs, scenario, found, "beyond-field")
    weak = weakest(runs.of(scenario, PAPER, VALIDATED))
    detail = "; ".join(f"{name}: {app}, by {best}" for name, (app, best) in weak.items())
    run.claim("a1-no-static-wins-all", measured(no_winner(found, weak), detail), at_least(POINT))
    run.claim("a4-full-edge", runs.ahead(found, CHOOSER, rival, "full-edge"), better_by(POINT))
    run.claim("a4-fails", gained(fewer_failures(found, rival)), better_by(POINT))
    for id, policy, other in (
        ("beyond-strongest", CHOOSER, "least-loaded-feasible"),
        ("beyond-every", CHOOSER, "slack-aware"),
        ("beyond-slack", "slack-aware", "least-loaded-feasible"),
        ("beyond-lookahead", "lookahead", CHOOSER),
        ("beyond-switching", "lookahead", "slack-aware"),
    ):
        run.claim(id, runs.ahead(found, policy, other), better_by(POINT))
    run.step("full-edge, bound")
    bounds = np.array([hindsight_bound(scenario, seed) for seed in run.seeds])
    run.figure("a1-applications", by_application(found))
    run.figure("a4-full-edge", over_time(found, scenario, float(bounds.mean()), "full-edge, λ = 60"))
    if not run.quick:  # it measures time
        _switch_time(run, scenario, found[CHOOSER])


def _field(
    run: Run, runs: Runs, scenario: Scenario, found: Mapping[str, Sequence[Figures]], id: str
) -> dict[str, list[Figures]]:
    """Load balancers of the field, by validation seeds the best threshold; `chooser` against the best."""
    run.step(f"{scenario.name}, load balancers of the field")
    scores = success(runs.of(scenario, field_rules.FIELD, VALIDATED))
    thresholds = {name: scores[name] for name in scores if name.startswith("stream-threshold")}
    chosen = [name for name in scores if name not in thresholds] + [run.rival(thresholds, VALIDATED)]
    field = runs.of(scenario, chosen)
    rival = run.rival({name: scores[name] for name in chosen}, VALIDATED)
    detail = ", ".join(f"{name} {100 * float(values.mean()):.1f}" for name, values in success(field).items())
    run.claim(id, runs.ahead({**found, **field}, CHOOSER, rival, detail=detail), better_by(POINT))
    return field


def streams_per_s(scenario: Scenario) -> float:
    """Of all sites, as a run begins."""
    return len(scenario.topology.sites) * scenario.streams.arrivals.steps[0][1] / 60.0


def slowest_choices(scenario: Scenario, taken_s: Sequence[Sequence[float]]) -> list[float]:
    """Of each run the time that 95 % of its choices take at most, over the time between two streams."""
    return [float(np.quantile(each, 0.95)) * streams_per_s(scenario) for each in taken_s]


def _switch_time(run: Run, scenario: Scenario, each: Sequence[Figures]) -> None:
    choices = [figures.switch_s[1:] for figures in each]  # the first one warms up
    taken, per_s = np.sort(np.concatenate(choices)), streams_per_s(scenario)
    share = np.reshape(slowest_choices(scenario, choices), (-1, len(run.seeds)))
    detail = f"p95 of a choice × streams/s; median choice {1e3 * float(np.median(taken)):.2f} ms"
    run.claim("a6-switch-time", gained(share, detail), at_most(0.1))
    gaps = np.logspace(-5, 1, 200)
    with chart(
        7.0,
        4.0,
        "Time of a policy switch, and between two streams",
        "seconds",
        "share at most that long",
        columns=2,
    ) as (drawn, axes):
        axes.step(taken, np.arange(1, taken.size + 1) / taken.size, label="switch")
        axes.plot(gaps, 1.0 - np.exp(-per_s * gaps), "--", label=f"between streams ({per_s:.3g} per s)")
        axes.set_xscale("log")
    run.figure("a6-switch-time", drawn)


def _elsewhere(run: Run, runs: Runs) -> None:
    """Other topologies, and full-edge under changing load."""
    ahead = better_by(POINT)
    for id, name, topology, criterion in (
        ("a2-dc-cloud", "dc-cloud", "dc-cloud", within(-POINT, POINT)),
        ("a3-co-dc-cloud", "co-dc-cloud", "co-dc-cloud", ahead),
        *((f"a5-{name.split('-')[-1]}", name, "full-edge", ahead) for name in PATTERNS),
    ):
        run.step(name)
        scenario, rival = run.scenario(name), rival_of(run, topology)
        found, steady = runs.chief(scenario, rival), name == topology
        run.claim(id, runs.ahead(found, CHOOSER, rival, name), criterion)
        if criterion is ahead:
            found |= _field(run, runs, scenario, found, FIELD_IDS[name])
        title = f"{name}, λ = 60" if steady else name
        run.figure(id if steady else f"a5-{name}", over_time(found, scenario, None, title))


def _rates(run: Run, runs: Runs) -> None:
    rival, curves = rival_of(run, "full-edge"), dict[str, list[float]]()
    for rate in RATES:
        run.step(f"full-edge, λ = {rate}")
        scenario = as_published("full-edge", {"streams.arrivals.clients_per_min": float(rate)})
        found = runs.chief(scenario, rival)
        gain = runs.ahead(found, CHOOSER, rival, f"full-edge, λ = {rate}")
        run.claim(f"a4-rate-{rate}", gain, better_by(POINT))
        for name, values in success(found).items():
            curves.setdefault(name, []).append(float(values.mean()))
    with chart(
        8.0,
        4.2,
        "full-edge: success over arrival rate",
        "clients per minute and antenna",
        ANSWERED,
        columns=4,
    ) as (drawn, axes):
        for name, curve in curves.items():
            axes.plot(RATES, curve, marker="o", linewidth=2.5 if name in LEARNED else 1.0, label=name)
    run.figure("a4-rates", drawn)


def _scarce(run: Run, runs: Runs) -> None:
    """Where switching has room; the rival is whichever static policy these very seeds favour."""
    candidates = strongest("full-edge-scarce")
    for id, name in SCARCE.items():
        run.step(name)
        scenario = run.scenario(name)
        found = runs.of(scenario, (*candidates, CHOOSER, "lookahead"))
        mean = {policy: float(values.mean()) for policy, values in success(found).items()}
        rival = max(candidates, key=mean.__getitem__)
        detail = ", ".join(f"{policy} {100 * share:.1f}" for policy, share in mean.items())
        for prefix, policy in (("a8", CHOOSER), ("beyond", "lookahead")):
            gain = runs.ahead(found, policy, rival, name if policy == CHOOSER else "", detail)
            run.claim(f"{prefix}-{id}", gain, better_by(POINT))
        run.figure(f"a8-{name}", over_time(found, scenario, None, name))


def _robustness(run: Run, runs: Runs) -> None:
    """Of `chooser` the mean of its trainings."""
    rival = rival_of(run, "full-edge")

    def measure(scenario: Scenario) -> dict[str, Floats]:
        found = success(runs.of(scenario, (rival, CHOOSER)))
        return {name: values.reshape(-1, len(run.seeds)).mean(axis=0) for name, values in found.items()}

    found = suite(
        run.scenario("full-edge"),
        STREAM_CHANGES,
        measure,
        CHOOSER,
        rival,
        progress=run.step,
        minimum_effect=POINT,
    )
    run.claim("robust", exact(found.wins, str(found)), at_least(len(found.rows)))
    run.figure("robustness", found.figure())


def _plateau(run: Run, runs: Runs) -> None:
    """How much the last ten episodes differ from the ten before, on the topology where that is most."""
    changes = dict[str, Floats]()
    title, below = "Success of training episodes, mean of ten", "episode; bands: all trainings"
    with chart(8.0, 4.2, title, below, "success", columns=3) as (drawn, axes):
        for topology in ("dc-cloud", "co-dc-cloud", "full-edge"):
            cards = runs.choosers.get(topology) or [str(SHIPPED / f"chooser-{topology}.json")]
            curves = np.array([curve_of(Path(each)) for each in cards])
            changes[topology] = curves[:, -10:].mean(axis=1) - curves[:, -20:-10].mean(axis=1)
            means = np.array([np.convolve(curve, np.ones(10) / 10, "valid") for curve in curves])
            band(axes, np.arange(10, curves.shape[1] + 1), means, topology)
    run.figure("a7-learning", drawn)
    most = max(changes, key=lambda topology: abs(float(changes[topology].mean())))
    words = ", ".join(f"{topology} {100.0 * each.mean():+.2f}" for topology, each in changes.items())
    run.claim("a7-plateau", measured(changes[most], f"on {most}; means {words} points"), within(-0.02, 0.02))


def by_application(found: Mapping[str, Sequence[Figures]]) -> Figure:
    """Success of every policy (rows) in every application (columns)."""
    apps = sorted({app for each in found.values() for one in each for app in one.applications})
    table = np.array(
        [
            [np.mean([one.applications.get(app, np.nan) for one in each]) for app in apps]
            for each in found.values()
        ]
    )
    return heat_map(table, list(found), apps, "Success by application")


def over_time(
    found: Mapping[str, Sequence[Figures]], scenario: Scenario, bound: float | None, title: str
) -> Figure:
    """Success of each window, mean over seeds; the bound as a line."""
    with chart(8.0, 4.2, title, "time (s)", ANSWERED, columns=4) as (drawn, axes):
        for name, each in found.items():
            mean = np.mean([figures.windows for figures in each], axis=0)
            start_s = scenario.window_s * np.arange(mean.size)
            axes.plot(start_s, mean, linewidth=2.5 if name in LEARNED else 1.0, label=name)
        if bound is not None:
            axes.axhline(bound, color="#222222", linestyle=":", label="bound with hindsight")
    return drawn
