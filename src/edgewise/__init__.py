"""edgewise: schedule inference and batch work over edge and cloud.

import edgewise as ew

scenario = ew.load_scenario("three-tier")
result = ew.simulate(scenario, "least-impedance", seeds=range(3))
print(result.summary())
print(ew.compare(scenario, ["closest", "least-impedance"], seeds=range(10)))
"""

from edgewise.api import Comparison, Result, compare, load_scenario, simulate
from edgewise.core.policy import DispatchPolicy, ScorePolicy
from edgewise.core.views import Candidates, Decisions, DispatchView, Item, Items
from edgewise.errors import EdgewiseError
from edgewise.policies import offer, policy

__version__ = "0.1.0"

__all__ = [
    "Candidates",
    "Comparison",
    "Decisions",
    "DispatchPolicy",
    "DispatchView",
    "EdgewiseError",
    "Item",
    "Items",
    "Result",
    "ScorePolicy",
    "compare",
    "load_scenario",
    "policy",
    "simulate",
]


@offer("dispatch", "lookahead")
def _lookahead() -> type:
    from edgewise.sim.streams.lookahead import Lookahead  # above the layer of policies: it simulates

    return Lookahead
