"""Open Inference Protocol v2, free of any transport: JSON and the binary tensor extension.

A body is JSON, or JSON followed by the raw tensors whose lengths the JSON states; the header
`Inference-Header-Content-Length` then gives the length of the JSON. Every malformed body
raises `ProtocolError` naming the field, never anything else.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewise.errors import ProtocolError

JSON_LENGTH = "inference-header-content-length"
Array = np.ndarray[Any, Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True, eq=False)
class InferRequest:
    """Tensors for a model.

    Attributes:
        inputs: tensor name → array; BYTES are object arrays of bytes.
        outputs: names asked for; empty means all.
        binary: whether outputs are wanted in binary.
        parameters: the request's own parameters.
    """

    inputs: dict[str, Array]
    outputs: tuple[str, ...] = ()
    id: str = ""
    binary: bool = True
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class InferResponse:
    """A model's answer: tensor name → array."""

    model: str
    outputs: dict[str, Array]
    id: str = ""
    version: str = "1"


def encode_request(request: InferRequest) -> tuple[dict[str, str], bytes]:
    """Headers and body of a request; tensors go in binary."""
    tensors, blobs = _encode(request.inputs, binary=True)
    head: dict[str, Any] = {"inputs": tensors}
    if request.id:
        head["id"] = request.id
    if request.outputs:
        options = {"binary_data": request.binary}
        head["outputs"] = [{"name": name, "parameters": options} for name in request.outputs]
    head["parameters"] = {**request.parameters, "binary_data_output": request.binary}
    return _join(head, blobs)


def decode_request(headers: Mapping[str, str], body: bytes, max_elements: int = 1 << 28) -> InferRequest:
    """Read a request; `headers` have lower-case names.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(headers, body)
    inputs = _decode(_list(head, "inputs"), rest, "inputs", max_elements)
    if not inputs:
        raise ProtocolError("inputs: at least one tensor is needed")
    parameters = _dict(head, "parameters")
    outputs, wants = [], bool(parameters.pop("binary_data_output", False))
    for i, output in enumerate(_list(head, "outputs") if "outputs" in head else []):
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise ProtocolError(f"outputs[{i}].name: a string is needed")
        outputs.append(output["name"])
        wants = wants or bool(_dict(output, "parameters").get("binary_data", False))
    identifier = head.get("id", "")
    if not isinstance(identifier, str):
        raise ProtocolError("id: a string is needed")
    return InferRequest(inputs, tuple(outputs), identifier, wants, parameters)


def encode_response(response: InferResponse, binary: bool) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer."""
    tensors, blobs = _encode(response.outputs, binary)
    head: dict[str, Any] = {
        "model_name": response.model,
        "model_version": response.version,
        "outputs": tensors,
    }
    if response.id:
        head["id"] = response.id
    return _join(head, blobs)


