"""Policies that start deferrable jobs in left-over capacity, and the optimum they are measured by."""

from edgewise.policies.defer.choose import choose
from edgewise.policies.defer.rules import ScoreDeferral, deferral_policy, load, names

__all__ = ["ScoreDeferral", "choose", "deferral_policy", "load", "names"]
