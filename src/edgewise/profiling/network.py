"""An ONNX network in ONNX Runtime, ready to be measured: its inputs, its runs, its peak memory.

`python -m edgewise.profiling.network` measures the memory, in a process of its own: it reads {"file",
"threads", "batch", "side", "sizes", "axes"} as JSON and prints the growth of the resident memory in bytes, or
{"error": …}.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgewise.errors import EdgewiseError, ProfileError
from edgewise.model.topology import CPU
from edgewise.profiling.operators import read
from edgewise.profiling.providers import session_on

PICTURE_CHANNELS = (1, 3, 4)
PICTURE_SIDE = 224  # when a picture's size is free and not given
NUMPY = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(bool)": np.bool_, "tensor(string)": np.str_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
}  # fmt: skip
QUIET = 4  # ONNX Runtime's log: fatal only; errors become exceptions
RUNS = 3
STATUS = Path("/proc/self/status")

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
        sizes = dict(self.fixed) | dict.fromkeys(self.sized, int(side or 0)) | {self.batch or "": batch}
        labels = {i.name: [_label(i, k) for k in range(len(i.shape))] for i in self.inputs}
        return {
            name: tuple(each if isinstance(each, int) else sizes[each] for each in axes)
            for name, axes in labels.items()
        }

    def arrays(self, batch: int, side: int | None, rng: np.random.Generator) -> Arrays:
        """Tensors to run the network with: numbers in [0, 1), integers 0 or 1, the string "a"."""
        shapes = self.shapes(batch, side)
        return {i.name: _values(i.kind, shapes[i.name], rng) for i in self.inputs}

    def payload_bytes(self, side: int | None) -> int:
        """Bytes of one query's tensors as the Open Inference Protocol carries them."""
        shapes = self.shapes(1, side)
        return sum(math.prod(shapes[i.name]) * _item_bytes(i.kind) for i in self.inputs)


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
    plain = tuple(
        replace(i, shape=(batch, *i.shape[1:])) if i.shape and _label(i, 0) in unnamed else i for i in inputs
    )
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


class OnnxNetwork:
    """Loads a file with a number of threads and runs it on made-up tensors.

    Args:
        file: the .onnx file.
        threads: threads of one run.
        sizes, axes: as for `resolve`.
        seed: of the values of the tensors.
        providers: execution providers that are wanted, the best first.
    Attributes:
        providers: those of them that it runs on.
    Raises:
        ProfileError: missing, no ONNX, weights missing, an operator or opset that ONNX Runtime
            lacks, or an axis whose size is not known.
    """

    def __init__(
        self,
        file: Path,
        threads: int = 1,
        sizes: Sequence[int] = (),
        axes: Mapping[str, int] | None = None,
        seed: int = 0,
        providers: Sequence[str] = (CPU,),
    ) -> None:
        self.file, self.threads = file, threads
        if not file.is_file():
            raise ProfileError(f"{file}: no such file; give the path of an .onnx file")
        self._session, self.providers = _session(file, threads, providers)
        described = tuple(Input(i.name, i.type, tuple(i.shape)) for i in self._session.get_inputs())
        self.inputs = resolve(described, sizes, axes)
        self._rng = np.random.default_rng(seed)

    def arrays(self, batch: int, side: int | None) -> Arrays:
        """Tensors for a batch."""
        return self.inputs.arrays(batch, side, self._rng)

    def run(self, arrays: Arrays) -> None:
        """Run the network once.

        Raises:
            ProfileError: ONNX Runtime cannot run these tensors.
        """
        try:
            self._session.run(None, arrays)
        except Exception as error:  # ONNX Runtime has no common base of its errors
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
            raise ProfileError(f"{self.file}: cannot run {shapes}: {_first_line(error)}") from None


def _session(
    file: Path, threads: int, providers: Sequence[str]
) -> tuple[onnxruntime.InferenceSession, tuple[str, ...]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    try:
        return session_on(providers, str(file), options)
    except ProfileError:
        raise
    except Exception as error:  # as above
        raise ProfileError(_why(file, error)) from None


def _why(file: Path, error: Exception) -> str:
    """What is wrong with a file that ONNX Runtime refuses, and what to do."""
    read(file)  # raises when it is no ONNX at all
    text = _first_line(error)
    lower = str(error).lower()
    if "external" in lower or "no such file" in lower or "file_size" in lower:
        return (
            f"{file}: weights stored in another file are missing: {text}; put that file beside the .onnx file"
        )
    if "opset" in lower or "ir version" in lower or "ir_version" in lower:
        return (
            f"{file}: too new for onnxruntime {onnxruntime.__version__}: {text}; "
            "update onnxruntime or export with an older opset"
        )
    if "not_implemented" in lower or "not a registered function" in lower or "no op registered" in lower:
        return f"{file}: an operator is not supported by onnxruntime {onnxruntime.__version__}: {text}"
    return f"{file}: onnxruntime cannot load it: {text}"


def _first_line(error: Exception) -> str:
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : ", "", str(error).strip())
    return (text.splitlines() or ["no reason given"])[0][:300]


def peak_bytes(
    file: Path,
    threads: int,
    batch: int,
    side: int | None,
    sizes: Sequence[int],
    axes: Mapping[str, int],
    providers: Sequence[str] = (CPU,),
) -> float:
    """Growth of the resident memory from before loading the network to its peak.

    Raises:
        ProfileError: the process ends without an answer.
    """
    job = {
        "file": str(file),
        "threads": threads,
        "batch": batch,
        "side": side,
        "sizes": list(sizes),
        "axes": dict(axes),
        "providers": list(providers),
    }
    done = subprocess.run(
        [sys.executable, "-m", "edgewise.profiling.network"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
    )
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ProfileError(
            f"{file}: cannot be run in a process of its own (exit status {done.returncode})"
        ) from None
    if "error" in answer:
        raise ProfileError(answer["error"])
    return float(answer["bytes"])


def _peak() -> float:
    """Peak resident memory of this process since its start, in bytes."""
    try:
        lines = STATUS.read_text().splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return _peak_elsewhere()


def _peak_elsewhere() -> float:
    """Systems without /proc: getrusage, in bytes on macOS; 0 on Windows, which lacks it."""
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def _measure(job: Mapping[str, Any]) -> float:
    before = _peak()
    network = OnnxNetwork(
        Path(job["file"]), job["threads"], job["sizes"], job["axes"], providers=job["providers"]
    )
    arrays = network.arrays(job["batch"], job["side"])
    for _ in range(RUNS):
        network.run(arrays)
    return _peak() - before


if __name__ == "__main__":
    try:
        print(json.dumps({"bytes": _measure(json.load(sys.stdin))}))
    except EdgewiseError as error:
        print(json.dumps({"error": str(error)}))
