"""A network in ONNX Runtime: loaded from an allowed folder, described, checked, run; slow where asked for."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from edgewise.core.keyed import Purpose, normal_of
from edgewise.errors import ProfileError, ProtocolError, ScenarioError
from edgewise.model.topology import CPU, Profile
from edgewise.profiling.providers import session_on
from edgewise.runtime.protocol.messages import DTYPES, NAMES, InferRequest, InferResponse
from edgewise.runtime.protocol.tensors import Array

TYPES = {
    "tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(float16)": "FP16", "tensor(bool)": "BOOL",
    "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32", "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(string)": "BYTES",
}  # fmt: skip


class OnnxModel:
    """An ONNX file ready to run.

    Args:
        name: how it is called in URLs.
        file: the .onnx file.
        folder: when given, the file must lie inside it.
        threads: cores that one run may use.
        providers: execution providers that are wanted, the best first.
    Attributes:
        providers: those of them that it runs on.
        inputs, outputs: tensor name → (datatype, shape); free dimensions are no integers.
        batchable: every tensor's first dimension is free.
        clock: tells how long a run takes; see `Batcher`.
    Raises:
        ScenarioError: the file is missing, elsewhere, no ONNX model, or of unsupported types.
    """

    clock = staticmethod(time.thread_time)

    def __init__(
        self,
        name: str,
        file: Path,
        folder: Path | None = None,
        threads: int = 1,
        providers: Sequence[str] = (CPU,),
    ) -> None:
        self.name, self.file = name, file.resolve()
        if folder is not None and not self.file.is_relative_to(folder.resolve()):
            raise ScenarioError(f"variant file {file}: lies outside the allowed folder {folder}")
        if self.file.suffix != ".onnx" or not self.file.is_file():
            raise ScenarioError(f"variant file {file}: no such .onnx file")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        try:
            self._session, self.providers = session_on(providers, str(self.file), options)
        except ProfileError as error:
            raise ScenarioError(f"variant file {file}: {error}") from error
        except Exception as error:  # ONNX Runtime has no common base of its errors
            raise ScenarioError(f"variant file {file}: ONNX Runtime cannot load it: {error}") from error
        self.inputs = _describe(self._session.get_inputs(), file)
        self.outputs = _describe(self._session.get_outputs(), file)
        self._takes_text = any(datatype == "BYTES" for datatype, _ in self.inputs.values())
        self._options = onnxruntime.RunOptions()  # ONNX Runtime would make them anew for every run
        described = (*self.inputs.values(), *self.outputs.values())
        self.batchable = all(shape and not isinstance(shape[0], int) for _, shape in described)

    def metadata(self) -> dict[str, Any]:
        """Model metadata of the protocol; -1 where a dimension is free."""
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": [_tensor(name, *what) for name, what in self.inputs.items()],
            "outputs": [_tensor(name, *what) for name, what in self.outputs.items()],
        }

    def check(self, request: InferRequest) -> None:
        """Check names, datatypes, shapes and outputs against the model.

        Raises:
            ProtocolError: names the tensor that is wrong.
        """
        if request.inputs.keys() != self.inputs.keys():
            raise ProtocolError(f"inputs: have {sorted(request.inputs)}, need {sorted(self.inputs)}")
        for name, array in request.inputs.items():
            datatype, shape = self.inputs[name]
            if array.dtype != DTYPES[datatype]:
                raise ProtocolError(f"inputs.{name}: is {NAMES[array.dtype]}, the model needs {datatype}")
            if not _fits(array.shape, shape):
                want = [n if isinstance(n, int) else -1 for n in shape]
                raise ProtocolError(f"inputs.{name}: has shape {list(array.shape)}, needs {want}")
        for name in request.outputs:
            if name not in self.outputs:
                raise ProtocolError(f"outputs: no {name!r}; the model has {', '.join(self.outputs)}")

    def rehearse(self) -> None:
        """Run the network on zeros: it is known to run before it is asked, and its first query is quick.

        Raises:
            ScenarioError: it fails, and no free dimension or text can be why.
        """
        inputs = self.inputs.values()
        shapes = [[size if isinstance(size, int) else 1 for size in shape] for _, shape in inputs]
        zeros = {
            name: np.zeros(shape, DTYPES[datatype])
            for shape, (name, (datatype, _)) in zip(shapes, self.inputs.items(), strict=True)
        }
        try:
            self._run(tuple(self.outputs), zeros)
        except ProtocolError as error:
            if self._takes_text or any(
                not isinstance(size, int) for _, shape in inputs for size in shape[1:]
            ):
                return
            raise ScenarioError(f"variant file {self.file}: a run on zeros fails: {error}") from error

    def run(self, request: InferRequest) -> InferResponse:
        """Run the network on a checked request.

        Raises:
            ProtocolError: ONNX Runtime rejects the tensors.
        """
        names = request.outputs or tuple(self.outputs)
        return InferResponse(self.name, self._run(names, request.inputs), request.id)

    def run_batch(self, requests: Sequence[InferRequest]) -> list[InferResponse | ProtocolError]:
        """Run requests of one `batch_key` as one; each alone where the network does not allow it."""
        if len(requests) > 1:
            names = requests[0].outputs or tuple(self.outputs)
            rows = [len(next(iter(request.inputs.values()))) for request in requests]
            stacked = {name: np.concatenate([r.inputs[name] for r in requests]) for name in self.inputs}
            try:
                together = self._run(names, stacked)
            except ProtocolError:
                together = {}
            if together and all(len(array) == sum(rows) for array in together.values()):
                return [
                    InferResponse(
                        self.name, {n: a[end - count : end] for n, a in together.items()}, request.id
                    )
                    for request, count, end in zip(requests, rows, np.cumsum(rows), strict=True)
                ]
        return [self._alone(request) for request in requests]

    def _alone(self, request: InferRequest) -> InferResponse | ProtocolError:
        try:
            return self.run(request)
        except ProtocolError as error:
            return error

    def _run(self, names: Sequence[str], inputs: dict[str, Array]) -> dict[str, Array]:
        feeds = {name: _as_text(a) for name, a in inputs.items()} if self._takes_text else inputs
        try:
            arrays = self._session.run(names, feeds, self._options)
        except Exception as error:  # as above; a wrong free dimension shows only here
            raise ProtocolError(f"inputs: ONNX Runtime cannot run them: {error}") from error
        return dict(zip(names, arrays, strict=True))


def batch_key(request: InferRequest) -> tuple[object, ...] | None:
    """What requests must share to run as one batch; None for a request that has to run alone."""
    shapes = [array.shape for array in request.inputs.values()]
    if () in shapes or len({shape[0] for shape in shapes}) != 1:
        return None
    described = [(name, array.dtype, array.shape[1:]) for name, array in request.inputs.items()]
    return (request.outputs, *described)


def _fits(shape: Sequence[int], want: Sequence[Any]) -> bool:
    return len(shape) == len(want) and all(
        [size == n or not isinstance(n, int) for size, n in zip(shape, want, strict=True)]
    )


def _describe(arguments: Sequence[Any], file: Path) -> dict[str, tuple[str, list[Any]]]:
    for argument in arguments:
        if argument.type not in TYPES:
            raise ScenarioError(
                f"variant file {file}: tensor {argument.name!r} is a {argument.type}, which is not supported"
            )
    return {argument.name: (TYPES[argument.type], argument.shape) for argument in arguments}


def _tensor(name: str, datatype: str, shape: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [n if isinstance(n, int) else -1 for n in shape]}


def _as_text(array: Array) -> Array:
    return np.vectorize(_decoded, [object])(array) if array.dtype == object and array.size else array


def _decoded(value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise ProtocolError("inputs: the model takes text, and an element is no UTF-8") from None


class SlowModel(OnnxModel):
    """Runs the real network, then waits until its profile's processing delay has passed.

    t = (D_0 + d ζ) (1 + s (b - 1)) max(1 + σ N, 0)

    for a batch of b queries with payload ζ: the same as in simulation. A network that takes longer
    than t here takes what it takes.

    Args:
        profile: D_0, d, s and σ.
        seed, entity: key the draws, one for each batch.
    """

    clock = staticmethod(time.perf_counter)  # it sleeps

    def __init__(
        self,
        name: str,
        file: Path,
        folder: Path | None,
        profile: Profile,
        seed: int = 0,
        entity: int = 0,
        providers: Sequence[str] = (CPU,),
    ) -> None:
        super().__init__(name, file, folder, providers=providers)
        self.profile = profile
        self._seed, self._entity, self._batches = seed, entity, 0

    def run_batch(self, requests: Sequence[InferRequest]) -> list[InferResponse | ProtocolError]:
        """See `OnnxModel.run_batch`."""
        started_s = time.perf_counter()
        answers = super().run_batch(requests)
        size = max(sum(array.nbytes for array in request.inputs.values()) for request in requests)
        noise = normal_of(np.uint64(self._seed), int(Purpose.SERVICE), self._entity, self._batches)
        self._batches += 1
        mean_s = self.profile.delay_s(size, len(requests))
        left_s = mean_s * max(1.0 + self.profile.deviation * noise, 0.0) - (time.perf_counter() - started_s)
        time.sleep(max(left_s, 0.0))
        return answers
