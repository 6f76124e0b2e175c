"""Open Inference Protocol v2, free of any transport: JSON and the binary tensor extension.

A body is JSON, or JSON followed by the raw tensors whose lengths the JSON states; the header
`Inference-Header-Content-Length` then gives the length of the JSON. Every malformed body raises
`ProtocolError` naming the field, never anything else.

What clients state beside it, in JSON and in headers, is checked here, too; every error names the field, what
it holds and what it should. Our headers have their names here.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from edgewise.errors import ProtocolError
from edgewise.model.values import most_of
from edgewise.runtime.protocol.bodies import ModelAnswer, ModelQuery, Tensor, decode
from edgewise.runtime.protocol.tensors import (
    DTYPES,
    MAX_ELEMENTS,
    NAMES,
    Array,
    datatype_of,
    from_binary,
    from_json,
    shape_of,
    to_binary,
    to_json,
)

__all__ = [
    "DTYPES",
    "JSON_LENGTH",
    "NAMES",
    "InferRequest",
    "InferResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "join",
]

JSON_LENGTH = "inference-header-content-length"
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class InferRequest:
    """Tensors for a model.

    Attributes:
        inputs: tensor name → array; BYTES are object arrays of bytes.
        outputs: names asked for; empty means all.
        binary: whether outputs are wanted in binary, where `binary_outputs` does not say.
        parameters: the request's own parameters.
        binary_outputs: output name → whether this one is wanted in binary.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...] = ()
    id: str = ""
    binary: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)
    binary_outputs: dict[str, bool] = field(default_factory=dict)

    def wants_binary(self, output: str) -> bool:
        """Whether an output is wanted in binary."""
        return self.binary_outputs.get(output, self.binary)


@dataclass(slots=True, eq=False)
class InferResponse:
    """A model's answer: tensor name → array."""

    model: str
    outputs: dict[str, Array]
    id: str = ""
    version: str = "1"
    parameters: dict[str, Any] = field(default_factory=dict)


_REQUEST, _RESPONSE, _ENCODER = (
    msgspec.json.Decoder(ModelQuery),
    msgspec.json.Decoder(ModelAnswer),
    msgspec.json.Encoder(),
)


def encode_request(request: InferRequest, json_inputs: Collection[str] = ()) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request; tensors go in binary, but for those named in `json_inputs`.

    Raises:
        ProtocolError: a tensor has no form in the protocol.
    """
    tensors, blobs = _encode(request.inputs, {name: False for name in json_inputs}, True)
    head: dict[str, Any] = {"inputs": tensors}
    if request.id:
        head["id"] = request.id
    if request.outputs:
        wanted = {name: request.wants_binary(name) for name in request.outputs}
        head["outputs"] = [{"name": n, "parameters": {"binary_data": b}} for n, b in wanted.items()]
    head["parameters"] = {**request.parameters, "binary_data_output": request.binary}
    return join(head, blobs)


def decode_request(headers: Mapping[str, str], body: bytes, max_elements: int = MAX_ELEMENTS) -> InferRequest:
    """Read a request; `headers` have lower-case names.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(_REQUEST, headers, body)
    inputs = _decode(head.inputs, rest, "inputs", max_elements)
    if not inputs:
        raise ProtocolError("inputs: at least one tensor is needed")
    parameters = head.parameters or {}
    binary = parameters.pop("binary_data_output", False)
    if not isinstance(binary, bool):
        raise ProtocolError("parameters.binary_data_output: true or false is needed")
    outputs: dict[str, bool] = {}
    for output in head.outputs or ():
        stated = output.parameters.binary_data if output.parameters else msgspec.UNSET
        outputs[output.name] = binary if stated is msgspec.UNSET else stated
    return InferRequest(inputs, tuple(outputs), head.id or "", binary, parameters, outputs)


def encode_response(
    response: InferResponse, binary: bool, binary_outputs: Mapping[str, bool] | None = None
) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer; `binary_outputs` says it for single tensors.

    Raises:
        ProtocolError: a tensor has no form in JSON: NaN, infinity, bytes that are no text.
    """
    tensors, blobs = _encode(response.outputs, binary_outputs or {}, binary)
    head: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        head["id"] = response.id
    if response.parameters:
        head["parameters"] = response.parameters
    head["outputs"] = tensors
    return join(head, blobs)


def decode_response(
    headers: Mapping[str, str], body: bytes, max_elements: int = MAX_ELEMENTS
) -> InferResponse:
    """Read an answer.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(_RESPONSE, headers, body)
    outputs = _decode(head.outputs, rest, "outputs", max_elements)
    return InferResponse(
        head.model_name or "", outputs, head.id or "", head.model_version or "", head.parameters or {}
    )


def join(head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, str], bytes]:
    """Headers and body of a JSON head and the binary tensors that it describes.

    Raises:
        ProtocolError: the head has no JSON form.
    """
    try:
        text = _ENCODER.encode(head)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"body: has no JSON form: {error}") from None
    if not blobs:
        return {"content-type": "application/json"}, text
    headers = {"content-type": "application/octet-stream", JSON_LENGTH: str(len(text))}
    return headers, b"".join((text, *blobs))


