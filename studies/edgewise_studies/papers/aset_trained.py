"""Trainings of `chooser` for ASET's claims: several on each topology, as the cards of what ships say.

They are kept in the output folder: a run that was stopped goes on.
"""

from collections.abc import Mapping
from pathlib import Path

from edgewise.learn import harness, methods
from edgewise_studies.run import Run

SEEDS = tuple(range(0, 100_000, 20_000))  # the first episode's of each training
EPISODES: Mapping[str, int] = {"dc-cloud": 60, "co-dc-cloud": 40, "full-edge": 40, "full-edge-scarce": 40}


def trained(run: Run) -> dict[str, list[str]]:
    """Cards of the trainings on each topology."""
    run.step("trainings")
    tasks = [(run.folder / "trained", topology, seed) for topology in EPISODES for seed in SEEDS]
    cards = iter(run.every(train, tasks))
    return {topology: [str(next(cards)) for _ in SEEDS] for topology in EPISODES}


def train(folder: Path, topology: str, seed: int) -> Path:
    """One training, to its end; what is in the folder is not trained again. Its card."""
    name = f"chooser-{topology}-{seed}"
    card = folder / f"{name}.json"
    if not card.exists():
        scenario, episodes = f"{topology}-published", EPISODES[topology]
        _, trainer, _ = methods.chooser(scenario, episodes=episodes, seed=seed)
        harness.train(trainer, folder, name, command="edgewise reproduce aset", validation=())
    return card
