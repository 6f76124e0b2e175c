"""Claims about training: K1, K4 and K6, with the paper's networks on the small system.

Each training is 20 episodes of 16 worlds, as `edgewise train kais --method paper` does it, and is kept in
the output folder: a run that was stopped goes on. K6's complex size is left to `edgewise train kais
--scenario edge-cloud-complex`: hours on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgewise.learn.orchestration import run as runs
from edgewise.learn.orchestration.cmmac import DispatchConfig
from edgewise.learn.orchestration.export import export
from edgewise.learn.orchestration.gpg import ScaleConfig
from edgewise.learn.orchestration.settings import setting
from edgewise.learn.orchestration.train import Config, Training, evaluate
from edgewise.report.figures import new_axes
from edgewise.reproduce.claims import at_least, measured, within
from edgewise.reproduce.run import Run
from edgewise.workloads.requests import KINDS

Floats = NDArray[np.float64]
EPISODES, WORLDS = 20, 16
TRAINING_SEEDS = 3
WHERE = "edge-cloud-small"


def trained_claims(run: Run) -> None:
    """K1, K4, K6."""
    _patterns(run)
    _balance(run)
    _graph(run)


def _trained(run: Run, name: str, config: Config, kind: str = "P4") -> Training:
    training = Training(setting(WHERE, kind), config, runs.fixed())
    path = run.folder / "trained" / f"{name}.pt"
    if path.exists():
        training.load(path)
    run.step(f"training {name}")

    def keep(line: object) -> None:
        run.step(f"training {name}: episode {len(training.curve)} of {config.episodes}")
        training.save(path)

    training.train(keep)
    return training


def _rates(run: Run, training: Training, name: str) -> Floats:
    """(seeds,) rate on the test seeds without exploration."""
    card: Path = export(training, run.folder / "trained", name, {})
    rates: Floats = evaluate(
        training.setting, *runs.policies_of(training, card), run.seeds[:10]
    ).throughput_rate
    return rates


def _config(seed: int, epsilon: float = 1.0, body: str = "graph") -> Config:
    return Config(DispatchConfig(balance=epsilon), ScaleConfig(body=body), WORLDS, EPISODES, seed)


def _patterns(run: Run) -> None:
    """The mean of the last quarter of episodes against that of the first; one value per training seed."""
    drawn, axes = new_axes(6.4, 3.6, "Throughput rate in training, with exploration")
    gains, last = [], []
    for kind in KINDS:
        curves = [
            [line.rate for line in _trained(run, f"k1-{kind}-{seed}", _config(seed), kind).curve]
            for seed in range(TRAINING_SEEDS)
        ]
        part = max(1, EPISODES // 4)
        gains.append(np.array([np.mean(c[-part:]) - np.mean(c[:part]) for c in curves]))
        last.append(np.array([np.mean(c[-part:]) for c in curves]))
        axes.plot(np.mean(curves, axis=0), label=kind)
    axes.legend(frameon=False)
    axes.set_xlabel("episode")
    run.figure("k1", drawn)
    least = min(gains, key=lambda gain: float(gain.mean()))
    words = ", ".join(f"{k}: {g.mean():+.4f}" for k, g in zip(KINDS, gains, strict=True))
    run.claim("learns", measured(least, words), at_least(1e-9))
    spread = np.max(last, axis=0) - np.min(last, axis=0)
    run.claim("gap", measured(spread, "largest less smallest rate"), within(0.0, 0.045))


def _balance(run: Run) -> None:
    rates = {}
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        found = [
            _rates(run, _trained(run, f"k4-{epsilon}-{seed}", _config(seed, epsilon)), f"k4-{epsilon}-{seed}")
            for seed in range(TRAINING_SEEDS)
        ]
        rates[epsilon] = np.mean(found, axis=1)
    words = ", ".join(f"ε {epsilon:g}: {rate.mean():.4f}" for epsilon, rate in rates.items())
    run.claim("balance", measured(rates[1.0] / rates[4.0], words), at_least(1.01))


def _graph(run: Run) -> None:
    rates = {
        body: np.mean(
            [
                _rates(run, _trained(run, f"k6-{body}-{seed}", _config(seed, body=body)), f"k6-{body}-{seed}")
                for seed in range(TRAINING_SEEDS)
            ],
            axis=1,
        )
        for body in ("graph", "stacked")
    }
    words = f"small size; {rates['graph'].mean():.4f} against {rates['stacked'].mean():.4f}"
    run.claim("graph", measured(rates["graph"] / rates["stacked"], words), at_least(1.0))
