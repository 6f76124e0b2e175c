"""edgewise: schedule inference and batch work over edge and cloud.

import edgewise as ew

scenario = ew.load_scenario("three-tier")
result = ew.simulate(scenario, "least-impedance", seeds=range(3))
print(result.to_pandas("summary"))
print(ew.compare(scenario, ["closest", "least-impedance"], seeds=range(10)))
print(ew.compare("deferrable", {"defer": ["fifo", "horizon"]}))

Names are imported when they are used: environments need the extra `environments`, training the extra `learn`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edgewise.errors import EdgewiseError, extra

if TYPE_CHECKING:
    from edgewise.api import compare, load_scenario, replay, simulate
    from edgewise.core.dispatch.policy import DispatchPolicy, ScorePolicy
    from edgewise.core.dispatch.views import Candidates, Decisions, DispatchView, Item, Items
    from edgewise.learn.agent import Agent
    from edgewise.learn.env import DispatchEnv
    from edgewise.learn.export import export
    from edgewise.learn.games import DeferGame, OrchestrateGame, PlaceGame, RequestsGame, SplitGame
    from edgewise.learn.joint import AgentsEnv, BatchEnv, JointEnv
    from edgewise.learn.methods import train
    from edgewise.policies import load as load_policy, policy
    from edgewise.run.result import Comparison, Result
    from edgewise.testing import check_policy

__version__ = "0.1.0"

_FROM = {
    "edgewise.api": ("compare", "load_scenario", "replay", "simulate"),
    "edgewise.run.result": ("Comparison", "Result"),
    "edgewise.core.dispatch.policy": ("DispatchPolicy", "ScorePolicy"),
    "edgewise.core.dispatch.views": ("Candidates", "Decisions", "DispatchView", "Item", "Items"),
    "edgewise.learn.agent": ("Agent",),
    "edgewise.learn.env": ("DispatchEnv",),
    "edgewise.learn.export": ("export",),
    "edgewise.learn.games": ("DeferGame", "OrchestrateGame", "PlaceGame", "RequestsGame", "SplitGame"),
    "edgewise.learn.joint": ("AgentsEnv", "BatchEnv", "JointEnv"),
    "edgewise.learn.methods": ("train",),
    "edgewise.policies": ("load_policy", "policy"),
    "edgewise.testing": ("check_policy",),
}
_EXTRA = {
    "edgewise.learn.agent": "environments",
    "edgewise.learn.env": "environments",
    "edgewise.learn.export": "learn",
    "edgewise.learn.games": "environments",
    "edgewise.learn.joint": "environments",
    "edgewise.learn.methods": "learn",
}

__all__ = [
    "Agent",
    "AgentsEnv",
    "BatchEnv",
    "Candidates",
    "Comparison",
    "Decisions",
    "DeferGame",
    "DispatchEnv",
    "DispatchPolicy",
    "DispatchView",
    "EdgewiseError",
    "Item",
    "Items",
    "JointEnv",
    "OrchestrateGame",
    "PlaceGame",
    "RequestsGame",
    "Result",
    "ScorePolicy",
    "SplitGame",
    "check_policy",
    "compare",
    "export",
    "load_policy",
    "load_scenario",
    "policy",
    "replay",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for: much of it takes long, and some needs an extra."""
    if name == "policies":  # the registry, which `import edgewise` has always brought
        return import_module("edgewise.policies")
    for module, names in _FROM.items():
        if name in names:
            with extra(_EXTRA.get(module, "live"), f"ew.{name}"):
                found = getattr(import_module(module), "load" if name == "load_policy" else name)
            globals()[name] = found
            return found
    raise AttributeError(f"module 'edgewise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
