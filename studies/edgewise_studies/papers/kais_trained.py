"""Claims about the paper's networks: K1 and K4 train both halves, K3 (H) and K6 only GPG.

Sizes are cut to what an hour of one core carries, as each claim says. K1, K4: scarce, worlds of 5 frames, 16
an episode, two of each sequence of requests. GPG alone, under greedy dispatch in the compiled engine: scarce
and scarce-complex, worlds of 10 frames, all 8 with the same requests. Trainings are kept in the output
folder: a run that was stopped goes on. Of GPG's, the networks count that were best over 20 episodes.
"""

from dataclasses import replace

import numpy as np

from edgewise import policies
from edgewise.arrays import Floats
from edgewise.learn.harness import write_card
from edgewise.workloads.requests import KINDS
from edgewise_studies.claims import at_least, measured, within
from edgewise_studies.run import Run, band, chart
from edgewise_studies.training.kais.cmmac import DispatchConfig
from edgewise_studies.training.kais.gpg import ScaleConfig
from edgewise_studies.training.kais.judged import Fixed
from edgewise_studies.training.kais.settings import evaluate, setting
from edgewise_studies.training.kais.train import Training, TrainingConfig

BOTH = TrainingConfig(worlds=16, copies=2, episodes=40)  # K1, K4
BOTH_ON, FRAMES_BOTH, FRAMES_GPG = "scarce", 5, 10
SMOOTHING, STEADY = 5, 20  # episodes
GPG = TrainingConfig(dispatch=None, worlds=8, copies=8, episodes=160)  # K3, K6
GPG_RATE = 3e-4  # of Adam; with 1e-3 and 5e-4 some trainings lose again what they had learned
PATTERN_SEEDS, GRAPH_SEEDS, OTHER_SEEDS = 3, 3, 2
HELD_OUT = 10  # test worlds


def trained_claims(run: Run) -> None:
    """K1, K4, K6, and K3's nodes per frame."""
    _patterns(run)
    _balance(run)
    _graph(run)
    _chosen(run)


def _trained(run: Run, name: str, where: str, config: TrainingConfig, kind: str = "P4") -> Training:
    frames = FRAMES_BOTH if config.dispatch else FRAMES_GPG
    teachers = Fixed(policies.load("requests", "greedy"), policies.load("orchestrate", "none"))
    training = Training(setting(where, kind, frames), config, teachers)
    path = run.folder / "trained" / f"{name}.pt"
    best = path.with_name(f"{name}.best.pt") if config.dispatch is None else None  # of GPG alone
    if path.exists():
        training.load(path)

    def keep(figures: object) -> None:
        run.step(f"training {name}: episode {len(training.curve)} of {config.episodes}")
        training.save(path)
        if best is not None and is_best(np.array([line["rate"] for line in training.curve])):
            training.save(best)

    training.train(keep)
    if best is not None:  # some trainings lose again what they had learned
        training.load(best)
    return training


def is_best(rates: Floats) -> bool:
    """Whether the mean over the last STEADY of (E,) episodes is the greatest so far; true before so many."""
    means = smoothed(rates, STEADY)[STEADY - 1 :]
    return means.size == 0 or bool(means[-1] >= means.max())


def _rates(run: Run, where: str, stem: str, config: TrainingConfig, seeds: int = OTHER_SEEDS) -> Floats:
    """(HELD_OUT,) rate of test worlds, mean over trainings; stations, nodes and changes are drawn from π."""
    trainings = [_trained(run, f"{stem}-{seed}", where, replace(config, seed=seed)) for seed in range(seeds)]
    return np.asarray(np.mean([_judged(run, training, stem) for training in trainings], axis=0))


def _judged(run: Run, training: Training, stem: str) -> Floats:
    """(HELD_OUT,) rate of a training's networks on test worlds."""
    name = f"{stem}-{training.config.seed}"
    run.step(f"test worlds: {name}")
    folder = run.folder / "trained"
    card = write_card(folder, name, training.networks(folder / name))
    return evaluate(training.setting, *training.found(card), run.seeds[:HELD_OUT]).throughput_rate


def _size(config: TrainingConfig, seeds: int) -> str:
    return f"{seeds} trainings of {config.episodes} episodes of {config.worlds} worlds"


def _patterns(run: Run) -> None:
    """On test worlds: trained networks against fresh ones, a value per world; patterns against each other."""
    gains, last, curves = [], [], []
    for kind in KINDS:
        trainings = [
            _trained(run, f"k1-{kind}-{seed}", BOTH_ON, replace(BOTH, seed=seed), kind)
            for seed in range(PATTERN_SEEDS)
        ]
        after = np.array([_judged(run, training, f"k1-{kind}") for training in trainings])
        fresh = [Training(each.setting, each.config, each.fixed) for each in trainings]
        before = np.array([_judged(run, training, f"k1-{kind}-fresh") for training in fresh])
        gains.append((after - before).mean(axis=0))
        last.append(after.mean(axis=1))
        curves.append([[line["rate"] for line in training.curve] for training in trainings])
    least = min(gains, key=lambda gain: float(gain.mean()))
    size = f"{BOTH_ON}, {_size(BOTH, PATTERN_SEEDS)}"
    words = ", ".join(f"{k}: {g.mean():+.4f}" for k, g in zip(KINDS, gains, strict=True))
    run.claim("learns", measured(least, f"{size}; {words}"), at_least(0.01))
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
    rates = {
        epsilon: _rates(
            run,
            BOTH_ON,
            "k1-P4" if epsilon == 1.0 else f"k4-{epsilon:g}",  # ε = 1 is K1's
            replace(BOTH, dispatch=DispatchConfig(balance=epsilon)),
        )
        for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0)
    }
    words = ", ".join(f"ε {epsilon:g}: {rate.mean():.4f}" for epsilon, rate in rates.items())
    detail = f"{BOTH_ON}, {_size(BOTH, OTHER_SEEDS)}; {words}"
    run.claim("balance", measured(rates[1.0] / rates[4.0], detail), at_least(1.01))


def _graph(run: Run) -> None:
    for claim, where in (("graph", "scarce"), ("graph-complex", "scarce-complex")):
        rates = {
            body: _rates(
                run, where, f"k6-{where}-{body}", replace(GPG, scale=ScaleConfig(body=body, rate=GPG_RATE))
            )
            for body in ("graph", "stacked")
        }
        words = f"{rates['graph'].mean():.4f} against {rates['stacked'].mean():.4f}"
        detail = f"{where}, greedy dispatch, {_size(GPG, GRAPH_SEEDS)}; {words}"
        run.claim(claim, measured(rates["graph"] / rates["stacked"], detail), at_least(1.01))


def _chosen(run: Run) -> None:
    rates = {
        chosen: _rates(
            run,
            "scarce",
            "k6-scarce-graph" if chosen == 2 else f"k3-{chosen}",  # H = 2 is K6's
            replace(GPG, scale=ScaleConfig(chosen=chosen, rate=GPG_RATE)),
        )
        for chosen in (1, 2, 4)
    }
    words = ", ".join(f"H {chosen}: {rate.mean():.4f}" for chosen, rate in rates.items())
    detail = f"scarce, greedy dispatch, {_size(GPG, OTHER_SEEDS)}; {words}"
    run.claim("nodes", measured(rates[2] / rates[4], detail), at_least(0.98))
