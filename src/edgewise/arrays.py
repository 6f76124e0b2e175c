"""The types of arrays, by what one element is; docstrings say the shapes."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Places = NDArray[
    np.uint32
]  # in an array: without a sign, compiled code does not ask whether it counts from the end
Records: TypeAlias = "np.recarray[Any, np.dtype[np.record]]"  # fields by attribute, or as arrays by name


def records(shape: tuple[int, ...], dtype: np.dtype[np.void]) -> Records:
    """Zeros whose fields can be read and written by attribute, in kernels and in Python."""
    return np.zeros(shape, dtype=np.dtype((np.record, dtype))).view(np.recarray)


def figure(name: str) -> Any:
    """A whole number in the `record` of who has it as a property."""

    def get(self: Any) -> int:
        return int(self.record[name])

    def put(self: Any, value: int) -> None:
        self.record[name] = value

    return property(get, put)
