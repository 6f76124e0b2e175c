"""OSDEC: deferrable jobs in left-over capacity (Dong et al.), on the frozen calibrated worlds.

The paper's trace was processed in unpublished ways, so ratios are compared, not absolute values. The
worlds were calibrated on figures of FIFO, SJF and Tetris, FIFO's first; all else is a finding. What is
trained was trained a few times, and intervals are over trainings and worlds at once; without training runs it
is what ships.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import f

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.core.defer import DeferralPolicy, Objective
from edgewise.errors import RunError, ScenarioError
from edgewise.model.work import DeferralPattern
from edgewise.policies.defer.forecast import Forecast
from edgewise.policies.defer.horizon import Horizon
from edgewise.policies.defer.schedule import hindsight
from edgewise.seeds import TRAINING
from edgewise.sim.slots.defer import DeferralOutcome, simulate
from edgewise.workloads.deferrable import PAPER, cases, generate
from edgewise_studies import trainings
from edgewise_studies.claims import Finding, at_least, at_most, measured, within
from edgewise_studies.frozen import read_frozen
from edgewise_studies.run import Run, band, boxes, chart, reproduction
from edgewise_studies.training.osdec.situations import name_of
from edgewise_studies.trainings import gained

FROZEN = "osdec-paper"
RULES = ("fifo", "sjf", "tetris")
METHODS = ("reinforce", "ppo-mlp", "pointer-net", "ppo-att", "ppo-att-auxh", "ppo-att-auxl", "osdec")
PLAIN = (
    ("ppo-att", "pointer-net"),
    ("ppo-att", "ppo-mlp"),
    ("pointer-net", "reinforce"),
    ("ppo-mlp", "reinforce"),
)
RUNS = range(5)  # training runs of a method, at most
FIGURES = ("revenue", "delay", "violation", "reward", "started", "lost")
AHEAD = 12  # slots of the forecast: the longest job
FITTING = TRAINING[400_000:400_200]  # worlds the forecast is fitted on; no training run draws them
EFFECT = 1.01  # least ratio that counts as ahead, as everywhere: decision 5
SPREAD = 0.9  # the same of deviations: those of five runs are themselves uncertain by a third
UTILISATION_ONLY = Objective(delay=0.0)
PROGRAM_WORLDS, PROGRAM_WORLDS_QUICK = 100, 5
TOTALS = "Total reward of a trajectory"

CLAIMS = {
    "fifo-utilisation": "O1: FIFO's utilisation is the paper's 3602 (ratio; calibrated)",
    "fifo-delay": "O1: FIFO's delay is the paper's 194 (ratio; calibrated)",
    "sjf-utilisation": "O1: SJF uses 0.940 of what FIFO uses, ± 0.03 (paper: 3387 / 3602; calibrated)",
    "tetris-utilisation": "O1: Tetris uses 1.024 of what FIFO uses, ± 0.02 (paper: 3690 / 3602; calibrated)",
    "osdec-fifo": "O1: OSDEC's total reward is at least 1.0195 of FIFO's",
    "osdec-tetris": "O1: OSDEC's total reward is at least 1.020 of Tetris's",
    "osdec-sjf": "O1: OSDEC's total reward is at least 1.061 of SJF's",
    "published-fifo": "O1: OSDEC trained by the paper's recipe: at least 1.0195 of FIFO's",
    "published-tetris": "O1: OSDEC trained by the paper's recipe: at least 1.020 of Tetris's",
    "published-sjf": "O1: OSDEC trained by the paper's recipe: at least 1.061 of SJF's",
    "ablation": "O1: OSDEC > +AuxL > +AuxH > PPO+Att > PointerNet, PPO > REINFORCE by 1 % (least ratio)",
    "deferrable-fifo": "O2: FIFO uses at least 1.01 of what it uses without windows (paper: 1.047)",
    "deferrable-sjf": "O2: SJF uses at least 1.01 of what it uses without windows (paper: 1.030)",
    "deferrable-tetris": "O2: Tetris uses at least 1.01 of what it uses without windows (paper: 1.055)",
    "deferrable-osdec": "O2: OSDEC, trained for each, uses at least 1.01 of it (paper: 1.074)",
    "tetris-cases": "O3: Tetris is worth 1 % more than FIFO in each of six distributions (least ratio)",
    "osdec-cases": "O3: OSDEC, trained on each, is best by 1 % in four of six distributions (fourth ratio)",
    "curves": "O4: OSDEC's training curve ends highest by 1 % (ratio to the best other)",
    "curves-variance": "O4: OSDEC's results vary least between runs, by a tenth (deviation over least other)",
    "osdec-optimum": "beyond: OSDEC reaches at least 98 % of the hindsight optimum",
    "recipe": "beyond: our training recipe gives OSDEC at least 1.01 of what the paper's gives",
    "skip-osdec": "beyond: OSDEC that goes on past a misfit is worth at least 1.01 of OSDEC",
    "horizon-fifo": "beyond: the rolling horizon's total reward is at least 1.0195 of FIFO's",
    "horizon-osdec": "beyond: the rolling horizon's total reward is at least 1.01 of OSDEC's",
    "horizon-optimum": "beyond: the rolling horizon reaches at least 98 % of the hindsight optimum",
    "foresight": "beyond: planning 12 slots ahead is worth at most 1.005 of packing each slot by itself",
}
# The rules, and what the paper's recipe trained; all else is by our recipe, by which OSDEC gains ("recipe").
PUBLISHED = {
    id for id in CLAIMS if id.startswith(("fifo-", "sjf-", "tetris-", "deferrable-", "published-"))
} - {"deferrable-osdec"}
LEAST = {"fifo": 1.0195, "tetris": 1.020, "sjf": 1.061}  # what the paper has OSDEC ahead by
TRAINED = {"ablation", "deferrable-osdec", "osdec-cases", "curves", "curves-variance", "recipe"} | {
    f"published-{rival}" for rival in LEAST
}


@reproduction(
    "osdec",
    paper="OSDEC (Dong et al., An Advanced RL Framework for Online Scheduling of Deferrable Workloads)",
    claims=CLAIMS,
    ours=set(CLAIMS) - PUBLISHED,
    trained=TRAINED,
    seeds=(100, 20),
    look=3,
)
def osdec(run: Run) -> None:
    """Tables 1, 2 and 4 of the paper, its training curves, and what lies beyond."""
    _check_frozen(run)
    run.step("table 1")
    runs = {name: _runs(PAPER, run.seeds, [policies.load("defer", name)]) for name in RULES}
    for method in METHODS if run.training else METHODS[-1:]:
        run.step(f"table 1: {method}")
        runs[method] = _runs(PAPER, run.seeds, _trained(run, method))
    _table_1(run, runs)
    run.step("table 2")
    _table_2(run)
    _six_cases(run)
    if run.training is not None:
        _ablation(run, runs)
        _curves(run, run.training, {name: runs[name] for name in METHODS})
        _published(run, runs)
    _recipes(run, runs)
    run.step("rolling horizon and hindsight")
    _beyond(run, runs)
    shown = {name: _mean(found).reward for name, found in runs.items()}
    run.figure("totals", boxes(shown, TOTALS, "total reward", 9.0))


def _check_frozen(run: Run) -> None:
    digest = PAPER.sha256()
    run.scenarios[FROZEN] = digest
    entry = read_frozen(run.results).get(FROZEN)
    if entry is not None and entry["sha256"] != digest:
        raise ScenarioError(
            f"{FROZEN}: the pattern PAPER of edgewise.workloads.deferrable differs from what was frozen on "
            f"{entry['date']}; undo the change, or give the changed pattern another name"
        )


def _runs(
    pattern: DeferralPattern,
    seeds: Sequence[int],
    policies: Sequence[DeferralPolicy],
    objective: Objective = Objective(),  # noqa: B008
) -> list[DeferralOutcome]:
    """What each world came to under each policy (the training runs of one method)."""
    worlds = generate(pattern, seeds)
    return [simulate(worlds, policy, objective) for policy in policies]


def _rewards(runs: Sequence[DeferralOutcome]) -> Floats:
    """(runs, worlds) total reward."""
    return np.array([part.reward for part in runs])


def _mean(runs: Sequence[DeferralOutcome]) -> DeferralOutcome:
    """Over the training runs of a method, for each world."""
    figures = {name: np.mean([getattr(part, name) for part in runs], axis=0) for name in FIGURES}
    return runs[0]._replace(**figures)


def _totals_of(runs: Sequence[DeferralOutcome]) -> str:
    """Mean total reward, and where there are several runs that of each."""
    each = [f"{part.reward.mean():.0f}" for part in runs]
    return f"{_mean(runs).reward.mean():.0f}" + (f" ({', '.join(each)})" if len(each) > 1 else "")


def _trained(run: Run, method: str, situation: str = "paper", recipe: str = "ours") -> list[DeferralPolicy]:
    """The training runs of a method; without any the one that ships.

    Raises:
        RunError: the folder of training runs has none of this method.
    """
    if run.training is None:
        return [policies.load("defer", method)]
    files = [run.training / f"{name_of(method, seed, situation, recipe)}.json" for seed in RUNS]
    found: list[DeferralPolicy] = [policies.load("defer", str(file)) for file in files if file.is_file()]
    if not found:
        raise RunError(f"training runs: {files[0]} and its like are missing; restore them from git")
    return found


def _curve(training: Path, method: str) -> Floats:
    """(runs, points, 2) iteration and total reward, as the cards of a method's training runs have them."""
    cards = [training / f"{name_of(method, seed)}.json" for seed in RUNS]
    found = [json.loads(card.read_text(encoding="utf-8")) for card in cards if card.is_file()]
    return np.array([card["curve"] for card in found])


