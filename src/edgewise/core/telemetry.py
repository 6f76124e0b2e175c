"""From what workers counted over a period to the measured fields of a view; see `core.sojourns`."""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.events import Telemetry
from edgewise.core.sojourns import LONGEST_S as LONGEST
from edgewise.kernels.compiled import kernel

LONGEST_S = np.array(LONGEST)


def telemetry(
    measured_s: float,
    period_s: float,
    queue: Floats,
    answered: Ints,
    sum_s: Floats,
    bins: Ints,
    links: Floats | None = None,
) -> Telemetry:
    """What is measured of W workers at the end of a period.

    Args:
        queue: (W,) queries waiting or in service.
        answered, sum_s: (W,) queries answered in the period, and the sum of their sojourns.
        bins: (W, DELAY_BINS) the same queries by sojourn.
        links: see `Telemetry`.
    """
    mean_s = sum_s / np.maximum(answered, 1)
    return Telemetry(measured_s, queue, answered / period_s, mean_s, p95_s(answered, bins), links)


@kernel
def p95_s(answered: Ints, bins: Ints) -> Floats:
    """(W,) 95th percentile of the period's sojourns, 0 where nothing was answered."""
    quantile = np.zeros(answered.size)
    for k in range(quantile.size):
        below = 0
        for b in range(bins.shape[1]):
            below += bins[k, b]
            if answered[k] > 0 and below >= 0.95 * answered[k]:
                quantile[k] = LONGEST_S[b]
                break
    return quantile
