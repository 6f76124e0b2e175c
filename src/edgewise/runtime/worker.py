"""A worker: an Open Inference Protocol v2 server in front of ONNX Runtime.

Queries wait in one bounded first-come-first-served queue; one thread runs the network. A query
whose remaining time is already over is answered 504 and not run.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from edgewise.errors import ProtocolError, ScenarioError
from edgewise.runtime import http
from edgewise.runtime.protocol import (
    NAMES,
    InferRequest,
    InferResponse,
    decode_request,
    encode_response,
)

TYPES = {
    "tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(float16)": "FP16", "tensor(bool)": "BOOL",
    "tensor(int8)": "INT8", "tensor(int16)": "INT16", "tensor(int32)": "INT32", "tensor(int64)": "INT64",
    "tensor(uint8)": "UINT8", "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64", "tensor(string)": "BYTES",
}  # fmt: skip
REMAINING = "edgewise-remaining-s"


class OnnxModel:
    """An ONNX file ready to run.

    Args:
        name: how it is called in URLs.
        file: the .onnx file.
        folder: when given, the file must lie inside it.
    Raises:
        ScenarioError: the file is missing, elsewhere, or no ONNX model.
    """

    def __init__(self, name: str, file: Path, folder: Path | None = None) -> None:
        self.name, self.file = name, file.resolve()
        if folder is not None and not self.file.is_relative_to(folder.resolve()):
            raise ScenarioError(f"variant file {file}: lies outside the allowed folder {folder}")
        if self.file.suffix != ".onnx" or not self.file.is_file():
            raise ScenarioError(f"variant file {file}: no such .onnx file")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                str(self.file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has no common base of its errors
            raise ScenarioError(f"variant file {file}: ONNX Runtime cannot load it: {error}") from error
        self.inputs = {i.name: (TYPES[i.type], i.shape) for i in self._session.get_inputs()}
        self.outputs = {o.name: (TYPES.get(o.type, "FP32"), o.shape) for o in self._session.get_outputs()}

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
        if set(request.inputs) != set(self.inputs):
            raise ProtocolError(f"inputs: have {sorted(request.inputs)}, need {sorted(self.inputs)}")
        for name, array in request.inputs.items():
            datatype, shape = self.inputs[name]
            have = NAMES[array.dtype]
            if have != datatype:
                raise ProtocolError(f"inputs.{name}: is {have}, the model needs {datatype}")
            fits = len(shape) == array.ndim and all(
                not isinstance(want, int) or want == size
                for want, size in zip(shape, array.shape, strict=True)
            )
            if not fits:
                want = [n if isinstance(n, int) else -1 for n in shape]
                raise ProtocolError(f"inputs.{name}: has shape {list(array.shape)}, needs {want}")
        for name in request.outputs:
            if name not in self.outputs:
                raise ProtocolError(f"outputs: no {name!r}; the model has {', '.join(self.outputs)}")

    def run(self, request: InferRequest) -> InferResponse:
        """Run the network on a checked request.

        Raises:
            ProtocolError: ONNX Runtime rejects the tensors.
        """
        names = request.outputs or tuple(self.outputs)
        try:
            arrays = self._session.run(list(names), request.inputs)
        except Exception as error:  # as above; a wrong free dimension shows only here
            raise ProtocolError(f"inputs: ONNX Runtime cannot run them: {error}") from error
        return InferResponse(self.name, dict(zip(names, arrays, strict=True)), request.id)


def _tensor(name: str, datatype: str, shape: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [n if isinstance(n, int) else -1 for n in shape]}


class Worker:
    """Serves one model.

    Args:
        model: what to run.
        max_queue: queries that may wait or run; one more is answered 429.
    """

    def __init__(self, model: OnnxModel, max_queue: int = 64) -> None:
        self.model = model
        self.draining = False
        self._max_queue = max_queue
        self._queued = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=model.name)

    async def handle(self, request: http.Request) -> http.Response:
        """Answer one HTTP request."""
        parts = request.path.strip("/").split("/")
        if parts == ["v2"]:
            return http.as_json(
                {"name": "edgewise-worker", "version": "1", "extensions": ["binary_tensor_data"]}
            )
        if parts[:2] == ["v2", "health"] and len(parts) == 3 and parts[2] in ("live", "ready"):
            ready = parts[2] == "live" or not self.draining
            return http.as_json({parts[2]: ready}, 200 if ready else 503)
        if parts[:2] == ["v2", "models"] and len(parts) >= 3:
            return await self._model_request(request, parts[2:])
        return http.failure(404, f"no {request.path}")

    async def _model_request(self, request: http.Request, parts: list[str]) -> http.Response:
        if parts[0] != self.model.name:
            return http.failure(404, f"no model {parts[0]!r}; this worker serves {self.model.name!r}")
        if parts[1:] == []:
            return http.as_json(self.model.metadata())
        if parts[1:] == ["ready"]:
            return http.as_json({"name": self.model.name, "ready": not self.draining})
        if parts[1:] != ["infer"]:
            return http.failure(404, f"no {request.path}")
        if request.method != "POST":
            return http.failure(405, "infer needs POST")
        return await self._infer(request)

    async def _infer(self, request: http.Request) -> http.Response:
        if self.draining:
            return http.failure(503, "draining")
        if self._queued >= self._max_queue:
            return http.failure(429, f"queue full: {self._max_queue} queries wait")
        expires = time.monotonic() + remaining_s(request.headers)
        self._queued += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._run, request, expires)
        finally:
            self._queued -= 1

    def _run(self, request: http.Request, expires: float) -> http.Response:
        if time.monotonic() > expires:
            return http.failure(504, "deadline passed while waiting; not run")
        try:
            tensors = decode_request(request.headers, request.body)
            self.model.check(tensors)
            answer = self.model.run(tensors)
        except ProtocolError as error:
            return http.failure(error.status, str(error))
        headers, body = encode_response(answer, tensors.binary)
        return http.Response(200, body, headers)

    async def drain(self) -> None:
        """Take no more queries and wait for those accepted."""
        self.draining = True
        while self._queued:
            await asyncio.sleep(0.005)
        self._thread.shutdown()


def remaining_s(headers: dict[str, str]) -> float:
    """Time left for a query, from its header; inf when it has none.

    Raises:
        ProtocolError: the header is no number.
    """
    text = headers.get(REMAINING)
    if text is None:
        return float("inf")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if np.isnan(value):
        raise ProtocolError(f"{REMAINING}: {text!r} is not a number of seconds")
    return value
