"""A small game of each decision, for tests of the environments."""

from dataclasses import replace

from edgewise.config import load_scenario
from edgewise.learn.games import DeferGame, OrchestrateGame, PlaceGame, RequestsGame, SplitGame
from edgewise.workloads.deferrable import PAPER

JOBS = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)
SHORT = load_scenario("kais-demo", {"services.frame_s": 20, "duration_s": 60})
PIPELINES = load_scenario("recognition", {"topology.nodes": 6, "pipelines.0.count": 8})
FAN = load_scenario(
    "split-inception",
    {
        "clusters.0.nodes.0.count": 4,
        "graphs": [
            {
                "name": "fan",
                "rate_qps": 30,
                "operators": [
                    {"name": name, "work_ops": ops}
                    for name, ops in (("root", 1e9), ("a", 4e9), ("b", 2e9), ("sink", 1e9))
                ],
                "tensors": [
                    {"source": one, "target": other, "size_bytes": 1000000}
                    for one, other in (("root", "a"), ("root", "b"), ("a", "sink"), ("b", "sink"))
                ],
            }
        ],
    },
)
GAMES = {
    "requests": lambda: RequestsGame(SHORT),
    "orchestrate": lambda: OrchestrateGame(SHORT),
    "defer": lambda: DeferGame(JOBS, places=64),
    "split": lambda: SplitGame(FAN, queries=40),
    "place": lambda: PlaceGame(PIPELINES),
}
