"""Writes what `edgewise.policies.cards` reads: a JSON card, and networks in ONNX beside it."""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

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
