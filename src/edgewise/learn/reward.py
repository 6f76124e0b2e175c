"""The reward that all sites and nodes share (KaiS)."""

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.orchestrate import SlotResult


def shared_reward(result: SlotResult, balance: float = 1.0) -> Floats:
    """(W,) u = exp(-λ - ε ν)                                                        (KaiS, section III-A).

    λ is the share of requests ending in the slot that violate their deadline, 0 if none ends, and
    ν = 1 / (1 + exp(-ξ)).

    Args:
        balance: ε.
    """
    missed = result.violated / np.maximum(result.in_time + result.violated, 1)
    return np.exp(-missed - balance / (1.0 + np.exp(-result.imbalance)))
