"""An ONNX network in ONNX Runtime, ready to be measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from edgewise.errors import ProfileError
from edgewise.profiling import inputs, operators

QUIET = 4  # ONNX Runtime's log: fatal only; errors become exceptions


class OnnxNetwork:
    """Loads a file with a number of threads and runs it on made-up tensors.

    Args:
        file: the .onnx file.
        threads: threads of one run.
        sizes, axes: as for `inputs.resolve`.
        seed: of the values of the tensors.
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
    ) -> None:
        self.file, self.threads = file, threads
        if not file.is_file():
            raise ProfileError(f"{file}: no such file; give the path of an .onnx file")
        self._session = _session(file, threads)
        described = tuple(inputs.Input(i.name, i.type, tuple(i.shape)) for i in self._session.get_inputs())
        self.inputs = inputs.resolve(described, sizes, axes)
        self._rng = np.random.default_rng(seed)

    def arrays(self, batch: int, side: int | None) -> inputs.Arrays:
        """Tensors for a batch."""
        return self.inputs.arrays(batch, side, self._rng)

    def run(self, arrays: inputs.Arrays) -> None:
        """Run the network once.

        Raises:
            ProfileError: ONNX Runtime cannot run these tensors.
        """
        try:
            self._session.run(None, arrays)
        except Exception as error:  # ONNX Runtime has no common base of its errors
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
            raise ProfileError(f"{self.file}: cannot run {shapes}: {_first_line(error)}") from None


def _session(file: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise ProfileError(_why(file, error)) from None


def _why(file: Path, error: Exception) -> str:
    """What is wrong with a file that ONNX Runtime refuses, and what to do."""
    operators.read(file)  # raises when it is no ONNX at all
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
