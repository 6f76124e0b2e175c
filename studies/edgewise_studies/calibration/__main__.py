"""`python -m edgewise_studies.calibration`: see the package."""

import time
from pathlib import Path
from typing import Annotated

import typer

from edgewise_studies.calibration import measure, predicates, space
from edgewise_studies.frozen import check_setting, freeze_setting, results_folder, setting_text

NAME = "aset-calibration"
app = typer.Typer(help=__doc__)
Minutes = Annotated[float, typer.Option(help="Begin nothing new after so long.")]
Folder = Annotated[Path, typer.Option("--out", help="Folder of rows, figure and page.")]
FOLDER = results_folder() / NAME


def _setting() -> str:
    return setting_text(predicates.setting())


@app.command()
def freeze() -> None:
    """Fix predicates, ranges and seeds."""
    print(freeze_setting(NAME, _setting(), results_folder()))


@app.command()
def worlds(minutes: Minutes = 3.0, first: int = 0, folder: Folder = FOLDER) -> None:
    """Measure worlds that have not been measured."""
    check_setting(NAME, _setting(), results_folder())
    until = time.monotonic() + 60.0 * minutes
    begun = measure.search(folder / "worlds.csv", range(first, space.WORLDS), until)
    print(f"worlds {first} … {first + begun - 1} are measured")


if __name__ == "__main__":
    app()
