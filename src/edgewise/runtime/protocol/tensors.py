"""Tensors of the protocol: arrays to bytes and JSON lists, and back. Bad data raise `ProtocolError`.

Numbers are never changed in silence: what does not fit the datatype is refused.
"""

import math
import struct
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from edgewise.errors import ProtocolError

MAX_ELEMENTS = 1 << 28
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
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
CODES = {"INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I",
         "UINT64": "Q", "FP16": "e", "FP32": "f", "FP64": "d"}  # fmt: skip


def datatype_of(name: str, array: Array) -> str:
    """The protocol's name of an array's type.

    Raises:
        ProtocolError: it has none.
    """
    dtype = array.dtype if array.dtype in NAMES else array.dtype.newbyteorder("<")
    if dtype not in NAMES:
        raise ProtocolError(f"{name}: arrays of {array.dtype} have no protocol datatype")
    return NAMES[dtype]


def to_binary(array: Array, datatype: str) -> bytes:
    """Raw little-endian bytes; BYTES elements each after their 4-byte length."""
    if datatype != "BYTES":
        return np.ascontiguousarray(array, dtype=DTYPES[datatype]).tobytes()
    parts = [value if isinstance(value, bytes) else str(value).encode() for value in array.ravel()]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def to_json(name: str, array: Array) -> msgspec.Raw:
    """Flat list of values.

    Raises:
        ProtocolError: JSON cannot hold a value.
    """
    if array.dtype == object:
        return msgspec.Raw(msgspec.json.encode([_as_text(name, value) for value in array.ravel()]))
    if array.dtype == DTYPES["BF16"]:
        with np.errstate(invalid="ignore"):  # signalling NaN
            array = array.astype(np.float32)
    text = msgspec.json.encode(array.ravel().tolist())
    if b"null" in text:
        raise ProtocolError(f"{name}: NaN and infinity have no JSON form; ask for binary outputs")
    return msgspec.Raw(text)


def from_binary(blob: memoryview, datatype: str, shape: tuple[int, ...], here: str) -> Array:
    """An array over raw bytes, not copied.

    Raises:
        ProtocolError: the bytes do not fit the shape.
    """
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


def shape_of(shape: list[int], here: str, most: int = MAX_ELEMENTS) -> tuple[int, ...]:
    """A checked shape.

    Raises:
        ProtocolError: no list of sizes, or more than `most` elements (413).
    """
    if len(shape) > 16 or min(shape, default=0) < 0:
        raise ProtocolError(f"{here}.shape: {str(shape)[:80]} is not a list of sizes")
    if math.prod([n or 1 for n in shape]) > most:
        raise ProtocolError(f"{here}.shape: more than {most} elements", status=413)
    return tuple(shape)


def from_json(data: Any, datatype: str, shape: tuple[int, ...], here: str) -> Array:
    """An array of a flat or nested list.

    Raises:
        ProtocolError: the values do not fit the datatype or the shape.
    """
    if not isinstance(data, list):
        raise ProtocolError(f"{here}.data: a list is needed")
    try:
        return _flat(data, datatype).reshape(shape)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ProtocolError(
            f"{here}.data: does not make {datatype} of shape {list(shape)}: {error}"
        ) from None


def _flat(data: list[Any], datatype: str) -> Array:
    if datatype == "BYTES":
        return _texts(data)
    if datatype in CODES:
        try:  # many times faster than what is below
            return np.frombuffer(struct.pack(f"<{len(data)}{CODES[datatype]}", *data), DTYPES[datatype])
        except struct.error:  # nested, or floats where whole numbers are wanted
            pass
    with np.errstate(all="raise", under="ignore"):
        return _numbers(data, DTYPES[datatype])


def _texts(data: list[Any]) -> Array:
    flat = np.array(data, dtype=object).ravel()
    if not all(isinstance(value, str) for value in flat):
        raise TypeError("BYTES need strings")
    return np.array([value.encode() for value in flat], dtype=object)


def _numbers(data: list[Any], dtype: np.dtype[Any]) -> Array:
    """Numbers as `dtype`; ValueError where one would change, TypeError where one is no number."""
    found = np.array(data) if data else np.empty(0)
    if found.dtype.kind == "O" and all(type(value) in (int, float, bool) for value in found.ravel()):
        found = found.astype(np.float64)  # integers beyond 64 bits
    if found.dtype.kind not in "biuf":
        raise TypeError("not numbers")
    if dtype.kind in "iu":
        exact = np.array(data, dtype=dtype)  # OverflowError where an integer does not fit
        if found.dtype.kind == "f" and not np.array_equal(exact.astype(np.float64), found):
            raise ValueError("not whole numbers in range")
        return exact.ravel()
    if dtype.kind == "b" and not np.isin(found, (0, 1)).all():
        raise ValueError("BOOL takes true, false, 0 and 1")
    return found.astype(dtype).ravel()


def _as_text(name: str, value: Any) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise ProtocolError(f"{name}: bytes that are no UTF-8 text need binary outputs") from None


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
