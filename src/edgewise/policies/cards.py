"""Trained policies as files: a JSON card that says how one was made, and its networks in ONNX beside it.

A card holds the command, the seeds, a hash of what the features mean, and what the policy decides in 16
golden cases. They are computed anew when it is loaded: files that were changed, that are for other features,
or that decide otherwise here than they did are refused. Loading one needs neither torch nor `edgewise.learn`.
"""

import glob
import hashlib
import json
import lzma
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgewise.errors import PolicyError

SHIPPED = Path(__file__).resolve().parents[1] / "data" / "policies"
# The key that tells whether a card has a policy for a decision, and the module whose `of_card` makes it.
TRAINED: dict[str, tuple[str, str]] = {
    "dispatch": ("state", "dispatch.chooser"),
    "requests": ("requests", "requests.learned"),
    "orchestrate": ("orchestrate", "orchestrate.learned"),
    "defer": ("memory", "defer.rules"),
}
RENAMED = {"dispatch": "requests", "scale": "orchestrate"}  # parts of cards that were trained before
Run = Callable[..., tuple[NDArray[Any], ...]]  # arrays in the order of the network's inputs → its outputs


class Card(NamedTuple):
    """What a card says.

    Attributes:
        path: of the card; its networks lie in the same folder.
        about: all of it.
        part: of it, what concerns the decision that it was read for.
    """

    path: Path
    about: dict[str, Any]
    part: dict[str, Any]

    @property
    def name(self) -> str:
        """Of the policy."""
        return str(self.about["name"])

    @property
    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Name, time and size of its files: as long as these are equal, so is what they hold."""
        files = sorted(self.path.parent.glob(f"{glob.escape(self.path.stem)}.*"))
        return tuple((file.name, (stat := file.stat()).st_mtime_ns, stat.st_size) for file in files)

    def error(self, why: str) -> PolicyError:
        """Says why it cannot be used."""
        return PolicyError(f"policy card {self.path}: {why}")

    def check_features(self, meaning: str) -> None:
        """Refuse a card whose features mean something else than they do here.

        Raises:
            PolicyError: it does.
        """
        if meaning != self.about.get("features_sha256"):
            again = f"train it again with `{self.about.get('command', 'edgewise train')}`"
            raise self.error(f"was trained on other features; {again}")

    def network(self, suffix: str = ".onnx") -> Run:
        """Runs a network of this card, from NAME.onnx or, packed, as those that ship are, from NAME.onnx.xz.

        Raises:
            PolicyError: its file is missing, was changed or is not readable, or onnxruntime is not installed.
        """
        file = self.path.with_suffix(suffix)
        packed = file.with_name(f"{file.name}.xz")
        if not file.is_file() and not packed.is_file():
            raise self.error(f"no file {file.name} beside it; restore both from one source")
        changed = f"{file.name} is not the file of its card; restore both from one source"
        try:
            content = file.read_bytes() if file.is_file() else lzma.decompress(packed.read_bytes())
        except lzma.LZMAError:
            raise self.error(changed) from None
        digest = hashlib.sha256(content).hexdigest()
        if self.part.get("onnx_sha256", digest) != digest:
            raise self.error(changed)
        return runner(file, content)

    def check_golden(self, found: ArrayLike, said: ArrayLike, close: float = 0.0) -> None:
        """Refuse a policy that decides otherwise than its card says.

        Raises:
            PolicyError: it does.
        """
        if np.shape(found) != np.shape(said) or not np.allclose(found, said, rtol=0.0, atol=close):
            raise self.error(
                "decides otherwise in the golden cases than its card says; restore both files, or train again"
            )


def runner(path: Path, content: bytes | None = None) -> Run:
    """Runs an ONNX file on one thread: networks this small gain nothing from more.

    Args:
        path: of the file.
        content: of the file, where it has been read.
    Raises:
        PolicyError: onnxruntime is not installed, or cannot read the file.
    """
    try:
        import onnxruntime
    except ImportError:
        raise PolicyError(f"{path}: needs onnxruntime; pip install 'edgewise[live]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            content or str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # onnxruntime raises kinds of its own
        raise PolicyError(f"{path}: is no network that onnxruntime can read: {error}") from error
    names = [each.name for each in session.get_inputs()]

    def run(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        return tuple(session.run(None, dict(zip(names, arrays, strict=True))))

    return run


def read(decision: str, path: Path) -> Card:
    """A card, for one decision.

    Raises:
        PolicyError: there is none, it is none, or it is of other decisions.
    """
    if not path.is_file():
        raise PolicyError(f"policy card {path}: there is no such file")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        parts = _parts(about)
    except (ValueError, TypeError, RecursionError):  # no JSON, or no object
        parts = {}
    if not parts or "name" not in about:
        raise PolicyError(f"policy card {path}: is no card; give what edgewise train wrote")
    if old := [f"{old!r} is now {new!r}" for old, new in RENAMED.items() if isinstance(about.get(old), dict)]:
        raise PolicyError(f"policy card {path}: {' and '.join(old)}; rename it there and in names of files")
    if decision not in parts:
        raise PolicyError(f"policy card {path}: decides {', '.join(parts)}, not {decision}")
    return Card(path, about, parts[decision])


def load(decision: str, path: Path) -> Any:
    """The policy of a card.

    Raises:
        PolicyError: a file is missing, was changed, is of other features or decisions, or decides otherwise
            than its card says.
    """
    card = read(decision, path)
    module = "exported" if "exported" in card.about else TRAINED[decision][1]
    try:
        return import_module(f"edgewise.policies.{module}").of_card(card)
    except (KeyError, TypeError, ValueError) as error:  # a part that lacks something
        raise card.error(
            f"is no card ({type(error).__name__}: {error}); give what edgewise train wrote"
        ) from None


@cache
def shipped(decision: str) -> dict[str, Path]:
    """Cards that ship, by name, for one decision."""
    found = {path: json.loads(path.read_text(encoding="utf-8")) for path in sorted(SHIPPED.rglob("*.json"))}
    return {path.stem: path for path, about in found.items() if decision in _parts(about)}


def _parts(about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a card says, by decision: all of it, or what lies under the decision's own key."""
    if "exported" in about:
        return {str(about["exported"]): about}
    found = {decision: about[key] for decision, (key, _) in TRAINED.items() if key in about}
    return {decision: part if isinstance(part, dict) else about for decision, part in found.items()}
