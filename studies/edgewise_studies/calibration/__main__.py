"""`python -m edgewise_studies.calibration`: see the package."""

import time
from pathlib import Path
from typing import Annotated

import typer

from edgewise_studies.calibration import (
    best,
    fitting,
    learned,
    measure,
    page,
    predicates,
    room,
    slices,
    space,
)
from edgewise_studies.frozen import check_setting, freeze_setting, results_folder, setting_text

NAME = "aset-calibration"
CHOSEN = fitting.NAME
app = typer.Typer(help=__doc__)
Minutes = Annotated[float, typer.Option(help="Begin nothing new after so long.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder of rows, figure and page.")]
Work = Annotated[Path, typer.Option(help="Folder of trainings under way.")]
FOLDER, WORK = results_folder() / NAME, Path("runs") / NAME


def _setting() -> str:
    return setting_text(predicates.setting())


@app.command()
def freeze() -> None:
    """Fix predicates, ranges and seeds."""
    print(freeze_setting(NAME, _setting(), results_folder()))


@app.command()
def worlds(minutes: Minutes = 3.0, first: int = space.SHIPPED, folder: Folder = FOLDER) -> None:
    """Measure worlds that have not been measured, and the one that ships."""
    check_setting(NAME, _setting(), results_folder())
    until = time.monotonic() + 60.0 * minutes
    begun = measure.search(folder / "worlds.csv", range(first, space.WORLDS), until)
    print(f"worlds {first} … {first + begun - 1} are measured")


@app.command()
def choose(folder: Folder = FOLDER) -> None:
    """Fix the worlds that fit, by the frozen rule."""
    chosen = fitting.choose(measure.read(folder / "worlds.csv"))
    text = setting_text(fitting.described(chosen))
    print(chosen, freeze_setting(CHOSEN, text, results_folder()))


@app.command(name="room")
def explore(minutes: Minutes = 3.0, seeds: int = 3, folder: Folder = FOLDER) -> None:
    """Measure what one who knows what comes gains in the worlds that fit, and in the one that ships."""
    until, chosen = time.monotonic() + 60.0 * minutes, fitting.frozen(results_folder())
    rows = room.explore(folder, [space.SHIPPED, *chosen], predicates.ROOM_SEEDS[:seeds], until)
    print(f"{rows} rows")


@app.command(name="slices")
def widely(minutes: Minutes = 3.0, folder: Folder = FOLDER) -> None:
    """Estimate the same in slices, in the worlds that fit and then in all."""
    until, chosen = time.monotonic() + 60.0 * minutes, fitting.frozen(results_folder())
    print(f"{slices.explore(folder / 'slices.csv', chosen, until)} cells")


@app.command(name="learned")
def train(minutes: Minutes = 3.0, folder: Folder = FOLDER, work: Work = WORK) -> None:
    """Train ASET as published in the worlds that fit and in the one that ships; needs torch."""
    until, chosen = time.monotonic() + 60.0 * minutes, fitting.frozen(results_folder())
    print(f"{learned.explore(folder, work, [space.SHIPPED, *chosen], until)} trainings")


@app.command(name="tune")
def vary(minutes: Minutes = 3.0, folder: Folder = FOLDER, work: Work = WORK) -> None:
    """Train ASET as published with other constants, which its paper does not print; needs torch."""
    print(f"{learned.tune(folder, work, time.monotonic() + 60.0 * minutes)} trainings")


@app.command(name="best")
def keep(minutes: Minutes = 3.0, folder: Folder = FOLDER, work: Work = WORK) -> None:
    """Train ASET as published, and give the best of its networks on the way beside the last; needs torch."""
    print(f"{best.explore(folder, work, time.monotonic() + 60.0 * minutes)} trainings")


@app.command(name="page")
def show(folder: Folder = FOLDER) -> None:
    """Write figures and page."""
    print(page.write(folder, fitting.frozen(results_folder())))


if __name__ == "__main__":
    app()
