"""What is trained for KaiS's claims: searches of ours, and the paper's networks.

Claims about the paper's networks: K1 and K4 train both halves, K3 (H) and K6 only GPG.

Sizes are cut to what some minutes of one core carry, as each claim says. K1, K4: scarce, worlds of 5 frames,
16 an episode, two of each sequence of requests. GPG alone, under greedy dispatch in the compiled engine:
scarce and scarce-complex, worlds of 10 frames, all 8 with the same requests. Trainings are kept in the
output folder: a run that was stopped goes on. Of GPG's, the networks count that were best over 20 episodes.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats
from edgewise.learn import harness
from edgewise.workloads.requests import KINDS
from edgewise_studies.claims import at_least, measured, within
from edgewise_studies.papers.kais import VALIDATED
from edgewise_studies.run import Run, band, chart
from edgewise_studies.training.kais.cmmac import DispatchConfig
from edgewise_studies.training.kais.gpg import ScaleConfig
from edgewise_studies.training.kais.settings import evaluate, setting
from edgewise_studies.training.kais.train import (
    EvolveConfig,
    Search,
    Training,
    TrainingConfig,
    train_keeping_best,
    untrained,
)
from edgewise_studies.trainings import crossed

BOTH = TrainingConfig(worlds=16, copies=2, episodes=40)  # K1, K4
BOTH_ON, FRAMES_BOTH, FRAMES_GPG = "scarce", 5, 10
SMOOTHING, STEADY = 5, 20  # episodes
GPG = TrainingConfig(dispatch=None, worlds=8, copies=8, episodes=160)  # K3, K6
GPG_RATE = 3e-4  # of Adam; with 1e-3 and 5e-4 some trainings lose again what they had learned
SEEDS = 5  # trainings and searches of each
EVOLVED = EvolveConfig(generations=24, worlds=12)  # as the card of what ships has it
HELD_OUT = 10  # test worlds
WEIGHTS_OF_BALANCE = (0.0, 0.5, 1.0, 2.0, 4.0)
CHOSEN = (1, 2, 4)
BODIES = ("graph", "stacked")
SIZES = {"graph": "scarce", "graph-complex": "scarce-complex"}  # by ids of claims


class Planned(NamedTuple):
    """What is trained, SEEDS times: a setting, how, and the pattern of requests."""

    where: str
    config: TrainingConfig
    kind: str = "P4"


def plan() -> Mapping[str, Planned]:
    """Every training, by the stem of its files."""
    found = {f"k1-{kind}": Planned(BOTH_ON, BOTH, kind) for kind in KINDS}
    for weight in WEIGHTS_OF_BALANCE:
        found.setdefault(
            _of_balance(weight), Planned(BOTH_ON, replace(BOTH, dispatch=DispatchConfig(balance=weight)))
        )
    for where in SIZES.values():
        for body in BODIES:
            scale = ScaleConfig(body=body, rate=GPG_RATE)
            found[f"k6-{where}-{body}"] = Planned(where, replace(GPG, scale=scale))
    for chosen in CHOSEN:
        scale = ScaleConfig(chosen=chosen, rate=GPG_RATE)
        found.setdefault(_of_chosen(chosen), Planned("scarce", replace(GPG, scale=scale)))
    return found


def _of_balance(weight: float) -> str:
    return "k1-P4" if weight == 1.0 else f"k4-{weight:g}"  # ε = 1 is K1's


def _of_chosen(chosen: int) -> str:
    return "k6-scarce-graph" if chosen == 2 else f"k3-{chosen}"  # H = 2 is K6's


def searched(run: Run) -> list[str]:
    """Cards of SEEDS searches of ours."""
    run.step("searches")
    cards = run.every(search, [(run.folder / "trained", seed) for seed in range(SEEDS)])
    curves = [[goal for _, goal in json.loads(card.read_text(encoding="utf-8"))["curve"]] for card in cards]
    title, below = "Goal of the middle of a search: rate less price of bytes", f"generation; {SEEDS} searches"
    with chart(6.4, 3.6, title, below) as (drawn, axes):
        band(axes, np.arange(1, EVOLVED.generations + 1), np.array(curves), "edgewise (evolved)")
    run.figure("searches", drawn)
    return [str(card) for card in cards]


def search(folder: Path, seed: int) -> Path:
    """One search on sequences, to its end; what is in the folder is gone on with. Its card."""
    name = f"evolved-{seed}"
    card = folder / f"{name}.json"
    if not card.exists():
        trainer = Search(setting(BOTH_ON, "sequences"), replace(EVOLVED, seed=seed))
        harness.train(trainer, folder, name, command="edgewise reproduce kais", validation=VALIDATED)
    return card


def trained_claims(run: Run) -> None:
    """K1, K4, K6, and K3's nodes per frame."""
    run.step("trainings")
    run.every(
        train,
        [(run.folder / "trained", stem, how, seed) for stem, how in plan().items() for seed in range(SEEDS)],
    )
    _patterns(run)
    _balance(run)
    _graph(run)
    _chosen(run)