def decode_response(headers: Mapping[str, str], body: bytes, max_elements: int = 1 << 28) -> InferResponse:
    """Read an answer.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    head, rest = _split(headers, body)
    outputs = _decode(_list(head, "outputs"), rest, "outputs", max_elements)
    texts = [head.get(name, "") for name in ("model_name", "id", "model_version")]
    if not all(isinstance(text, str) for text in texts):
        raise ProtocolError("model_name, id, model_version: strings are needed")
    return InferResponse(texts[0], outputs, texts[1], texts[2])


def _join(head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, str], bytes]:
    text = json.dumps(head, separators=(",", ":")).encode()
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
        head = json.loads(body[:length])
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
    value = head.get(name, {})
    if not isinstance(value, dict):
        raise ProtocolError(f"{name}: an object is needed")
    return dict(value)


def _encode(tensors: Mapping[str, Array], binary: bool) -> tuple[list[dict[str, Any]], list[bytes]]:
    described, blobs = [], []
    for name, array in tensors.items():
        datatype = _datatype(name, array)
        tensor: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype}
        if binary:
            blob = _pack(array) if datatype == "BYTES" else _little(array, datatype).tobytes()
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        elif datatype == "BYTES":
            tensor["data"] = [_text(name, value) for value in array.ravel()]
        else:
            tensor["data"] = array.ravel().tolist()
        described.append(tensor)
    return described, blobs


def _datatype(name: str, array: Array) -> str:
    dtype = array.dtype.newbyteorder("<") if array.dtype.kind != "O" else array.dtype
    if dtype not in NAMES:
        raise ProtocolError(f"{name}: arrays of {array.dtype} have no protocol datatype")
    return NAMES[dtype]


def _little(array: Array, datatype: str) -> Array:
    return np.ascontiguousarray(array, dtype=DTYPES[datatype])


def _text(name: str, value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise ProtocolError(f"{name}: bytes that are no UTF-8 text need binary outputs") from None


def _pack(array: Array) -> bytes:
    parts = [value if isinstance(value, bytes) else str(value).encode() for value in array.ravel()]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


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
        shape = _shape(tensor.get("shape"), here, most)
        size = _dict(tensor, "parameters").get("binary_data_size")
        if size is None:
            arrays[tensor["name"]] = _from_json(tensor.get("data"), datatype, shape, here)
            continue
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(rest):
            raise ProtocolError(
                f"{here}.parameters.binary_data_size: {size!r} does not fit {len(rest)} bytes"
            )
        arrays[tensor["name"]] = _from_binary(rest[:size], datatype, shape, here)
        rest = rest[size:]
    if len(rest):
        raise ProtocolError(f"body: {len(rest)} bytes belong to no tensor")
    return arrays


def _shape(shape: Any, here: str, most: int) -> tuple[int, ...]:
    fine = isinstance(shape, list) and len(shape) <= 16
    if not fine or not all(type(n) is int and 0 <= n <= most for n in shape):
        raise ProtocolError(f"{here}.shape: {str(shape)[:80]} is not a list of sizes")
    if math.prod(max(n, 1) for n in shape) > most:
        raise ProtocolError(f"{here}.shape: more than {most} elements", status=413)
    return tuple(shape)


def _from_json(data: Any, datatype: str, shape: tuple[int, ...], here: str) -> Array:
    if not isinstance(data, list):
        raise ProtocolError(f"{here}.data: a list is needed")
    try:
        flat = np.array(data, dtype=object).ravel()
        if datatype == "BYTES":
            values = np.empty(len(flat), dtype=object)
            values[:] = [_bytes(value) for value in flat]
        else:
            if not all(isinstance(value, bool | int | float) for value in flat):
                raise TypeError("not numbers")
            values = flat.astype(DTYPES[datatype])
        return values.reshape(shape)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(
            f"{here}.data: does not make {datatype} of shape {list(shape)}: {error}"
        ) from None


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("BYTES need strings")
    return value.encode("utf-8", "surrogatepass")


def _from_binary(blob: memoryview, datatype: str, shape: tuple[int, ...], here: str) -> Array:
    count = math.prod(shape)
    if datatype == "BYTES":
        return _unpack(blob, count, here).reshape(shape)
    dtype = DTYPES[datatype]
    if len(blob) != count * dtype.itemsize:
        need = count * dtype.itemsize
        raise ProtocolError(f"{here}: {datatype} of shape {list(shape)} needs {need} bytes, has {len(blob)}")
    if datatype == "BOOL":
        return np.not_equal(np.frombuffer(blob, dtype=np.uint8), 0).reshape(shape)
    return np.frombuffer(blob, dtype=dtype).reshape(shape)


def _unpack(blob: memoryview, count: int, here: str) -> Array:
    if count * 4 > len(blob):
        raise ProtocolError(
            f"{here}: {count} BYTES elements need at least {count * 4} bytes, has {len(blob)}"
        )
    values = np.empty(count, dtype=object)
    at = 0
    for i in range(count):
        if at + 4 > len(blob):
            raise ProtocolError(f"{here}: BYTES element {i} has no length")
        (size,) = struct.unpack_from("<I", blob, at)
        at += 4
        if at + size > len(blob):
            raise ProtocolError(f"{here}: BYTES element {i} is cut short")
        values[i] = bytes(blob[at : at + size])
        at += size
    if at != len(blob):
        raise ProtocolError(f"{here}: {len(blob) - at} bytes are left over")
    return values
