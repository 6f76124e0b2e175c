"""What tasks of a pipeline pass on, as bytes: for the wire, and for the profiler that measures sizes.

    b  bytes, as they are
    j  JSON: text, numbers, lists and mappings of them
    z  a mapping of names to arrays (or one array, called ""), in NumPy's own format without pickles
    n  nothing: the task dropped the frame, and the tasks after it skip it

Nothing that arrives is ever unpickled, so a frame cannot run code. NumPy takes longer to load than a task
takes to start, so it is loaded by those that pass arrays on.
"""

import io
import json
import sys
from collections.abc import Mapping
from typing import Any

NOTHING = b"n"


def encode(value: Any) -> bytes:
    """The bytes of one output.

    Raises:
        TypeError: it is none of the kinds above.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b" + bytes(value)
    if _is_array(value):
        return encode({"": value})
    if isinstance(value, dict) and any(map(_is_array, value.values())):
        return b"z" + _arrays(value)
    try:
        return b"j" + json.dumps(value).encode()
    except (TypeError, ValueError):
        raise TypeError(
            f"output of type {type(value).__name__} cannot be sent; return bytes, text, numbers, lists, "
            "mappings of these, an array or a mapping of names to arrays"
        ) from None


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")  # who has not loaded it has no arrays
    return numpy is not None and isinstance(value, numpy.ndarray)


def _arrays(named: Mapping[Any, Any]) -> bytes:
    import numpy as np

    out = io.BytesIO()
    np.savez(out, **{str(k): np.asarray(v) for k, v in named.items()})  # type: ignore[arg-type]
    return out.getvalue()


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
        import numpy as np

        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        return found[""] if set(found) == {""} else found
    raise ValueError(f"payload of unknown kind {kind!r}")