def train(folder: Path, stem: str, how: Planned, seed: int) -> None:
    """One training, to its end; what is in the folder is gone on with."""
    training, path = _fresh(how, seed), folder / f"{stem}-{seed}.pt"

    def better() -> bool:  # of GPG alone, of which some trainings lose again what they had learned
        return how.config.dispatch is None and is_best(np.array([line["rate"] for line in training.curve]))

    train_keeping_best(training, path, _best(path), better)


def _best(path: Path) -> Path:
    return path.with_name(f"{path.stem}.best.pt")


def _fresh(how: Planned, seed: int) -> Training:
    frames = FRAMES_BOTH if how.config.dispatch else FRAMES_GPG
    return Training(setting(how.where, how.kind, frames), replace(how.config, seed=seed), untrained())


def _trained(run: Run, stem: str) -> list[Training]:
    """The trainings of a stem as they ended; GPG's as it was at its best."""
    how, found = plan()[stem], []
    for seed in range(SEEDS):
        training, path = _fresh(how, seed), run.folder / "trained" / f"{stem}-{seed}.pt"
        training.load(path if how.config.dispatch else _best(path))
        found.append(training)
    return found


def is_best(rates: Floats) -> bool:
    """Whether the mean over the last STEADY of (E,) episodes is the greatest so far; true before so many."""
    means = smoothed(rates, STEADY)[STEADY - 1 :]
    return means.size == 0 or bool(means[-1] >= means.max())


def _rates(run: Run, stem: str) -> Floats:
    """(SEEDS, HELD_OUT) rate of each training on test worlds; stations, nodes, changes are drawn from π."""
    return np.array([_judged(run, training, stem) for training in _trained(run, stem)])


def _judged(run: Run, training: Training, stem: str) -> Floats:
    """(HELD_OUT,) rate of a training's networks on test worlds."""
    name = f"{stem}-{training.config.seed}"
    run.step(f"test worlds: {name}")
    folder = run.folder / "trained"
    card = harness.write_card(folder, name, training.networks(folder / name))
    return evaluate(training.setting, *training.found(card), run.seeds[:HELD_OUT]).throughput_rate


def _size(config: TrainingConfig) -> str:
    return f"{SEEDS} trainings of {config.episodes} episodes of {config.worlds} worlds"


