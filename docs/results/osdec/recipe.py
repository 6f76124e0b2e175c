"""Trains OSDEC by the paper's recipe from five seeds, and sets all trainings beside the rules.

python docs/results/osdec/recipe.py        what is there is not made anew; to train needs torch

The trainings are the cards `osdec-paper-recipe-…` in `training`. It writes recipe.csv, the reward of each and
of each rule on each of 50 validation worlds; recipe-curves.csv, the trainings' curves on 20 of these; and
recipe.png. It prints the interquartile mean of the ratio to each rule over trainings and worlds, with its
interval over the trainings.
"""

import csv
import json

import numpy as np

from edgewise import policies
from edgewise.report.style import png
from edgewise.seeds import VALIDATION
from edgewise.sim.slots.defer import simulate
from edgewise.workloads.deferrable import PAPER, generate
from edgewise_studies.frozen import results_folder
from edgewise_studies.resuming import resumed
from edgewise_studies.run import chart
from edgewise_studies.trainings import interquartile_mean

OUT = results_folder() / "osdec"
TRAININGS = ("0", "1", "2", "3", "4")
WORLDS = VALIDATION[:50]
WATCHED = 20  # of these, by the curves
RULES = ("fifo", "sjf", "tetris")


def main():
    """Train and measure what is missing; draw and print what all comes to."""
    with resumed(OUT / "recipe.csv", ("who", "world", "reward"), keys=1) as (done, write):
        for who in (*RULES, *TRAININGS):
            if (who,) not in done:
                found = simulate(
                    generate(PAPER, WORLDS), policies.load("defer", who if who in RULES else card(who))
                )
                write([(who, w, round(float(r), 2)) for w, r in zip(WORLDS, found.reward, strict=True)])
    with resumed(OUT / "recipe-curves.csv", ("training", "iteration", "reward"), keys=1) as (done, write):
        for seed in (seed for seed in TRAININGS if (seed,) not in done):
            with open(card(seed), encoding="utf-8") as file:
                write([(seed, *point) for point in json.load(file)["curve"]])
    show(rewards())


def card(seed):
    """Where the card of a training is; it is trained if it is not there."""
    path = OUT / "training" / f"osdec-paper-recipe-{seed}.json"
    if not path.is_file():
        from edgewise.learn import harness
        from edgewise_studies.training import methods

        name, trainer, _ = methods.defer("osdec", "paper", "paper", int(seed), 16)
        command = f"edgewise train defer osdec --recipe paper --seed {seed} --iterations 16"
        harness.train(trainer, path.parent, name, command=command, validation=WORLDS)
    return str(path)


def rewards():
    """(worlds,) of each rule and training."""
    found = {}
    with (OUT / "recipe.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["who"], []).append(float(row["reward"]))
    return {who: np.array(each) for who, each in found.items()}


def show(found):
    """Print ratios, and draw curves with the rules' levels."""
    scores = np.array([found[seed] for seed in TRAININGS])
    print("mean reward of each training:", ", ".join(f"{each:.0f}" for each in scores.mean(axis=1)))
    for rule in RULES:
        one = interquartile_mean(scores / found[rule])
        print(f"over {rule} {one.estimate:.4f} [{one.ci[0]:.4f}, {one.ci[1]:.4f}]")
    curves = {}
    with (OUT / "recipe-curves.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            curves.setdefault(row["training"], []).append((int(row["iteration"]), float(row["reward"])))
    title = "OSDEC trained by the paper's recipe from five seeds; 20 validation worlds"
    with chart(7.5, 4.2, title, "iteration of 2,048 slots", "total reward", 4) as (figure, axes):
        for seed, points in curves.items():
            axes.plot(*zip(*points, strict=True), label=f"seed {seed}")
        for style, rule in zip((":", "-.", "--"), RULES, strict=True):
            axes.axhline(
                found[rule][:WATCHED].mean(), color="black", linestyle=style, linewidth=0.8, label=rule
            )
    png(figure, OUT / "recipe.png")


if __name__ == "__main__":
    main()