def _words(runs: Sequence[DeferralOutcome]) -> str:
    outcome, objective = _mean(runs), Objective()
    return (
        f"utilisation {outcome.revenue.mean():.0f}, delay {-objective.delay * outcome.delay.mean():.0f}, "
        f"violation {-objective.violation * outcome.violation.mean():.1f}, total {_totals_of(runs)}"
    )


def _table_1(run: Run, runs: Mapping[str, Sequence[DeferralOutcome]]) -> None:
    ((fifo,), words) = runs["fifo"], _words(runs["fifo"])
    delay = 2.0 * fifo.delay
    run.claim("fifo-utilisation", measured(fifo.revenue / 3602.45, words), within(0.98, 1.02))
    run.claim("fifo-delay", measured(delay / 193.64, words), within(0.85, 1.15))
    for name, low, high in (("sjf", 0.91, 0.97), ("tetris", 1.004, 1.044)):
        ratio = _mean(runs[name]).revenue / fifo.revenue
        run.claim(f"{name}-utilisation", measured(ratio, _words(runs[name])), within(low, high))
    for rival, least in LEAST.items():
        run.claim(f"osdec-{rival}", _against(runs["osdec"], runs[rival]), at_least(least))


def _against(runs: Sequence[DeferralOutcome], rivals: Sequence[DeferralOutcome]) -> Finding:
    """Ratio of total rewards, paired by world; where both were trained each run has another of its rival."""
    return gained(_rewards(runs) / _rewards(rivals), f"{_words(runs)}; against {_totals_of(rivals)}")