def _patterns(run: Run) -> None:
    """On test worlds: trained networks against fresh ones, and patterns against each other."""
    gains, last, curves = [], [], []
    for kind in KINDS:
        stem = f"k1-{kind}"
        trainings, how = _trained(run, stem), plan()[stem]
        after = np.array([_judged(run, training, stem) for training in trainings])
        fresh = [_fresh(how, seed) for seed in range(SEEDS)]
        before = np.array([_judged(run, training, f"{stem}-fresh") for training in fresh])
        gains.append(after - before)
        last.append(after.mean(axis=1))
        curves.append([[line["rate"] for line in training.curve] for training in trainings])
    least = min(gains, key=lambda gain: float(gain.mean()))
    size = f"{BOTH_ON}, {_size(BOTH)}"
    words = ", ".join(f"{k}: {g.mean():+.4f}" for k, g in zip(KINDS, gains, strict=True))
    run.claim("learns", crossed(least, f"{size}; {words}"), at_least(0.01))
    spread = np.max(last, axis=0) - np.min(last, axis=0)
    words = ", ".join(f"{k}: {x.mean():.4f}" for k, x in zip(KINDS, last, strict=True))
    run.claim("gap", measured(spread, f"{size}; {words}"), within(0.0, 0.045))
    _frames(run, smoothed(np.array(curves)), size)


def _frames(run: Run, curves: Floats, size: str) -> None:
    """Frames that P4 takes against the others, a ratio per training seed; curves (pattern, seed, episode)."""
    frames = FRAMES_BOTH * BOTH.worlds * np.array([[settled(curve) for curve in each] for each in curves])
    ratio = frames[-1] / frames[:-1].mean(axis=0)
    words = ", ".join(f"{k}: {x.mean():.0f}" for k, x in zip(KINDS, frames, strict=True))
    run.claim("frames-raw", measured(ratio, f"{size}; frames until settled, {words}"), at_least(1.2))
    x = FRAMES_BOTH * BOTH.worlds * np.arange(1, curves.shape[2] + 1)
    title, below = (
        "Throughput rate in training, with exploration",
        "frames, of all worlds; bands: all trainings",
    )
    with chart(6.4, 3.6, title, below, columns=4) as (drawn, axes):
        for kind, each in zip(KINDS, curves, strict=True):
            band(axes, x, each, kind)
    run.figure("k1", drawn)


def smoothed(curves: Floats, over: int = SMOOTHING) -> Floats:
    """(…, E) each episode's mean with the `over` - 1 before it, or as many as there are."""
    total = np.cumsum(np.concatenate([np.zeros((*curves.shape[:-1], 1)), curves], axis=-1), axis=-1)
    end = np.arange(1, curves.shape[-1] + 1)
    begin = np.maximum(end - over, 0)
    return np.asarray((total[..., end] - total[..., begin]) / (end - begin))


def settled(curve: Floats) -> int:
    """Episodes until a smoothed (E,) curve has gained 90 % of what it gains in all.

    It starts at its first SMOOTHING episodes and ends at the mean of the last fifth; a curve that gains
    nothing settles at its end.
    """
    first, last = curve[min(SMOOTHING, curve.size) - 1], curve[-max(1, curve.size // 5) :].mean()
    there = np.flatnonzero(curve >= first + 0.9 * (last - first))
    return int(there[0]) + 1 if last > first and there.size else curve.size


def _balance(run: Run) -> None:
    rates = {weight: _rates(run, _of_balance(weight)) for weight in WEIGHTS_OF_BALANCE}
    words = ", ".join(f"ε {weight:g}: {rate.mean():.4f}" for weight, rate in rates.items())
    detail = f"{BOTH_ON}, {_size(BOTH)}; {words}"
    run.claim("balance", crossed(rates[1.0] / rates[4.0], detail), at_least(1.01))


def _graph(run: Run) -> None:
    for claim, where in SIZES.items():
        graph, stacked = (_rates(run, f"k6-{where}-{body}") for body in BODIES)
        words = f"{graph.mean():.4f} against {stacked.mean():.4f}"
        detail = f"{where}, greedy dispatch, {_size(GPG)}; {words}"
        run.claim(claim, crossed(graph / stacked, detail), at_least(1.01))


def _chosen(run: Run) -> None:
    rates = {chosen: _rates(run, _of_chosen(chosen)) for chosen in CHOSEN}
    words = ", ".join(f"H {chosen}: {rate.mean():.4f}" for chosen, rate in rates.items())
    detail = f"scarce, greedy dispatch, {_size(GPG)}; {words}"
    run.claim("nodes", crossed(rates[2] / rates[4], detail), at_least(0.98))
