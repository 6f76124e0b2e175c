"""What every training has in common: rounds, saving and going on, TensorBoard, and the card in the end.

A trainer says what a round is, what the rest depends on, and what its card holds; the harness does the rest.
A training that was stopped goes on exactly as it would have: what is kept, and torch's generator, are saved
together.

A card is what `edgewise.policies.cards` reads: JSON, and networks in ONNX beside it.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.errors import RunError
from edgewise.policies.cards import runner

MOST_BYTES = 5_000_000


def write_card(folder: Path, name: str, card: Mapping[str, Any]) -> Path:
    """NAME.json, one line for each entry.

    Raises:
        RunError: it cannot be written.
    """
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in {"name": name, **card}.items()]
    path = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write the policy to {folder}: {error}") from error
    return path


def write_network(
    network: torch.nn.Module,
    path: Path,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Sequence[str],
    free: Mapping[str, Mapping[int, str]],
) -> tuple[str, tuple[NDArray[Any], ...]]:
    """A network as an ONNX file.

    Args:
        inputs: golden examples, in the order in which the network takes them.
        free: dimensions that may differ, of inputs and outputs.
    Returns:
        The file's hash, and what it makes of the examples.
    Raises:
        RunError: the file cannot be written, or has more than 5 MB.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of paddings it does not fold
            torch.onnx.export(
                network.eval(),
                tuple(map(torch.from_numpy, inputs.values())),
                str(path),
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes=free,
                opset_version=17,
                dynamo=False,
            )
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"cannot write the policy to {path}: {error}") from error
    if len(data) > MOST_BYTES:
        raise RunError(f"{path}: has {len(data)} bytes, at most {MOST_BYTES} ship")
    return hashlib.sha256(data).hexdigest(), runner(path)(*inputs.values())


SAVE_EVERY_S = 60.0
LENGTHS = ("episodes", "generations")  # a training that is over goes on when it is to be longer
SEEDS_OF_A_RUN = 20_000  # training seeds that a run draws its worlds from
Figures = dict[str, float]
Tell = Callable[[Figures], None]
Step = Callable[[str], None]


def silent(said: object) -> None:
    """Tells nobody."""


class Trainer:
    """A training, and how far it is.

    Args:
        config: a dataclass of plain data.
        rounds: of the whole training (episodes, generations, iterations).
        kept: names of attributes, such as "agent.network", that the rest of the training depends on.
        more: what else makes it this training.
    Attributes:
        headline: which figure of a round stands for it in the card's curve.
        identity: `config` and `more`. A training that was saved goes on with the same only, or with more
            episodes or generations.
        curve: figures of each round that is over.
    """

    headline: ClassVar[str]

    def __init__(self, config: Any, rounds: int, kept: Sequence[str], **more: Any) -> None:
        torch.set_num_threads(1)  # networks this small gain nothing from more
        self.identity = {key: x for key, x in (asdict(config) | more).items() if key not in LENGTHS}
        self.rounds, self.kept = rounds, kept
        self.curve: list[Figures] = []

    def round(self) -> Figures:
        """Play and learn once more."""
        raise NotImplementedError

    def networks(self, stem: Path) -> dict[str, Any]:
        """Write what was trained into files that begin with `stem`; what the card says of the policy."""
        raise NotImplementedError

    def rivals(self, card: Path) -> dict[str, Any]:
        """What is compared on validation seeds, by name: the policy of the card and what there is without."""
        raise NotImplementedError

    def score(self, rival: Any, seeds: Sequence[int]) -> Any:
        """What a rival reaches."""
        raise NotImplementedError

    def more_scores(self, rivals: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """What else the card says of the rivals: how they do in a setting beside the one of the training."""
        return {}

    def seeds(self, number: int) -> range:
        """Training seeds of a round."""
        raise NotImplementedError

    def train(self, tell: Tell = silent, until: int | None = None) -> None:
        """All rounds that are left, or until so many are over; `tell` hears of each."""
        while len(self.curve) < min(until or self.rounds, self.rounds):
            self.curve.append(self.round())
            tell(self.curve[-1])

    def save(self, path: Path) -> None:
        """Everything that the rest of the training depends on.

        Raises:
            RunError: it cannot be written.
        """
        state = {name: _state(attrgetter(name)(self)) for name in self.kept}
        whole = {"identity": self.identity, "curve": self.curve, "state": state}
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(whole | {"generator": torch.get_rng_state()}, part)
            part.replace(path)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error}; check the path and its rights") from error

    def load(self, path: Path) -> None:
        """Go on with what `save` wrote; nothing is unpickled but tensors and plain data.

        Raises:
            RunError: it is of another training, or no training at all.
        """
        try:
            whole: dict[str, Any] = torch.load(path, weights_only=True)
            saved = whole["identity"]
        except (OSError, RuntimeError, UnpicklingError, EOFError, KeyError, TypeError) as error:
            raise RunError(f"{path}: is no training of this edgewise ({error}); remove it") from error
        if saved != self.identity:
            raise RunError(
                f"{path}: was made by another configuration; remove it, or use another --name or --out"
            )
        self.curve = whole["curve"]
        for name, state in whole["state"].items():
            _restore(self, name, state)
        torch.set_rng_state(whole["generator"])


