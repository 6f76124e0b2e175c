"""OSDEC: deferrable jobs in left-over capacity (Dong et al.), on the frozen calibrated worlds.

The paper's trace was processed in unpublished ways, so ratios are compared, not absolute values. The
worlds were calibrated on figures of FIFO, SJF and Tetris, FIFO's first; all else is a finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from edgewise.core.deferral import DeferralPolicy, Objective
from edgewise.errors import PolicyError, ScenarioError
from edgewise.learn.defer.export import load as load_trained
from edgewise.policies import defer
from edgewise.policies.defer.careful import Horizon
from edgewise.policies.defer.forecast import Forecast
from edgewise.policies.defer.program import hindsight
from edgewise.report.figures import new_axes
from edgewise.reproduce.claims import Finding, at_least, measured, within
from edgewise.reproduce.frozen import read_frozen
from edgewise.reproduce.run import Run, reproduction
from edgewise.reproduce.seeds import TRAINING
from edgewise.sim.defer import Outcome, simulate
from edgewise.workloads.deferrable import CORE_CASES, DURATION_CASES, PAPER, DeferralPattern, generate

Floats = NDArray[np.float64]
FROZEN = "osdec-paper"
RULES = ("fifo", "sjf", "tetris")
AHEAD = 12  # slots of the forecast: the longest job
FITTING = TRAINING[400_000:400_200]  # worlds the forecast is fitted on; no training run draws them
UTILISATION_ONLY = Objective(delay=0.0)
SECONDS_OF_A_PROGRAM_WORLD = 4.0

CLAIMS = {
    "fifo-utilisation": "O1: FIFO's utilisation is the paper's 3602 (ratio; calibrated)",
    "fifo-delay": "O1: FIFO's delay is the paper's 194 (ratio; calibrated)",
    "sjf-utilisation": "O1: SJF uses 0.940 of what FIFO uses, ± 0.03 (paper: 3387 / 3602; calibrated)",
    "tetris-utilisation": "O1: Tetris uses 1.024 of what FIFO uses, ± 0.02 (paper: 3690 / 3602; calibrated)",
    "osdec-fifo": "O1: OSDEC's total reward is at least 1.0195 of FIFO's",
    "osdec-tetris": "O1: OSDEC's total reward is at least 1.020 of Tetris's",
    "osdec-sjf": "O1: OSDEC's total reward is at least 1.061 of SJF's",
    "ablation": "O1: OSDEC > +AuxL > +AuxH > PPO+Att > PointerNet, PPO > REINFORCE in total reward",
    "deferrable-fifo": "O2: FIFO uses at least 1.01 of what it uses without windows (paper: 1.047)",
    "deferrable-sjf": "O2: SJF uses at least 1.01 of what it uses without windows (paper: 1.030)",
    "deferrable-tetris": "O2: Tetris uses at least 1.01 of what it uses without windows (paper: 1.055)",
    "deferrable-osdec": "O2: OSDEC uses at least 1.01 of what it uses without windows (paper: 1.074)",
    "tetris-cases": "O3: Tetris is worth at least as much as FIFO in each of six distributions (least ratio)",
    "osdec-cases": "O3: OSDEC is best in four of six distributions, trained on each",
    "curves": "O4: OSDEC's training curve is the highest and varies least",
    "horizon-fifo": "beyond: the rolling horizon's total reward is at least 1.0195 of FIFO's",
    "horizon-osdec": "beyond: the rolling horizon's total reward is at least 1.01 of OSDEC's",
    "horizon-optimum": "beyond: the rolling horizon reaches at least 98 % of the hindsight optimum's bound",
}


@reproduction(
    "osdec",
    paper="OSDEC (Dong et al., An Advanced RL Framework for Online Scheduling of Deferrable Workloads)",
    claims=CLAIMS,
    seeds=100,
    quick_seeds=20,
    quick_s=60.0,
)
def osdec(run: Run) -> None:
    """Tables 1, 2 and 4 of the paper as far as policies are trained, and what lies beyond."""
    _check_frozen(run)
    run.step("table 1")
    rules = {name: defer.load(name) for name in RULES}
    outcomes = {name: _run(PAPER, run.seeds, policy) for name, policy in rules.items()}
    trained = _trained(run)
    if trained is not None:
        outcomes["osdec"] = _run(PAPER, run.seeds, trained)
        rules["osdec"] = trained
    _table_1(run, outcomes)
    run.step("table 2")
    _table_2(run, rules)
    run.step("six distributions")
    _six_cases(run)
    run.step("rolling horizon and hindsight")
    _beyond(run, outcomes)
    run.figure("totals", _figure({name: outcome.reward for name, outcome in outcomes.items()}))


def _check_frozen(run: Run) -> None:
    digest = PAPER.sha256()
    run.scenarios[FROZEN] = digest
    entry = read_frozen(run.results).get(FROZEN)
    if entry is not None and entry["sha256"] != digest:
        raise ScenarioError(
            f"{FROZEN}: the pattern PAPER of edgewise.workloads.deferrable differs from what was frozen on "
            f"{entry['date']}; undo the change, or give the changed pattern another name"
        )


def _run(
    pattern: DeferralPattern,
    seeds: Sequence[int],
    policy: DeferralPolicy,
    objective: Objective = Objective(),  # noqa: B008
) -> Outcome:
    return simulate(generate(pattern, seeds), policy, objective)


def _trained(run: Run) -> DeferralPolicy | None:
    try:
        return load_trained("osdec")
    except PolicyError as error:
        run.step(f"without OSDEC: {error}")
        return None


def _words(outcome: Outcome) -> str:
    objective = Objective()
    return (
        f"utilisation {outcome.revenue.mean():.0f}, delay {-objective.delay * outcome.delay.mean():.0f}, "
        f"violation {-objective.violation * outcome.violation.mean():.1f}, total {outcome.reward.mean():.0f}"
    )


def _table_1(run: Run, outcomes: Mapping[str, Outcome]) -> None:
    fifo = outcomes["fifo"]
    delay = 2.0 * fifo.delay
    run.claim("fifo-utilisation", measured(fifo.revenue / 3602.45, _words(fifo)), within(0.98, 1.02))
    run.claim("fifo-delay", measured(delay / 193.64, _words(fifo)), within(0.85, 1.15))
    for name, low, high in (("sjf", 0.91, 0.97), ("tetris", 1.004, 1.044)):
        ratio = outcomes[name].revenue / fifo.revenue
        run.claim(f"{name}-utilisation", measured(ratio, _words(outcomes[name])), within(low, high))
    if "osdec" in outcomes:
        ours = outcomes["osdec"]
        for rival, least in (("fifo", 1.0195), ("tetris", 1.020), ("sjf", 1.061)):
            run.claim(f"osdec-{rival}", _ratio(ours.reward, outcomes[rival].reward, ours), at_least(least))


def _ratio(ours: Floats, theirs: Floats, outcome: Outcome) -> Finding:
    """Mean over seeds of the ratio, paired by seed."""
    return measured(ours / theirs, _words(outcome))


def _table_2(run: Run, policies: Mapping[str, DeferralPolicy]) -> None:
    for name, policy in policies.items():
        with_windows = _run(PAPER, run.seeds, policy, UTILISATION_ONLY)
        without = _run(PAPER.real_time(), run.seeds, policy, UTILISATION_ONLY)
        detail = f"{with_windows.reward.mean():.0f} against {without.reward.mean():.0f}"
        if name == "osdec":
            detail += "; trained with the penalty on delay"
        run.claim(
            f"deferrable-{name}", measured(with_windows.reward / without.reward, detail), at_least(1.01)
        )


def cases() -> dict[str, DeferralPattern]:
    """The six distributions of the paper's table 4; capacity grows with the mean demand of a job."""

    def scaled(pattern: DeferralPattern) -> DeferralPattern:
        more = _job_size(pattern) / _job_size(PAPER)
        return replace(pattern, load_mean=1.0 - (1.0 - PAPER.load_mean) * more / 4.0, total_cores=400.0)

    def job(shares: Mapping[str, tuple[float, ...]]) -> DeferralPattern:
        wider = replace(PAPER, load_swing=PAPER.load_swing / 4.0, load_noise=PAPER.load_noise / 4.0)
        return scaled(replace(wider, **shares))  # type: ignore[arg-type]

    by_cores = {f"core {i + 1}": job({"core_shares": shares}) for i, shares in enumerate(CORE_CASES)}
    by_duration = {
        f"duration {i + 1}": job({"duration_shares": shares}) for i, shares in enumerate(DURATION_CASES)
    }
    return by_cores | by_duration


