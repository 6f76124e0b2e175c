"""Policies that start deferrable jobs in left-over capacity, and the optimum they are measured by."""

from edgewise.policies.defer.rules import ScoreDeferral as ScoreDeferral, choose as choose
from edgewise.policies.registry import Make, offer

FALLBACK = "fifo"
"""Who chooses where a policy gives no answer of use, live and in simulation."""


@offer("defer", "horizon")
def _horizon() -> Make:
    from edgewise.policies.defer.horizon import SteadyHorizon  # its solver is slow to import

    return SteadyHorizon
