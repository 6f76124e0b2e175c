"""Methods of training that `edgewise train` offers beside its own, each with the options of a paper."""

import math
from dataclasses import replace

from edgewise import policies
from edgewise.learn.harness import Trainer
from edgewise.learn.methods import JUDGED, Prepared, check_choice
from edgewise.policies.requests.rules import Weighted
from edgewise_studies.training.kais.judged import Fixed
from edgewise_studies.training.kais.settings import setting
from edgewise_studies.training.kais.train import (
    METHODS as KAIS,
    WEIGHTS,
    EvolveConfig,
    Search,
    Training,
    first_vector,
)
from edgewise_studies.training.osdec.networks import VARIANTS, tuned
from edgewise_studies.training.osdec.ppo import PpoTrainer
from edgewise_studies.training.osdec.situations import name_of, situations


def defer(
    method: str = "osdec", situation: str = "paper", recipe: str = "ours", seed: int = 0, iterations: int = 16
) -> Prepared:
    """OSDEC or a variant of it: when deferrable jobs start."""
    check_choice("method", method, VARIANTS)
    check_choice("--situation", situation, situations())
    check_choice("--recipe", recipe, ("ours", "paper"))
    pattern, objective = situations()[situation]
    config = VARIANTS[method] if recipe == "paper" else tuned(VARIANTS[method])
    trainer = PpoTrainer(config, pattern, seed, iterations, objective)
    return name_of(method, seed, situation, recipe), trainer, JUDGED


def kais(
    scenario: str = "scarce",
    pattern: str = "P4",
    method: str = "improved",
    half: str = "both",
    episodes: int = 20,
    worlds: int = 32,
    frames: int = 10,
    seed: int = 0,
) -> Prepared:
    """KaiS's dispatch of requests and orchestration, or one of them, by policy gradients or by search."""
    check_choice("--method", method, (*KAIS, "evolved"))
    check_choice("--half", half, ("both", "requests", "orchestrate"))
    where = setting(scenario, pattern, frames)
    trainer: Trainer
    if method == "evolved":
        trainer = Search(where, EvolveConfig(half, episodes, worlds=worlds, seed=seed))
    else:
        copies = math.gcd(KAIS[method].copies, worlds)
        config = replace(KAIS[method], worlds=worlds, copies=copies, episodes=episodes, seed=seed)
        if half == "requests":
            config = replace(config, scale=None)
        elif half == "orchestrate":
            config = replace(config, dispatch=None)
        trainer = Training(where, config, teachers())
    return f"kais-{method}-{scenario}", trainer, JUDGED[:5]


def teachers() -> Fixed:
    """What is imitated first, and runs in place of a half that does not learn: where evolution starts."""
    return Fixed(Weighted(first_vector()[:WEIGHTS]), policies.load("orchestrate", "marginal"))
