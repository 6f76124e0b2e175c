"""Kernels called past numba's look-up of types."""

import numpy as np

from edgewise.core.telemetry import p95_s
from edgewise.sim.direct import direct


def test_direct_code_answers_as_the_kernel_does():
    answered, bins = np.array([0, 20, 3]), np.zeros((3, 125), dtype=np.int64)
    bins[1, [10, 20]], bins[2, 5] = (19, 1), 3
    code = direct(p95_s, answered, bins)
    for shift in range(3):
        given = np.roll(answered, shift), np.roll(bins, shift, axis=0)
        assert code(*given).tolist() == p95_s(*given).tolist()
    assert code(answered, bins)[1] > code(answered, bins)[2] > 0.0
