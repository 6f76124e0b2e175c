"""`edgewise train`: policies that learn."""

from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.commands import Offered, verbs
from edgewise.cli.output import Json, answer, check_folder, command, err, out, stopping
from edgewise.errors import extra


class Trainers(Offered):
    """What can be trained; other packages offer more."""

    offered = "edgewise.commands.train"


app = verbs()
NAME = typer.Option(help="Of the files; by default it says what is trained.")
SCENARIO = typer.Option(help="A shipped scenario, or a file.")
EPISODES = typer.Option(min=1, help="Of training, each with a seed of its own.")
SEED = typer.Option(min=0, max=400_000, help="The first episode's.")
OUT = typer.Option("--out", help="Folder of the files.")
TENSORBOARD = typer.Option("--tensorboard", help="Write events for TensorBoard.")
training = typer.Typer(
    cls=Trainers,
    no_args_is_help=True,
    help="Train a policy and export it as ONNX with its card.",
    epilog="Example: edgewise train chooser --scenario full-edge",
)
app.add_typer(training, name="train")


def trained(
    what: str, folder: Path, name: str, tensorboard: bool, as_json: bool = False, **options: Any
) -> None:
    """Train by a method of `learn.methods`, and say where the policy is."""
    check_folder("--out", folder)
    with extra("learn", "training"):
        from edgewise.learn import methods  # slow to import, and needs an extra
    kept = f"what was saved in {folder} is kept; the same command goes on from there"
    with stopping(lambda: kept), err.status("starting") as status:
        card = methods.train(
            what,
            folder,
            name,
            command=command(),
            tensorboard=tensorboard,
            step=status.update,
            **options,
        )
    answer({"policy": str(card)}, as_json, lambda: out.print(f"policy: [bold]{card}[/bold]"))


@training.command(epilog="Example: edgewise train chooser --scenario full-edge --out runs/chooser")
def chooser(
    scenario: Annotated[str, SCENARIO] = "full-edge",
    state: Annotated[
        str, typer.Option(help="'history': ASET's network; 'pooled': any number of workers.")
    ] = "history",
    improve: Annotated[
        str,
        typer.Option(help="Any of double, dueling, n-step, prioritised, best; 'none': algorithm 1 as it is."),
    ] = "double,dueling,n-step,best",
    episodes: Annotated[int, EPISODES] = 40,
    seed: Annotated[int, SEED] = 0,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, OUT] = Path("runs/chooser"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
    as_json: Json = False,
) -> None:
    """Train by DQN a network that chooses among nine static policies.

    A stopped training goes on where it was saved.
    """
    trained(
        "chooser",
        folder,
        name,
        tensorboard,
        as_json,
        scenario=scenario,
        state=state,
        improve=improve,
        episodes=episodes,
        seed=seed,
    )


@training.command(epilog="Example: edgewise train aset --scenario full-edge --out runs/aset")
def aset(
    scenario: Annotated[str, SCENARIO] = "full-edge",
    episodes: Annotated[int, EPISODES] = 40,
    seed: Annotated[int, SEED] = 0,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, OUT] = Path("runs/aset"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
    as_json: Json = False,
) -> None:
    """Train ASET as published: its seven policies, its state, algorithm 1 as printed.

    A stopped training goes on where it was saved.
    """
    trained("aset", folder, name, tensorboard, as_json, scenario=scenario, episodes=episodes, seed=seed)
