"""Static dispatch policies of ASET: one score each over the feasible workers.

Each is one expression of the item's view; the core masks what is infeasible and breaks ties.
"""

from __future__ import annotations

from edgewise.core.policy import ScorePolicy
from edgewise.core.views import Candidates, Item
from edgewise.core.world import Floats
from edgewise.policies.registry import dispatch_policy


@dispatch_policy("closest")
class Closest(ScorePolicy):
    """The nearest worker: min d + 2σ                                (ASET, closest)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """One-way network delay."""
        return view.network_s


@dispatch_policy("least-impedance")
class LeastImpedance(ScorePolicy):
    """The fastest answer: min 2(d + 2σ) + D_v                       (ASET, least impedance)."""

    def score(self, view: Candidates, item: Item) -> Floats:
        """Expected end-to-end delay."""
        return view.impedance_s