def _job_size(pattern: DeferralPattern) -> float:
    """Mean core-slots of a job."""
    return float(
        np.dot(pattern.cores, pattern.core_shares) * np.dot(pattern.durations, pattern.duration_shares)
    )


def _six_cases(run: Run) -> None:
    ratios, words = [], []
    for name, pattern in cases().items():
        fifo, tetris = (_run(pattern, run.seeds, defer.load(rule)).reward for rule in ("fifo", "tetris"))
        ratios.append(tetris / fifo)
        words.append(f"{name}: {tetris.mean() / fifo.mean():.4f}")
    least = min(ratios, key=lambda ratio: float(ratio.mean()))
    run.claim("tetris-cases", measured(least, "; ".join(words)), at_least(1.0))


def _beyond(run: Run, outcomes: dict[str, Outcome]) -> None:
    forecast = Forecast.fit(generate(PAPER, FITTING).left_over, AHEAD)
    seeds = run.seeds
    if run.quick:
        seeds = seeds[: max(2, int((run.what.quick_s - run.elapsed_s - 10.0) / SECONDS_OF_A_PROGRAM_WORLD))]
    horizon = Horizon(forecast)
    ours, bounds = [], []
    worlds = generate(PAPER, seeds)
    for done, seed in enumerate(seeds):
        if done >= 2 and not run.affordable(4.0 * SECONDS_OF_A_PROGRAM_WORLD):
            break
        run.step(f"rolling horizon and hindsight: {done + 1} of {len(seeds)}")
        ours.append(_run(PAPER, [seed], horizon))
        bounds.append(hindsight(worlds, done).bound)
    outcome = _joined(ours)
    n = len(ours)
    for rival, least in (("fifo", 1.0195), ("osdec", 1.01)):
        if rival in outcomes:
            finding = _ratio(outcome.reward, outcomes[rival].reward[:n], outcome)
            run.claim(f"horizon-{rival}", finding, at_least(least))
    detail = f"bound {np.mean(bounds):.0f}; {_words(outcome)}"
    run.claim("horizon-optimum", measured(outcome.reward / np.array(bounds), detail), at_least(0.98))
    if n == len(run.seeds):
        outcomes["horizon"] = outcome


def _joined(parts: Sequence[Outcome]) -> Outcome:
    """Worlds one after the other; starts, of which each world has as many as jobs, are left out."""

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    names = [name for name in Outcome._fields if name != "start"]
    return Outcome(**{name: join(name) for name in names}, start=np.zeros((len(parts), 0), dtype=np.int64))


def _figure(totals: Mapping[str, Floats]) -> Figure:
    drawn, axes = new_axes(6.0, 3.6, "Total reward of a trajectory")
    axes.boxplot(list(totals.values()), tick_labels=list(totals))
    axes.set_ylabel("total reward", fontsize=9)
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    return drawn