def _ablation(run: Run, runs: Mapping[str, Sequence[DeferralOutcome]]) -> None:
    """The pair of neighbours in the paper's order that contradicts it most, or agrees least."""
    pairs = [*pairwise(("osdec", "ppo-att-auxl", "ppo-att-auxh", "ppo-att")), *PLAIN]
    ratios = {(one, other): _rewards(runs[one]) / _rewards(runs[other]) for one, other in pairs}
    least = min(ratios, key=lambda pair: float(ratios[pair].mean()))
    words = [f"{name}: {_words(runs[name])}" for name in METHODS]
    detail = f"{least[0]} against {least[1]}; " + "; ".join(words)
    run.claim("ablation", gained(ratios[least], detail), at_least(EFFECT))


def _table_2(run: Run) -> None:
    """Utilisation as the only objective; OSDEC is trained for it, with and without windows."""
    for name in (*RULES, "osdec") if run.training else RULES:
        run.step(f"table 2: {name}")
        rule = [policies.load("defer", name)] if name in RULES else []
        runs = _runs(PAPER, run.seeds, rule or _trained(run, name, "utilisation"), UTILISATION_ONLY)
        real_time = rule or _trained(run, name, "real-time")
        without = _runs(PAPER.real_time(), run.seeds, real_time, UTILISATION_ONLY)
        detail = f"{_totals_of(runs)} against {_totals_of(without)}"
        if name == "osdec":
            rival = _runs(PAPER, run.seeds, _trained(run, "ppo-att", "utilisation"), UTILISATION_ONLY)
            detail += f"; ppo-att with windows {_totals_of(rival)}"
        run.claim(f"deferrable-{name}", gained(_rewards(runs) / _rewards(without), detail), at_least(1.01))