def _state(thing: Any) -> Any:
    if isinstance(thing, np.ndarray):
        return torch.from_numpy(thing.copy())
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    return thing.state_dict() if hasattr(thing, "state_dict") else thing


def _restore(trainer: Trainer, name: str, state: Any) -> None:
    owner, _, attribute = f"trainer.{name}".rpartition(".")
    thing = attrgetter(name)(trainer)
    if isinstance(thing, np.ndarray):
        thing[...] = state.numpy()
    elif isinstance(thing, np.random.Generator):
        thing.bit_generator.state = state
    elif hasattr(thing, "load_state_dict"):
        thing.load_state_dict(state)
    else:
        setattr(attrgetter(owner.partition(".")[2])(trainer) if "." in owner else trainer, attribute, state)


def train(
    trainer: Trainer,
    folder: Path,
    name: str,
    *,
    command: str,
    validation: Sequence[int],
    tensorboard: bool = False,
    step: Step = silent,
) -> Path:
    """Train, or go on with NAME.pt in the folder; export, and judge on validation seeds.

    Args:
        command: that the card names.
        validation: seeds on which the policy and its rivals are compared; without any, whoever trains judges.
        tensorboard: write the figures of every round into the folder.
        step: told what goes on.
    Returns:
        The card.
    Raises:
        RunError: NAME.pt is of another training, or tensorboard is not installed.
    """
    saved = folder / f"{name}.pt"
    if saved.exists():
        trainer.load(saved)
    write = events(folder / name) if tensorboard else silent
    saved_s = time.monotonic()

    def tell(figures: Figures) -> None:
        nonlocal saved_s
        write({"round": len(trainer.curve)} | figures)
        words = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
        step(f"round {len(trainer.curve)} of {trainer.rounds}: {words}")
        if time.monotonic() - saved_s > SAVE_EVERY_S:
            trainer.save(saved)
            saved_s = time.monotonic()

    trainer.train(tell)
    trainer.save(saved)
    card = about(trainer, command, validation) | trainer.networks(folder / name)
    path = write_card(folder, name, card)
    if not validation:
        return path
    scores, rivals = {}, trainer.rivals(path)
    for who, rival in rivals.items():
        step(f"validation: {who}")
        scores[who] = trainer.score(rival, validation)
    return write_card(folder, name, card | {"scores": scores} | trainer.more_scores(rivals, validation))


def about(trainer: Trainer, command: str, validation: Sequence[int]) -> dict[str, Any]:
    """How a policy was made, for its card."""
    first, last = trainer.seeds(0).start, trainer.seeds(max(0, len(trainer.curve) - 1)).stop
    key = trainer.headline
    curve = [[n, round(line[key], 5)] for n, line in enumerate(trainer.curve, 1) if key in line]
    return {
        "command": command,
        "edgewise": version("edgewise"),
        "config": trainer.identity,
        "seeds": {"training": [first, last], "validation": list(validation)},
        "curve": curve,
    }


def events(folder: Path) -> Tell:
    """Writes the figures of every round for TensorBoard.

    Raises:
        RunError: tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise RunError("--tensorboard needs tensorboard: pip install tensorboard") from error
    writer: Any = SummaryWriter(str(folder))

    def write(figures: Figures) -> None:
        for key in figures.keys() - {"round"}:
            writer.add_scalar(key, figures[key], int(figures["round"]))
        writer.flush()

    return write


def descend(
    optimiser: torch.optim.Optimizer,
    loss: Tensor,
    parameters: Sequence[Tensor] = (),
    most: float = float("inf"),
) -> float:
    """One step down the gradient of a loss; returns the loss.

    Args:
        parameters, most: whose gradient is cut to a norm of at most so much.
    """
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if parameters:
        torch.nn.utils.clip_grad_norm_(parameters, most)
    optimiser.step()
    return float(loss.detach())


def check_seed(seed: int, rounds: int, worlds: int) -> None:
    """Refuse a run that would leave its training seeds.

    Raises:
        RunError: it would.
    """
    if not 0 <= seed < 20 or rounds * worlds > SEEDS_OF_A_RUN:
        raise RunError(
            f"seed {seed}, {rounds} rounds of {worlds} worlds: need seed 0 … 19 and at most {SEEDS_OF_A_RUN} "
            "worlds"
        )
