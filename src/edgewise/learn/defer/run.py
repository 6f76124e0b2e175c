"""One training run from start to shipped file: train, look at validation worlds, export with a card."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from edgewise import policies
from edgewise.core.deferral import Objective
from edgewise.errors import PolicyError
from edgewise.learn.defer.export import export, name_of
from edgewise.learn.defer.ppo import VARIANTS, Agent, Progress, evaluate, train, tuned
from edgewise.model.deferrable import DeferralPattern
from edgewise.sim.slots.defer import simulate
from edgewise.workloads.deferrable import PAPER, cases, generate

VALIDATION = range(500_000, 500_050)
WATCHED = VALIDATION[:20]  # worlds of the training curve
EVERY = 2  # iterations between two points of it
RECIPES = ("ours", "paper")
RIVALS = ("fifo", "sjf", "tetris")


def situations() -> dict[str, tuple[DeferralPattern, Objective]]:
    """What policies are trained on: worlds and objective, by name."""
    found = {"paper": (PAPER, Objective())}
    found |= {name: (pattern, Objective()) for name, pattern in cases().items()}
    found["utilisation"] = (PAPER, Objective(delay=0.0))
    found["real-time"] = (PAPER.real_time(), Objective(delay=0.0))
    return found


def _check(what: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise PolicyError(f"{what}: {value!r} is none of {', '.join(choices)}")


def make(
    method: str,
    seed: int,
    iterations: int,
    folder: Path,
    situation: str = "paper",
    recipe: str = "ours",
    name: str = "",
    tell: Callable[[str], None] = lambda text: None,
) -> Path:
    """Train one policy and write NAME.onnx and its card.

    Args:
        method: one of `VARIANTS`.
        seed: 0 … 19.
        situation: one of `situations()`.
        recipe: "ours", or "paper" for the paper's hyper-parameters.
        name: METHOD-SEED by default, with situation and recipe where they are not the first.
    Raises:
        PolicyError: method, situation or recipe is unknown.
    """
    _check("method", method, VARIANTS)
    _check("situation", situation, situations())
    _check("recipe", recipe, RECIPES)
    pattern, objective = situations()[situation]
    config = VARIANTS[method] if recipe == "paper" else tuned(VARIANTS[method])
    name = name or name_of(method, seed, situation, recipe)
    curve: list[tuple[int, float]] = []

    def watch(line: Progress, agent: Agent) -> None:
        if line.iteration % EVERY == EVERY - 1:
            seen = evaluate(agent, pattern, WATCHED, objective)
            curve.append((line.iteration + 1, round(float(seen.reward.mean()), 2)))
            tell(f"{name}: iteration {line.iteration + 1} of {iterations}, {curve[-1][1]:.0f}")

    began_s = time.process_time()
    agent, _ = train(config, pattern, seed, iterations, objective, watch)
    outcome = evaluate(agent, pattern, VALIDATION, objective)
    worlds = generate(pattern, VALIDATION)
    rivals = {
        rule: simulate(worlds, policies.load("defer", rule), objective).reward.mean() for rule in RIVALS
    }
    about = {
        "command": f"edgewise train defer {method} --situation {situation} --recipe {recipe} --seed {seed}"
        f" --iterations {iterations}",
        "method": method,
        "situation": situation,
        "recipe": recipe,
        "seed": seed,
        "iterations": iterations,
        "cpu_s": round(time.process_time() - began_s, 1),
        "pattern_sha256": pattern.sha256(),
        "slot_s": pattern.slot_s,
        "validation": {
            "seeds": [VALIDATION.start, VALIDATION.stop],
            "total_reward": round(float(outcome.reward.mean()), 2),
            **{rule: round(float(value), 2) for rule, value in rivals.items()},
        },
        "curve": curve,
    }
    return export(agent, folder, name, about)
