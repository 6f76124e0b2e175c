"""Split DAG queries over servers with Nona: contraction, placements, certified optimum, schedulers.

contract → build_program → optimise → split_policy; see docs/split.md.
"""

from edgewise.core.split import (
    QueryClass as QueryClass,
    SplitPolicy as SplitPolicy,
    SplitView as SplitView,
    closed as closed,
)
from edgewise.policies.split.contract import (
    Contraction as Contraction,
    contract as contract,
    limit_branches as limit_branches,
)
from edgewise.policies.split.forecast import plan_of as plan_of, predicted_s as predicted_s
from edgewise.policies.split.optimum import (
    SplitPlan as SplitPlan,
    blind as blind,
    by_free as by_free,
    optimise as optimise,
)
from edgewise.policies.split.policy import (
    NAMES as NAMES,
    equal as equal,
    local as local,
    split_policy as split_policy,
)
from edgewise.policies.split.program import (
    Prediction as Prediction,
    ServerChoice as ServerChoice,
    SplitProgram as SplitProgram,
    build_program as build_program,
    free_chances as free_chances,
)
from edgewise.policies.split.subgraphs import count_placements as count_placements, subgraphs as subgraphs
