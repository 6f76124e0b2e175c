"""What tasks of a pipeline pass on, as bytes: for the wire, and for the profiler that measures sizes.

    b  bytes, as they are
    j  JSON: text, numbers, lists and mappings of them
    z  a mapping of names to arrays (or one array, called ""), in NumPy's own format without pickles
    n  nothing: the task dropped the frame, and the tasks after it skip it

Nothing that arrives is ever unpickled, so a frame cannot run code.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

NOTHING = b"n"


def encode(value: Any) -> bytes:
    """The bytes of one output.

    Raises:
        TypeError: it is none of the kinds above.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b" + bytes(value)
    if isinstance(value, np.ndarray):
        return encode({"": value})
    if isinstance(value, dict) and any(isinstance(v, np.ndarray) for v in value.values()):
        out = io.BytesIO()
        np.savez(out, **{str(k): np.asarray(v) for k, v in value.items()})  # type: ignore[arg-type]
        return b"z" + out.getvalue()
    try:
        return b"j" + json.dumps(value).encode()
    except (TypeError, ValueError):
        raise TypeError(
            f"output of type {type(value).__name__} cannot be sent; return bytes, text, numbers, lists, "
            "mappings of these, an array or a mapping of names to arrays"
        ) from None


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` made.

    Raises:
        ValueError: they are not.
    """
    kind, body = data[:1], data[1:]
    if kind == b"b":
        return body
    if kind == b"j":
        return json.loads(body)
    if kind == b"z":
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        return found[""] if set(found) == {""} else found
    raise ValueError(f"payload of unknown kind {kind!r}")
