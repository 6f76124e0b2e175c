"""The inputs of a network: which axes are free, and tensors to run it with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.errors import ProfileError

PICTURE_CHANNELS = (1, 3, 4)
PICTURE_SIDE = 224  # when a picture's size is free and not given
NUMPY = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_, "tensor(string)": np.str_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
}  # fmt: skip

Axis = int | str | None
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Input:
    """One input as ONNX Runtime describes it: free axes are a name, or None."""

    name: str
    kind: str
    shape: tuple[Axis, ...]

    def shown(self) -> str:
        """The shape in words; a free axis without a name has its position."""
        return f"[{', '.join(str(_label(self, k)) for k in range(len(self.shape)))}]"


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a network with the meaning of every free axis.

    Attributes:
        inputs: as ONNX Runtime describes them.
        batch: label of the batch axis; None when the batch is fixed.
        sized: labels of the axes that `--sizes` sets.
        sides: sizes to measure at; (None,) when no axis is sized.
        fixed: label → size, of the other free axes.
        notes: what was guessed, in words.
    """

    inputs: tuple[Input, ...]
    batch: str | None
    sized: tuple[str, ...]
    sides: tuple[int | None, ...]
    fixed: Mapping[str, int]
    notes: tuple[str, ...]

    @property
    def batched(self) -> frozenset[str]:
        """Names of the inputs whose first axis is the batch."""
        return frozenset(i.name for i in self.inputs if i.shape and self.batch and _label(i, 0) == self.batch)

    def shapes(self, batch: int, side: int | None) -> dict[str, tuple[int, ...]]:
        """Shape of every input for a batch of queries."""
        return {
            i.name: tuple(self._length(i, k, batch, side) for k in range(len(i.shape))) for i in self.inputs
        }

    def arrays(self, batch: int, side: int | None, rng: np.random.Generator) -> Arrays:
        """Tensors to run the network with: numbers in [0, 1), integers 0 or 1, the string "a"."""
        shapes = self.shapes(batch, side)
        return {i.name: _values(i.kind, shapes[i.name], rng) for i in self.inputs}

    def payload_bytes(self, side: int | None) -> int:
        """Bytes of one query's tensors as the Open Inference Protocol carries them."""
        shapes = self.shapes(1, side)
        return sum(math.prod(shapes[i.name]) * _item_bytes(i.kind) for i in self.inputs)

    def _length(self, given: Input, axis: int, batch: int, side: int | None) -> int:
        label = _label(given, axis)
        if isinstance(label, int):
            return label
        if label == self.batch:
            return batch
        return self.fixed[label] if label in self.fixed else int(side or 0)


def resolve(
    inputs: Sequence[Input], sizes: Sequence[int] = (), axes: Mapping[str, int] | None = None
) -> Inputs:
    """Decide what every free axis means.

    The first axis is the batch when it is free; all axes of the same name go with it. `axes` sets
    axes by name, or by input and position (`x[2]`). `sizes` sets all others; without it a picture
    (rank 4, with 1, 3 or 4 channels) gets 224.

    Raises:
        ProfileError: an axis is still free, or a flag names none; the message shows the input's shape.
    """
    given = dict(axes or {})
    for i in inputs:
        if i.kind not in NUMPY:
            raise ProfileError(
                f"input {i.name!r}: values of type {i.kind} cannot be made up; only tensors can"
            )
    free: dict[str, Input] = {}
    for i in inputs:
        for k in range(len(i.shape)):
            if isinstance(label := _label(i, k), str):
                free.setdefault(label, i)
    for name in given:
        if name not in free:
            raise ProfileError(
                f"--axis {name}: there is no such free axis; free are: {', '.join(free) or 'none'}"
            )
    first = [_label(i, 0) for i in inputs if i.shape]
    batches = [label for label in first if isinstance(label, str) and label not in given]
    batch = batches[0] if batches else None
    unnamed = {label for label in batches if "[" in label}  # every nameless first axis is the batch
    open_axes = [label for label in free if label != batch and label not in given and label not in unnamed]
    plain = tuple(_renamed(i, unnamed, batch) for i in inputs)
    if sizes and not open_axes:
        shapes = "; ".join(f"{i.name} {i.shown()}" for i in inputs)
        raise ProfileError(f"--sizes: no axis is free besides the batch ({shapes}); leave it out")
    notes = [] if batch else ["the batch size is fixed by the model: only batch 1 is measured"]
    sides: tuple[int | None, ...] = tuple(sizes) or (None,)
    if open_axes and not sizes:
        sides = (_guess(open_axes, free),)
        notes.append(f"{' and '.join(open_axes)} guessed as {sides[0]}; set --sizes")
    if not open_axes:
        notes.append("the payload has one size: per_byte_s is 0")
    return Inputs(plain, batch, tuple(open_axes), sides, given, tuple(notes))


def _label(i: Input, axis: int) -> int | str:
    length = i.shape[axis]
    return length if isinstance(length, int) else (length or f"{i.name}[{axis}]")


def _renamed(i: Input, unnamed: set[str], batch: str | None) -> Input:
    return Input(i.name, i.kind, (batch, *i.shape[1:])) if i.shape and _label(i, 0) in unnamed else i


def _guess(open_axes: Sequence[str], free: Mapping[str, Input]) -> int:
    for label in open_axes:
        i = free[label]
        channels = len(i.shape) == 4 and (i.shape[1] in PICTURE_CHANNELS or i.shape[3] in PICTURE_CHANNELS)
        if not channels:
            raise ProfileError(
                f"input {i.name!r} has shape {i.shown()} and the size of axis {label!r} is not known; "
                f"give it: --axis {label}=N, or measure several: --sizes N,M"
            )
    return PICTURE_SIDE


def _item_bytes(kind: str) -> int:
    """A string of one character has 4 bytes of length before it."""
    return 5 if kind == "tensor(string)" else int(np.dtype(NUMPY[kind]).itemsize)


def _values(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[Any]:
    if kind == "tensor(string)":
        return np.full(shape, "a", dtype=object)
    dtype = np.dtype(NUMPY[kind])
    if dtype.kind == "f":
        return rng.random(shape, dtype=np.float32).astype(dtype)
    return rng.integers(0, 2, size=shape).astype(dtype)
