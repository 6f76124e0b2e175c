"""From what workers counted over a period to the measured fields of a view; see `core.sojourns`."""

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.events import Telemetry
from edgewise.core.sojourns import LONGEST_S as LONGEST
from edgewise.kernels.compiled import inner, kernel, plain

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
    rate_qps, mean_s = plain(rate_and_mean)(answered, sum_s, period_s)
    return Telemetry(measured_s, queue, rate_qps, mean_s, p95_s(answered, bins), links)


@inner
def rate_and_mean(answered: int, sum_s: float, period_s: float) -> tuple[float, float]:
    """Answers per second, and their mean sojourn, 0 where nothing was answered; of a worker."""
    return answered / period_s, sum_s / np.maximum(answered, 1)


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
