"""Split DAG queries over servers with Nona: contraction, placements, certified optimum, schedulers.

contract → build_program → optimise → split_policy; see docs/split.md.
"""

from edgewise.policies.split.contract import Contraction, contract, limit_branches
from edgewise.policies.split.free import by_free
from edgewise.policies.split.optimum import SplitPlan, blind, optimise
from edgewise.policies.split.placements import count_placements
from edgewise.policies.split.policy import (
    NAMES,
    SplitPolicy,
    SplitView,
    checked,
    decided,
    equal,
    local,
    split_policy,
)
from edgewise.policies.split.program import (
    Prediction,
    QueryClass,
    ServerChoice,
    SplitProgram,
    build_program,
    free_chances,
)
from edgewise.policies.split.schedule import Ledger, new_ledger
from edgewise.policies.split.subgraphs import closed, subgraphs

__all__ = [
    "NAMES",
    "Contraction",
    "Ledger",
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
    "checked",
    "closed",
    "contract",
    "count_placements",
    "decided",
    "equal",
    "free_chances",
    "limit_branches",
    "local",
    "new_ledger",
    "optimise",
    "split_policy",
    "subgraphs",
]
