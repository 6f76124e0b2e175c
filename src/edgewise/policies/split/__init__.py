"""Split DAG queries over servers with Nona: contraction, placements, certified optimum, schedulers.

contract → build_program → optimise → split_policy; see docs/split.md.
"""

from edgewise.core.split import QueryClass, SplitPolicy, SplitView, closed
from edgewise.policies.split.contract import Contraction, contract, limit_branches
from edgewise.policies.split.free import by_free
from edgewise.policies.split.optimum import SplitPlan, blind, optimise
from edgewise.policies.split.placements import count_placements
from edgewise.policies.split.policy import NAMES, equal, local, split_policy
from edgewise.policies.split.program import (
    Prediction,
    ServerChoice,
    SplitProgram,
    build_program,
    free_chances,
)
from edgewise.policies.split.subgraphs import subgraphs

__all__ = [
    "NAMES",
    "Contraction",
    "Prediction",
    "QueryClass",
    "ServerChoice",
    "SplitPlan",
    "SplitPolicy",
    "SplitProgram",
    "SplitView",
    "blind",
    "build_program",
    "by_free",
    "closed",
    "contract",
    "count_placements",
    "equal",
    "free_chances",
    "limit_branches",
    "local",
    "optimise",
    "split_policy",
    "subgraphs",
]
