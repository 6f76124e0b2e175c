"""Streaming pipelines: how long a placement decision takes, from what runs to a checked answer.

A network with many running pipelines; then one pipeline ends and one arrives at every decision. Timed, in
seconds of a processor by the one thread that works, is what `PlaceCore` does: the view, the policy and the
check, with paths known; finding them is timed apart. OTFS takes fewer pipelines, as it lets those wait
that find no bandwidth.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.place import PipelineArrays, PipelineEnded, PipelineSubmitted, PlacementDue, arrays_of
from edgewise.core.place.core import PlaceCore
from edgewise.model.pipelines import Network, network_of
from edgewise.policies.place.paths import PathTable
from edgewise.workloads.pipelines import pipelines_of

SIZES = ((70, 50, 0.02), (1000, 500, 1.0))  # nodes, running pipelines, what 95 % of decisions should take
POLICIES = ("tp", "otfs", "otfa", "joint")
DECISIONS, CHUNK, BANDWIDTH_BPS = 40, 25, 10e6


def run(quick: bool) -> list[dict[str, Any]]:
    """One row for each size and policy; quick: the small size, ten decisions."""
    return [
        row for size in (SIZES[:1] if quick else SIZES) for row in _size(*size, 10 if quick else DECISIONS)
    ]


def _size(nodes: int, running: int, target_s: float, decisions: int) -> Iterator[dict[str, Any]]:
    settings = {"topology.nodes": nodes, "topology.mean_bps": BANDWIDTH_BPS, "topology.seed": 1}
    scenario = load_scenario("recognition", settings | {"pipelines.0.count": running + decisions})
    network = network_of(scenario)
    pipelines = [arrays_of(pipeline, i, network) for i, pipeline in enumerate(pipelines_of(scenario, 1))]
    _Player("joint", network, PathTable(network_of(scenario))).play(pipelines[:2], 1)  # compiles
    table, began_s = PathTable(network), time.process_time()
    table.warm()
    paths_s = time.process_time() - began_s
    for name in POLICIES:
        player = _Player(name, network, table)
        took_s = player.play(pipelines, running)
        yield {
            "policy": name, "nodes": nodes, "jobs": len(player.core.running), "decisions": decisions,
            "target_s": target_s, "p50_s": float(np.quantile(took_s, 0.5)),
            "p95_s": float(np.quantile(took_s, 0.95)), "max_s": max(took_s), "paths_s": paths_s,
        }  # fmt: skip


class _Player:
    """What runs, decision after decision.

    Args:
        name: of the policy.
        network: where pipelines run.
        table: its paths; the policy takes them as its own.
    """

    def __init__(self, name: str, network: Network, table: PathTable) -> None:
        policy: Any = policies.load("place", name)
        self.core = PlaceCore(network, policy, seed=1)
        vars(policy.table).update(vars(table))

    def play(self, pipelines: list[PipelineArrays], running: int) -> list[float]:
        """CPU seconds of each decision after the first `running` pipelines, which come in chunks."""
        for first in range(0, running, CHUNK):
            self._decide(pipelines[first : min(first + CHUNK, running)])
        took_s = []
        for pipeline in pipelines[running:]:
            self.core.handle(PipelineEnded(next(iter(self.core.running))))  # the oldest
            for waiting in self.core.pipelines.keys() - self.core.running.keys():
                self.core.handle(PipelineEnded(waiting))  # each is asked about once
            took_s.append(self._decide([pipeline]))
        return took_s

    def _decide(self, waiting: list[PipelineArrays]) -> float:
        for pipeline in waiting:
            self.core.handle(PipelineSubmitted(pipeline))
        began_s = time.process_time()
        self.core.handle(PlacementDue(0.0))
        return time.process_time() - began_s
