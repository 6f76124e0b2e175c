"""A small game of each decision, for tests of the environments."""

from dataclasses import replace

from edgewise.config import load_scenario
from edgewise.learn.games import DeferGame, DispatchGame, OrchestrateGame, PlaceGame, SplitGame
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.split import QueryClass, build_program
from edgewise.workloads.deferrable import PAPER

JOBS = replace(PAPER, slots=24, jobs_per_slot=4.0, load_mean=0.85)
SHORT = load_scenario("kais-demo", {"services.frame_s": 20, "duration_s": 60})
PIPELINES = load_scenario("recognition", {"topology.nodes": 6, "pipelines.0.count": 8})
TASKS = (Task("root", 1e9), Task("a", 4e9), Task("b", 2e9), Task("sink", 1e9))
EDGES = tuple(
    Edge(one, other, 1e6) for one, other in (("root", "a"), ("root", "b"), ("a", "sink"), ("b", "sink"))
)
FAN = build_program([QueryClass(TaskGraph("fan", TASKS, EDGES), 3.0)], 4, 1e10, 1e9)
GAMES = {
    "dispatch": lambda: DispatchGame(SHORT),
    "orchestrate": lambda: OrchestrateGame(SHORT),
    "defer": lambda: DeferGame(JOBS, places=64),
    "split": lambda: SplitGame(FAN, queries=40),
    "place": lambda: PlaceGame(PIPELINES),
}
