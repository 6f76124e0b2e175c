"""The order of values, in kernels: small to compile, and the same without the compiler."""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.kernels.compiled import kernel

SMALL = 15  # so few are sorted by insertion


@kernel
def argsort(values: Floats, first: int, last: int, order: Ints) -> None:
    """Write first, …, last - 1 into these places of `order`, by rising value.

    Equal values come in the order in which numba's quicksort leaves them, on which recorded results depend:
    the pivot is the median of the first, the middle and the last.
    """
    for i in range(first, last):
        order[i] = i
    later = np.empty((64, 2), np.int64)  # of two parts the smaller comes first, so few wait
    later[0, 0], later[0, 1] = first, last - 1
    waiting = 1
    while waiting > 0:
        waiting -= 1
        low, high = later[waiting, 0], later[waiting, 1]
        while high - low >= SMALL:
            i = partition(values, low, high, order)
            if high - i > i - low:
                later[waiting, 0], later[waiting, 1] = i + 1, high
                high = i - 1
            else:
                later[waiting, 0], later[waiting, 1] = low, i - 1
                low = i + 1
            waiting += 1
        for i in range(low + 1, high + 1):
            k, j = order[i], i
            while j > low and values[k] < values[order[j - 1]]:
                order[j] = order[j - 1]
                j -= 1
            order[j] = k


@kernel
def partition(values: Floats, low: int, high: int, order: Ints) -> int:
    """Put what is below a pivot before it and what is above behind it; returns its place."""
    middle = (low + high) >> 1
    for one, other in ((low, middle), (middle, high), (low, middle)):
        if values[order[other]] < values[order[one]]:
            order[one], order[other] = order[other], order[one]
    pivot = values[order[middle]]
    order[high], order[middle] = order[middle], order[high]
    i, j = low, high - 1
    while True:
        while i < high and values[order[i]] < pivot:
            i += 1
        while j >= low and pivot < values[order[j]]:
            j -= 1
        if i >= j:
            break
        order[i], order[j] = order[j], order[i]
        i, j = i + 1, j - 1
    order[i], order[high] = order[high], order[i]
    return i
