"""KaiS as published: what its paper leaves open, tried in recipes on validation seeds.

    python -m edgewise_studies.training.kais.published --minutes 30

Networks and rewards are the paper's in every recipe, and so are rules of learning in "printed". The others
have four things besides, without which dispatch hardly learns (`cmmac`): V' follows every frame, V has an
episode for itself, advantages are centred, and drawn actions are kept apart. The paper does not say how far
ahead a slot looks, how strongly drawn actions are kept apart, how many worlds an episode has, how long one
trains, or whether orchestration learns beside dispatch or by itself. Each recipe is trained once on `scarce`
with the paper's sequences and judged on validation seeds; rows go to docs/results/kais-published/tuning.csv,
and what is there is not trained again.

Our own method was searched for once, 24 generations of 24 candidates.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from edgewise import policies
from edgewise.learn.harness import about, write_card
from edgewise.seeds import VALIDATION, only_validation_seeds
from edgewise_studies.frozen import results_folder
from edgewise_studies.resuming import resumed
from edgewise_studies.training.kais.cmmac import DispatchConfig
from edgewise_studies.training.kais.gpg import ScaleConfig
from edgewise_studies.training.kais.judged import Fixed
from edgewise_studies.training.kais.settings import evaluate, setting
from edgewise_studies.training.kais.train import (
    METHODS,
    Training,
    TrainingConfig,
    train_keeping_best,
    untrained,
)

NAME = "kais-published"
WHERE, KIND, FRAMES = "scarce", "sequences", 10
TRIED = 0  # seed of the trainings by which a recipe is chosen
JUDGED = VALIDATION[:10]
COLUMNS = ("recipe", "training", "rate", "cost_bytes")
CHECKED, CHECKS = VALIDATION[10:18], 20  # worlds by which networks are chosen; how often in a training
Step = Callable[[str], None]


BASE = replace(METHODS["paper"], worlds=16, copies=2, episodes=40)
BOTH: Mapping[str, TrainingConfig] = {
    "base": BASE,
    "near": replace(BASE, dispatch=DispatchConfig(gamma=0.9)),
    "sure": replace(BASE, dispatch=DispatchConfig(entropy=0.05)),
    "alike": replace(BASE, copies=8),
    "printed": replace(BASE, dispatch=DispatchConfig(printed=True, entropy=0.0)),
}
GPG = TrainingConfig(dispatch=None, scale=ScaleConfig(rate=3e-4), worlds=8, copies=8, episodes=160)
GPG_NAME = "gpg"
# A GPG that learned by itself under greedy dispatch, beside the cMMAC of another recipe.
APART: Mapping[str, str] = {"apart": "base", "near-apart": "near", "printed-apart": "printed"}
RECIPES = (*BOTH, *APART)


class Cards(NamedTuple):
    """Where the networks of both halves are."""

    requests: str
    orchestrate: str

    def load(self) -> Fixed:
        """Policies of them."""
        return Fixed(policies.load("requests", self.requests), policies.load("orchestrate", self.orchestrate))


def train(work: Path, recipe: str, seed: int, step: Step = lambda said: None) -> Cards:
    """Both halves of KaiS, trained by a recipe; what is in the folder is not trained again.

    Args:
        work: of trainings under way and cards.
        recipe: one of RECIPES.
        seed: 0 … 19, of weights and worlds.
        step: told of every episode.
    """
    beside = APART.get(recipe, recipe)
    cmmac = str(_trained(work, beside, replace(BOTH[beside], seed=seed), step))
    if recipe not in APART:
        return Cards(cmmac, cmmac)
    return Cards(cmmac, str(_trained(work, GPG_NAME, replace(GPG, seed=seed), step)))


def curve(card: str) -> list[float]:
    """Rate of each episode of a training that is over."""
    return [rate for _, rate in json.loads(Path(card).read_text(encoding="utf-8"))["curve"]]


def _trained(work: Path, name: str, config: TrainingConfig, step: Step) -> Path:
    """The card of a training: of its networks, those that did best where they were checked.

    What one episode has learned of dispatch another may lose again: from 0.57 to 0.46 within two of them.
    """
    training = Training(setting(WHERE, KIND, FRAMES), config, untrained())
    stem = work / f"{name}-{config.seed}"
    card, saved, best = (stem.with_name(f"{stem.name}{end}") for end in (".json", ".pt", ".best.pt"))
    rows = stem.with_name(f"{stem.name}.checked.csv")
    if card.exists():
        return card

    def better() -> bool:
        episode = len(training.curve)
        return episode % max(1, config.episodes // CHECKS) == 0 and _checked(rows, episode, training, stem)

    def tell(figures: Mapping[str, float]) -> None:
        step(f"training {stem.name}: episode {len(training.curve)} of {config.episodes}: {figures}")

    train_keeping_best(training, saved, best, better, tell)
    said = about(training, f"python -m {__spec__.name}", CHECKED)
    training.load(best)
    return write_card(work, stem.name, said | training.networks(stem))


def _checked(rows: Path, episode: int, training: Training, stem: Path) -> bool:
    """Whether networks do better on validation worlds than those of any episode before."""
    drafts = stem.with_name(f"{stem.name}-now")
    found = training.found(write_card(drafts.parent, drafts.name, training.networks(drafts)))
    with rows.open("a+", encoding="utf-8") as file:
        file.seek(0)
        before = [float(line.split(",")[1]) for line in file if int(line.split(",")[0]) < episode]
        rate, _ = judged(found, CHECKED)
        file.write(f"{episode},{rate}\n")
    return rate > max(before, default=0.0)


def main() -> None:
    """Train and judge what has no row yet."""
    parser = argparse.ArgumentParser(prog="python -m edgewise_studies.training.kais.published")
    parser.add_argument("--minutes", type=float, default=30.0, help="begin nothing new after so long")
    parser.add_argument("--work", type=Path, default=Path("runs") / NAME, help="of trainings under way")
    asked = parser.parse_args()
    until = time.monotonic() + 60.0 * asked.minutes
    only_validation_seeds(JUDGED)
    place = results_folder() / NAME
    place.mkdir(exist_ok=True)
    with resumed(place / "tuning.csv", COLUMNS, 1) as (done, write):
        for recipe in RECIPES:
            if (recipe,) not in done and time.monotonic() < until:
                cards = train(asked.work, recipe, TRIED, lambda said: print(said, flush=True))
                write([(recipe, TRIED, *judged(cards.load(), JUDGED))])


def judged(found: Fixed, seeds: Sequence[int]) -> tuple[float, int]:
    """Rate and bytes of a world, means over seeds."""
    outcome = evaluate(setting(WHERE, KIND, FRAMES), *found, seeds)
    return round(float(outcome.throughput_rate.mean()), 5), round(
        float(outcome.cost_bytes.sum(axis=1).mean())
    )


if __name__ == "__main__":
    main()
