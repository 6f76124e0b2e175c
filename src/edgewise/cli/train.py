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
TENSORBOARD = typer.Option("--tensorboard", help="Write events for TensorBoard.")
training = typer.Typer(
    cls=Trainers,
    no_args_is_help=True,
    help="Train a policy and export it as ONNX with its card.",
    epilog="Example: edgewise train aset --scenario full-edge",
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


@training.command(epilog="Example: edgewise train aset --scenario full-edge --out runs/aset")
def aset(
    scenario: Annotated[str, typer.Option(help="A shipped scenario, or a file.")] = "full-edge",
    state: Annotated[
        str, typer.Option(help="'history': ASET's network; 'pooled': any number of workers.")
    ] = "history",
    improve: Annotated[
        str, typer.Option(help="Any of double, dueling, n-step, prioritised; 'none': algorithm 1 as it is.")
    ] = "double,dueling,n-step",
    paper_actions: Annotated[
        bool, typer.Option("--paper-actions", help="Only the seven static policies of ASET.")
    ] = False,
    episodes: Annotated[int, typer.Option(min=1, help="Of training, each with a seed of its own.")] = 40,
    seed: Annotated[int, typer.Option(min=0, max=400_000, help="The first episode's.")] = 0,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder of the files.")] = Path("runs/aset"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
    as_json: Json = False,
) -> None:
    """Train ASET by DQN; a stopped training goes on where it was saved."""
    trained(
        "aset",
        folder,
        name,
        tensorboard,
        as_json,
        scenario=scenario,
        state=state,
        improve=improve,
        paper_actions=paper_actions,
        episodes=episodes,
        seed=seed,
    )