def _six_cases(run: Run) -> None:
    """Where two cases are the paper's own distributions, the policies trained on those are used."""
    known: dict[DeferralPattern, dict[str, list[DeferralOutcome]]] = {}
    tetris, ours, words = [], [], []
    for name, pattern in cases().items():
        run.step(f"six distributions: {name}")
        same = (pattern.core_shares, pattern.duration_shares) == (PAPER.core_shares, PAPER.duration_shares)
        if pattern not in known:
            known[pattern] = _case_runs(run, pattern, "paper" if same else name)
        totals = {method: _rewards(found) for method, found in known[pattern].items()}
        tetris.append(totals["tetris"] / totals["fifo"])
        if "osdec" in totals:
            ours.append(totals["osdec"] / max((totals[n] for n in totals if n != "osdec"), key=_level))
        shown = (f"{method} {_totals_of(found)}" for method, found in known[pattern].items())
        words.append(f"{name}: {', '.join(shown)}")
    detail = "; ".join(words)
    run.claim("tetris-cases", gained(min(tetris, key=_level), detail), at_least(EFFECT))
    if ours:
        run.claim("osdec-cases", gained(sorted(ours, key=_level)[-4], detail), at_least(EFFECT))


def _case_runs(run: Run, pattern: DeferralPattern, situation: str) -> dict[str, list[DeferralOutcome]]:
    rivals: dict[str, list[DeferralPolicy]] = {rule: [policies.load("defer", rule)] for rule in RULES}
    if run.training is not None:
        rivals |= {method: _trained(run, method, situation) for method in ("ppo-att", "osdec")}
    return {name: _runs(pattern, run.seeds, found) for name, found in rivals.items()}


def _level(values: Floats) -> float:
    return float(values.mean())


def _curves(run: Run, training: Path, runs: Mapping[str, Sequence[DeferralOutcome]]) -> None:
    """Curves are on validation worlds, as the cards have them; results on the seeds of this run."""
    curves = {name: _curve(training, name) for name in METHODS}
    ends = {name: float(curve[:, -1, 1].mean()) for name, curve in curves.items()}
    best = max((name for name in METHODS if name != "osdec"), key=ends.__getitem__)
    detail = ", ".join(f"{name} {end:.0f}" for name, end in ends.items())
    last = {name: curves[name][:, -1, 1] for name in ("osdec", best)}
    run.claim("curves", measured(last["osdec"] / last[best].mean(), detail), at_least(EFFECT))
    levels = {name: [_level(outcome.reward) for outcome in found] for name, found in runs.items()}
    spread = {name: float(np.std(found, ddof=1)) for name, found in levels.items()}
    least = min(value for name, value in spread.items() if name != "osdec")
    shown = ", ".join(f"{name} {value:.1f}" for name, value in spread.items())
    detail = f"{shown}; interval by the F distribution of {len(RUNS)} runs each"
    run.claim("curves-variance", spread_finding(spread["osdec"] / least, len(RUNS), detail), at_most(SPREAD))
    run.figure("curves", _curve_figure(curves))
    run.figure("runs", _run_figure(levels))


def _published(run: Run, runs: Mapping[str, Sequence[DeferralOutcome]]) -> None:
    """OSDEC by the paper's own recipe; and all trainings of all methods beside each other."""
    paper = _runs(PAPER, run.seeds, _trained(run, "osdec", recipe="paper"))
    run.claim("recipe", _against(runs["osdec"], paper), at_least(EFFECT))
    for rival, least in LEAST.items():
        run.claim(f"published-{rival}", _against(paper, runs[rival]), at_least(least))
    rows = {name: runs[name] for name in METHODS} | {"osdec, the paper's recipe": paper}
    scores = {name: _rewards(found) / _rewards(runs["fifo"]) for name, found in rows.items()}
    run.figure("trainings", trainings.interquartile_figure(scores, "total reward over FIFO's"))
    run.figure("profiles", trainings.profile_figure(scores, "total reward over FIFO's"))