def _split(decoder: msgspec.json.Decoder[T], headers: Mapping[str, str], body: bytes) -> tuple[T, memoryview]:
    stated = headers.get(JSON_LENGTH)
    length = len(body)
    if stated is not None:
        if not (stated.isascii() and stated.isdigit()) or len(stated) > 18 or int(stated) > len(body):
            raise ProtocolError(
                f"{JSON_LENGTH}: {stated!r} is not a length within the body of {len(body)} bytes"
            )
        length = int(stated)
    view = memoryview(body)
    return decode(decoder, view[:length]), view[length:]


def _encode(
    tensors: Mapping[str, Array], chosen: Mapping[str, bool], binary: bool
) -> tuple[list[dict[str, Any]], list[bytes]]:
    described, blobs = [], []
    for name, array in tensors.items():
        datatype = datatype_of(name, array)
        tensor: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype}
        if chosen.get(name, binary):
            blob = to_binary(array, datatype)
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            tensor["data"] = to_json(name, array)
        described.append(tensor)
    return described, blobs


def _decode(listed: list[Tensor], rest: memoryview, where: str, most: int) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for i, tensor in enumerate(listed):
        name, datatype, here = tensor.name, tensor.datatype, f"{where}[{i}]"
        if name in arrays:
            raise ProtocolError(f"{here}.name: {name!r} is given twice")
        if datatype not in DTYPES:
            raise ProtocolError(f"{here}.datatype: {datatype!r} is none of {', '.join(DTYPES)}")
        shape = shape_of(tensor.shape, here, most)
        size = tensor.parameters.binary_data_size if tensor.parameters else None
        if size is None:
            arrays[name] = from_json(tensor.data, datatype, shape, here)
            continue
        if not 0 <= size <= len(rest):
            raise ProtocolError(
                f"{here}.parameters.binary_data_size: {size!r} does not fit {len(rest)} bytes"
            )
        arrays[name] = from_binary(rest[:size], datatype, shape, here)
        rest = rest[size:]
    if rest:
        raise ProtocolError(f"body: {len(rest)} bytes belong to no tensor")
    return arrays


def stated_in(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object that a body holds.

    Args:
        what: it should have, for the message.
    Raises:
        ProtocolError: it holds none.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError(f"body: a JSON object with {what} is needed")
    return found


def number(value: Any, name: str, least: float = 0.0, most: float | None = None) -> float:
    """A finite number, no more than a scenario may have of what the name ends with.

    Raises:
        ProtocolError: it is none from `least` to `most`.
    """
    most = most if most is not None else most_of(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ProtocolError(f"{name}: {str(value)[:80]!r} is not a number from {least:g} to {most:g}")
    return float(value)


def text(value: Any, name: str, least: int = 1, most: int = 1_000_000) -> str:
    """A text that everyone can write down; JSON may hold halves of characters, and zeros that end a path.

    Raises:
        ProtocolError: it is none, or of fewer than `least` or more than `most` characters.
    """
    if (
        isinstance(value, str)
        and least <= len(value) <= most
        and not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in value)
    ):
        return value
    raise ProtocolError(f"{name}: {str(value)[:80]!r}; a text of {least} to {most} characters is needed")


STREAM = "edgewise-stream"  # a query's stream, by number
REMAINING = "edgewise-remaining-s"  # time left for a query
PRIORITY = "edgewise-priority"  # of a query at a worker; larger goes first
AGE = "edgewise-age-s"  # time since a query came to its gateway; workers of split variants take the oldest
WORKER, VARIANT = "edgewise-worker", "edgewise-variant"  # who answered
TOOK = "edgewise-worker-s"  # time an answered query spent at its worker
QUEUED = "edgewise-queued"  # queries that wait or run at a worker
BEGAN, BUSY = (
    "edgewise-began-s",
    "edgewise-busy-s",
)  # when a worker began, Unix time; how long it worked since
DEADLINE = "edgewise-deadline-s"  # tolerated delay of a query
PLAN, SERVERS, SENT = "edgewise-plan", "edgewise-servers", "edgewise-sent-bytes"  # of a split query
TRACE = ("traceparent", "tracestate")  # W3C trace context, passed on


def in_header(headers: Mapping[str, str], name: str, default: float) -> float:
    """A header's number.

    Raises:
        ProtocolError: it is none.
    """
    text = headers.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ProtocolError(f"{name}: {text!r} is not a number")
    return value


def remaining_s(headers: Mapping[str, str]) -> float:
    """Time left for a query; inf when its header is missing.

    Raises:
        ProtocolError: the header is no number.
    """
    return in_header(headers, REMAINING, math.inf)


def age_s(headers: Mapping[str, str]) -> float:
    """Time that a query has been under way; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no number.
    """
    return max(in_header(headers, AGE, 0.0), 0.0)


def priority(headers: Mapping[str, str]) -> int:
    """Priority of a query; 0 when its header is missing.

    Raises:
        ProtocolError: the header is no whole number.
    """
    value = in_header(headers, PRIORITY, 0.0)
    if not value.is_integer() or abs(value) > 2**31:
        raise ProtocolError(f"{PRIORITY}: {headers[PRIORITY]!r} is not a whole number")
    return int(value)
