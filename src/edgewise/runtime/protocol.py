"""Open Inference Protocol v2, free of any transport: JSON and the binary tensor extension.

A body is JSON, or JSON followed by the raw tensors whose lengths the JSON states; the header
`Inference-Header-Content-Length` then gives the length of the JSON. Every malformed body
raises `ProtocolError` naming the field, never anything else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgewise.errors import ProtocolError
from edgewise.runtime.tensors import (
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
]

compact = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` makes an encoder each time
JSON_LENGTH = "inference-header-content-length"


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class InferResponse:
    """A model's answer: tensor name → array."""

    model: str
    outputs: dict[str, Array]
    id: str = ""
    version: str = "1"
    parameters: dict[str, Any] = field(default_factory=dict)


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
    return _join(head, blobs)


def decode_request(headers: Mapping[str, str], body: bytes, max_elements: int = MAX_ELEMENTS) -> InferRequest:
    """Read a request; `headers` have lower-case names.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(headers, body)
    inputs = _decode(_list(head, "inputs"), rest, "inputs", max_elements)
    if not inputs:
        raise ProtocolError("inputs: at least one tensor is needed")
    parameters = _dict(head, "parameters")
    binary = _flag(parameters.pop("binary_data_output", False), "parameters.binary_data_output")
    outputs: dict[str, bool] = {}
    for i, output in enumerate(_list(head, "outputs") if head.get("outputs") is not None else []):
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise ProtocolError(f"outputs[{i}].name: a string is needed")
        wanted = _dict(output, "parameters").get("binary_data", binary)
        outputs[output["name"]] = _flag(wanted, f"outputs[{i}].parameters.binary_data")
    return InferRequest(inputs, tuple(outputs), _text(head, "id"), binary, parameters, outputs)


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
    return _join(head, blobs)


def decode_response(
    headers: Mapping[str, str], body: bytes, max_elements: int = MAX_ELEMENTS
) -> InferResponse:
    """Read an answer.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(headers, body)
    outputs = _decode(_list(head, "outputs"), rest, "outputs", max_elements)
    model, identifier, version = (_text(head, name) for name in ("model_name", "id", "model_version"))
    return InferResponse(model, outputs, identifier, version, _dict(head, "parameters"))


def _join(head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, str], bytes]:
    text = compact(head).encode()
    if not blobs:
        return {"content-type": "application/json"}, text
    headers = {"content-type": "application/octet-stream", JSON_LENGTH: str(len(text))}
    return headers, b"".join((text, *blobs))


def _split(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, Any], memoryview]:
    stated = headers.get(JSON_LENGTH)
    length = len(body)
    if stated is not None:
        if not (stated.isascii() and stated.isdigit()) or len(stated) > 18 or int(stated) > len(body):
            raise ProtocolError(
                f"{JSON_LENGTH}: {stated!r} is not a length within the body of {len(body)} bytes"
            )
        length = int(stated)
    try:
        head = json.loads(body[:length] if length < len(body) else body)
    except (ValueError, RecursionError):
        raise ProtocolError("body: the JSON part cannot be read") from None
    if not isinstance(head, dict):
        raise ProtocolError("body: a JSON object is needed")
    return head, memoryview(body)[length:]


def _list(head: dict[str, Any], name: str) -> list[Any]:
    value = head.get(name)
    if not isinstance(value, list):
        raise ProtocolError(f"{name}: a list is needed")
    return value


def _dict(head: dict[str, Any], name: str) -> dict[str, Any]:
    value = head.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(f"{name}: an object is needed")
    return dict(value)


def _text(head: dict[str, Any], name: str) -> str:
    value = head.get(name)
    if value is not None and not isinstance(value, str):
        raise ProtocolError(f"{name}: a string is needed")
    return value or ""


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError(f"{name}: true or false is needed")
    return value


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


def _decode(listed: list[Any], rest: memoryview, where: str, most: int) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for i, tensor in enumerate(listed):
        here = f"{where}[{i}]"
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise ProtocolError(f"{here}.name: a string is needed")
        if tensor["name"] in arrays:
            raise ProtocolError(f"{here}.name: {tensor['name']!r} is given twice")
        datatype = tensor.get("datatype")
        if not isinstance(datatype, str) or datatype not in DTYPES:
            raise ProtocolError(f"{here}.datatype: {datatype!r} is none of {', '.join(DTYPES)}")
        shape = shape_of(tensor.get("shape"), here, most)
        size = _dict(tensor, "parameters").get("binary_data_size")
        if size is None:
            arrays[tensor["name"]] = from_json(tensor.get("data"), datatype, shape, here)
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
            raise ProtocolError(
                f"{here}.parameters.binary_data_size: {size!r} does not fit {len(rest)} bytes"
            )
        arrays[tensor["name"]] = from_binary(rest[:size], datatype, shape, here)
        rest = rest[size:]
    if len(rest):
        raise ProtocolError(f"body: {len(rest)} bytes belong to no tensor")
    return arrays