def _recipes(run: Run, runs: Mapping[str, Sequence[DeferralOutcome]]) -> None:
    skip = _runs(PAPER, run.seeds, _trained(run, "osdec-skip"))
    run.claim("skip-osdec", _against(skip, runs["osdec"]), at_least(1.01))


def spread_finding(ratio: float, runs: int, detail: str) -> Finding:
    """A ratio of the deviations of two methods, with the interval of two normal samples of `runs` each."""
    low, high = (float(ratio * np.sqrt(f.ppf(share, runs - 1, runs - 1))) for share in (0.025, 0.975))
    return Finding(ratio, (low, high), runs, detail=detail)


def _beyond(run: Run, runs: dict[str, list[DeferralOutcome]]) -> None:
    worlds = generate(PAPER, run.seeds)
    bounds = np.array([hindsight(worlds, world).bound for world in range(len(run.seeds))])
    optimum = f"optimum {bounds.mean():.0f}"
    run.claim("osdec-optimum", gained(_rewards(runs["osdec"]) / bounds, optimum), at_least(0.98))
    slot, horizon = programs(run)
    n = horizon.reward.size
    for rival, least in (("fifo", 1.0195), ("osdec", 1.01)):
        ratio = horizon.reward / _rewards(runs[rival])[:, :n]
        run.claim(f"horizon-{rival}", gained(ratio, _words([horizon])), at_least(least))
    detail = f"{optimum}; {_words([horizon])}"
    run.claim("horizon-optimum", measured(horizon.reward / bounds[:n], detail), at_least(0.98))
    share = f"by itself {_words([slot])}, {100 * _level(slot.reward / bounds[:n]):.1f} % of the optimum"
    run.claim("foresight", measured(horizon.reward / slot.reward, share), at_most(1.005))
    runs["horizon"] = [horizon]


def programs(run: Run) -> list[DeferralOutcome]:
    """A program in each slot, for this slot by itself and for 12."""
    capacity = generate(PAPER, FITTING).left_over
    programs = [Horizon(Forecast.fit(capacity, ahead)) for ahead in (1, AHEAD)]
    done: list[list[DeferralOutcome]] = []
    worlds = run.seeds[: PROGRAM_WORLDS_QUICK if run.quick else PROGRAM_WORLDS]
    for seed in worlds:
        run.step(f"rolling horizon: world {len(done) + 1} of {len(worlds)}")
        done.append(_runs(PAPER, [seed], programs))
    return [_joined(column) for column in zip(*done, strict=True)]


def _joined(parts: Sequence[DeferralOutcome]) -> DeferralOutcome:
    """Worlds one after the other; starts, of which each world has as many as jobs, are left out."""

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])

    names = [name for name in DeferralOutcome._fields if name != "start"]
    return DeferralOutcome(
        **{name: join(name) for name in names}, start=np.zeros((len(parts), 0), dtype=np.int64)
    )


def _run_figure(levels: Mapping[str, Sequence[float]]) -> Figure:
    with chart(
        7.0, 3.6, "Total reward of each training run, mean over the worlds of this run", y="total reward"
    ) as (drawn, axes):
        for place, found in enumerate(levels.values()):
            axes.plot([place] * len(found), found, "o", alpha=0.7)
        axes.set_xticks(range(len(levels)), list(levels), rotation=30)
    return drawn


def _curve_figure(curves: Mapping[str, Floats]) -> Figure:
    """Mean over the training runs, with their range."""
    with chart(
        7.0,
        4.2,
        "Training: total reward on validation worlds, without noise",
        "iteration of 2,048 slots",
        "total reward",
        columns=4,
    ) as (drawn, axes):
        for name, curve in curves.items():
            band(axes, curve[0, :, 0], curve[:, :, 1], name)
    return drawn
