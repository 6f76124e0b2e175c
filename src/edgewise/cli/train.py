"""`edgewise train`: make a policy from runs of the simulator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli.output import app, check_folder, command, err, extra, out

NAME = typer.Option(help="Of the files; by default it says what is trained.")
TENSORBOARD = typer.Option("--tensorboard", help="Write events for TensorBoard.")
training = typer.Typer(
    no_args_is_help=True,
    help="Train a policy and export it as ONNX with its card.",
    epilog="Example: edgewise train aset --scenario full-edge",
)
app.add_typer(training, name="train")


def _trained(what: str, folder: Path, name: str, tensorboard: bool, **options: Any) -> None:
    check_folder("--out", folder)
    with extra("learn", "training"):
        from edgewise.learn import methods  # slow to import, and needs an extra
    with err.status("starting") as status:
        card = methods.train(
            what,
            folder,
            name,
            command=command(),
            tensorboard=tensorboard,
            step=status.update,
            **options,
        )
    out.print(f"policy: [bold]{card}[/bold]")


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
) -> None:
    """Train ASET by DQN; a stopped training goes on where it was saved."""
    _trained(
        "aset",
        folder,
        name,
        tensorboard,
        scenario=scenario,
        state=state,
        improve=improve,
        paper_actions=paper_actions,
        episodes=episodes,
        seed=seed,
    )


@training.command(epilog="Example: edgewise train defer osdec --seed 1 --out runs/defer")
def defer(
    method: Annotated[str, typer.Argument(help="reinforce, ppo-mlp, pointer-net, ppo-att, …, osdec.")],
    situation: Annotated[
        str, typer.Option(help="paper, core-1 … duration-3, utilisation or real-time.")
    ] = "paper",
    recipe: Annotated[str, typer.Option(help="'ours', or 'paper' for OSDEC's hyper-parameters.")] = "ours",
    seed: Annotated[int, typer.Option(min=0, max=19, help="Of the run.")] = 0,
    iterations: Annotated[int, typer.Option(min=1, max=1250, help="Of 2,048 slots.")] = 16,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder of the files.")] = Path("runs/defer"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
) -> None:
    """Train OSDEC, or a variant of it, to start deferrable jobs; a stopped training goes on."""
    _trained(
        "defer",
        folder,
        name,
        tensorboard,
        method=method,
        situation=situation,
        recipe=recipe,
        seed=seed,
        iterations=iterations,
    )


@training.command(epilog="Example: edgewise train kais --scenario scarce-small --method paper")
def kais(
    scenario: Annotated[
        str, typer.Option(help="scarce or edge-cloud, or either with -complex or -small.")
    ] = "scarce",
    pattern: Annotated[str, typer.Option(help="Of arrivals: P1, P2, P3, P4, P1-P4 or sequences.")] = "P4",
    method: Annotated[
        str, typer.Option(help="'paper': cMMAC, GPG; 'stacked': no graph; 'improved' and 'evolved': ours.")
    ] = "improved",
    half: Annotated[str, typer.Option(help="What learns: both, dispatch or scale.")] = "both",
    episodes: Annotated[int, typer.Option(min=1, help="Of training, or generations.")] = 20,
    worlds: Annotated[int, typer.Option(min=1, help="Of an episode, each with a seed of its own.")] = 32,
    frames: Annotated[int, typer.Option(min=1, help="Of an episode.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=19, help="Of weights and worlds.")] = 0,
    name: Annotated[str, NAME] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder of the files.")] = Path("runs/kais"),
    tensorboard: Annotated[bool, TENSORBOARD] = False,
) -> None:
    """Train dispatch and orchestration of KaiS; a stopped training goes on where it was saved."""
    _trained(
        "kais",
        folder,
        name,
        tensorboard,
        scenario=scenario,
        pattern=pattern,
        method=method,
        half=half,
        episodes=episodes,
        worlds=worlds,
        frames=frames,
        seed=seed,
    )
