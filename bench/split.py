"""Plans of split queries made anew when rates drift: how long, for one network, a mix, and unequal servers.

The placements are known ("warm"), as they are in a scheduler that runs. CPU time of this process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from edgewise.model.graphs import ServerGroup
from edgewise.policies.split import QueryClass, build_program, contract, optimise
from edgewise.policies.split.layout import joined, layout_program
from edgewise.policies.split.layout_optimum import optimise_layout, renew_layout
from edgewise.policies.split.program import SplitProgram
from edgewise.profiling.dags import light_file, task_graph
from edgewise.profiling.gpt2 import gpt2

SERVERS, POWER_OPS, LINK_BPS, LOAD = 10, 1e11, 1e11, 0.5
MIX = ("alexnet", "resnet50", "densenet121", "vgg19", "inception-v1", "inception-v2", "gpt2")
DRIFT = (0.8, 0.9, 1.1, 1.2)  # of the rates, one after the other
TARGET_S = 0.05


def run(rounds: int) -> dict[str, Any]:
    """Seconds to renew a plan, the median of all rounds and drifts, for every problem."""
    jobs = {name: QueryClass(_contracted(name), 1.0) for name in MIX}
    rows = []
    for queues, words in ((False, ""), (True, ", waiting for servers")):
        for names in (*((name,) for name in MIX), MIX):
            base = build_program([jobs[name] for name in names], SERVERS, POWER_OPS, LINK_BPS, queues=False)
            base = base.with_rates([LOAD * _full_qps(base)] * len(names))
            program = base.with_queues() if queues else base
            label = names[0] if len(names) == 1 else f"all {len(names)}"
            rows.append(_row(f"{label}{words}", program.variables, rounds, _renewal(program)))
    groups = [ServerGroup("edge", 2, 2e10), ServerGroup("cloud", 4, 1e11)]
    layout = layout_program(
        [QueryClass(jobs["resnet50"].graph, 25.0)], joined(groups, {("edge", "cloud"): 1e9})
    )
    plan = optimise_layout(layout, gap=0.05)
    rows.append(
        _row("resnet50 on two unequal groups", layout.variables, rounds,
             lambda factor: renew_layout(plan, [25.0 * factor]))
    )  # fmt: skip
    return {"target_s": TARGET_S, "rows": rows}


def _contracted(name: str) -> Any:
    return contract(task_graph(gpt2() if name == "gpt2" else light_file(name), name)).graph


def _full_qps(program: SplitProgram) -> float:
    """Rate of each class, all equal, at which the servers are just busy."""
    work = sum(task.work_ops for job in program.classes for task in job.graph.tasks)
    return SERVERS * POWER_OPS / work


def _renewal(program: SplitProgram) -> Callable[[float], object]:
    return lambda factor: optimise(program.with_rates(list(program.rates_qps * factor)))


def _row(name: str, variables: int, rounds: int, renew: Callable[[float], object]) -> dict[str, Any]:
    renew(1.0)  # compiled by now
    taken = []
    for _ in range(rounds):
        for factor in DRIFT:
            began_s = time.process_time()
            renew(factor)
            taken.append(time.process_time() - began_s)
    return {
        "name": name, "variables": variables, "median_s": statistics.median(taken), "longest_s": max(taken)
    }  # fmt: skip
