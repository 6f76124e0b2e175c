"""Whether a policy keeps its contract when a simulator asks it: all decisions but dispatch of streams."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from edgewise.config import load_scenario
from edgewise.core.defer import Trajectories
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import HOLD, Requests, hosts
from edgewise.errors import PolicyError
from edgewise.model.graphs import ServerGroup
from edgewise.model.pipelines import network_of
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.policies.registry import METHODS, load
from edgewise.policies.split import QueryClass, build_program
from edgewise.policies.split.layout import joined, layout_program
from edgewise.sim.parts.graphs import simulate_split
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.sim.slots import defer, replicas
from edgewise.workloads.deferrable import PAPER, generate
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.services import simulated_services

Drive = Callable[[Any], object]  # asks a policy until its world ends
MANY = "requests", "orchestrate", "defer"  # drivers hold many worlds


class Case(NamedTuple):
    """A world to try a policy in.

    Attributes:
        what: it is.
        drive: asks a policy in it.
        other: the same in a world that differs only later than `until`.
        until: a time, as views tell it.
    """

    what: str
    drive: Drive
    other: Drive | None = None
    until: float = 0.0


class Unfit(Exception):
    """A policy does not take a world."""


class WatchedPolicy:
    """Passes a simulator's questions on to a policy, and notes what it is asked and what it answers."""

    batched = True

    def __init__(self, policy: Any, decision: str) -> None:
        missing = [method for method in METHODS if not callable(getattr(policy, method, None))]
        assert not missing, f"the policy lacks {', '.join(missing)}"
        self.policy, self.decision, self.name = (
            policy,
            decision,
            getattr(policy, "name", type(policy).__name__),
        )
        self._asked = batched(policy) if decision in MANY else policy
        self.log: list[tuple[float, Any]] = []
        self.views: list[Any] = []

    def reset(self, world: Any, key: Key) -> None:
        """Pass it on."""
        self.world, self.key = world, key
        self._asked.reset(world, key)

    def decide(self, view: Any) -> Any:
        """Pass it on, and check what comes back."""
        before = plain(view)
        self.views.append(deepcopy(view))
        found = self._asked.decide(view)
        assert plain(view) == before, "the policy changed its view"
        _check_answer(self.decision, self.world, view, found)
        self.log.append((_now(view), plain(found)))
        return found


def check(make: Callable[[], Any], decision: str) -> None:
    """As `edgewise.testing.check_policy`."""
    unfit: list[str] = []
    cases = list(CASES[decision]())
    for case in cases:
        try:
            first = _driven(make(), decision, case.drive)
        except Unfit as error:
            unfit.append(str(error))
            continue
        assert _driven(make(), decision, case.drive).log == first.log, (
            f"{case.what}: same key, other decisions"
        )
        if case.other is not None:
            seen, others = (
                [row for row in log if row[0] <= case.until]
                for log in (first.log, _driven(make(), decision, case.other).log)
            )
            assert seen == others, f"{case.what}: other decisions because of what comes later"
    if len(unfit) == len(cases):
        raise PolicyError(unfit[0])


def plain(what: Any) -> Any:
    """Views and answers as tuples of what can be compared, to the last bit."""
    if isinstance(what, np.ndarray | np.generic):
        return what.shape, str(what.dtype), what.tobytes()
    if isinstance(what, list | tuple):
        return tuple(plain(each) for each in what)
    if is_dataclass(what):
        return tuple(plain(getattr(what, field.name)) for field in fields(what))
    return what


def _driven(policy: Any, decision: str, drive: Drive) -> WatchedPolicy:
    watched = WatchedPolicy(policy, decision)
    try:
        drive(watched)
    except AssertionError:
        raise
    except Exception as error:  # of foreign code, and what simulators say of its answers
        if isinstance(error, PolicyError) and not watched.views:
            raise Unfit(str(error)) from error
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    return watched


def _now(view: Any) -> float:
    """When a view was taken, in whatever its decision counts."""
    if hasattr(view, "clock_s"):
        return float(view.clock_s[0])
    return float(next(getattr(view, name) for name in ("now", "now_s", "query") if hasattr(view, name)))


def _check_answer(decision: str, world: Any, view: Any, found: Any) -> None:
    """Ranges and masks; simulators themselves check placements of pipelines and queries."""
    if decision == "defer":
        turns = found.dtype == np.bool_ or np.issubdtype(found.dtype, np.integer)
        assert found.shape == view.job.shape and turns, "needs a boolean, or a turn, for each job"
        assert (found >= 0).all(), "turns are 1, 2, …; 0 does not start"
        assert not (found[~view.startable] != 0).any(), "starts a job that is not startable"
    elif decision == "orchestrate":
        whole = isinstance(found, np.ndarray) and found.dtype == np.int64
        assert whole and found.shape[::2] == (view.worlds, 2), "batched policies give (W, C, 2) int64"
        node, service = found[found[:, :, 1] != 0].T
        there = (node >= 0) & (node < world.nodes) & (abs(service) <= world.services)
        assert there.all(), "a command is of no node or no service there is"
    elif decision == "requests":
        assert found.shape == view.head.shape, "needs a station for each site"
        assert np.issubdtype(found.dtype, np.integer), "stations are integers"
        may = np.take_along_axis(hosts(view), np.clip(found, 0, world.stations - 1)[..., None], axis=-1)[
            ..., 0
        ]
        right = (found == HOLD) | ((view.head >= 0) & (found >= 0) & (found < world.stations) & may)
        assert right.all(), "a station that cannot serve the head"


def _deferral() -> Iterator[Case]:
    worlds, until = generate(replace(PAPER, slots=12, jobs_per_slot=3.0), range(2)), 6
    left_over, duration = worlds.left_over.copy(), np.where(worlds.submitted > until, 1, worlds.duration)
    left_over[:, until + 1 :] *= 0.5

    def of(worlds: Trajectories) -> Drive:
        return lambda policy: defer.simulate(worlds, policy)

    yield Case(
        "two worlds of jobs", of(worlds), of(worlds._replace(left_over=left_over, duration=duration)), until
    )
    yield Case("one job", of(worlds._replace(jobs=np.minimum(worlds.jobs, 1))))
    yield Case("no job", of(worlds._replace(jobs=np.zeros_like(worlds.jobs))))


def _services(scales: bool) -> Iterator[Case]:
    simulated, until_s = simulated_services(load_scenario("scarce", {"duration_s": 75})), 50.0
    drawn = simulated.draw(range(2))
    payload = np.where(drawn.arrival_s > until_s, 2.0 * drawn.payload_bytes, drawn.payload_bytes)
    other = drawn._replace(
        payload_bytes=payload, service=np.where(drawn.arrival_s > until_s, 0, drawn.service)
    )

    def of(requests: Requests) -> Drive:
        def drive(policy: Any) -> object:
            worlds = replicas.ReplicaWorlds(simulated.system, requests, simulated.slots, range(2))
            if scales:
                return replicas.simulate(worlds, load("requests", "greedy"), policy)
            return replicas.simulate(worlds, policy)

        return drive

    yield Case("two worlds of requests", of(drawn), of(other), until_s)
    yield Case("one request", of(drawn._replace(count=np.minimum(drawn.count, 1))))
    yield Case("no request", of(drawn._replace(count=np.zeros_like(drawn.count))))


def _pipelines() -> Iterator[Case]:
    scenario = load_scenario("recognition", {"topology.nodes": 8, "pipelines.0.count": 3})
    network, jobs = network_of(scenario), pipelines_of(scenario, 0)
    until_s = max(job.arrival_s for job in jobs) - 1e-6
    later = [replace(job, arrival_s=job.arrival_s + 1.0) if job.arrival_s > until_s else job for job in jobs]
    yield Case(
        "three pipelines",
        lambda policy: simulate_streaming(network, jobs, policy),
        lambda policy: simulate_streaming(network, later, policy),
        until_s,
    )
    yield Case("one pipeline", lambda policy: simulate_streaming(network, jobs[:1], policy))
    yield Case("no pipeline", lambda policy: simulate_streaming(network, [], policy))


def _queries() -> Iterator[Case]:
    tasks = (Task("in", 1e9), *(Task(f"branch{i}", 1e9) for i in range(3)), Task("out", 1e9))
    edges = [Edge("in", task.name, 1e6) for task in tasks[1:-1]]
    edges += [Edge(task.name, "out", 1e6) for task in tasks[1:-1]]
    fan = [QueryClass(TaskGraph("fan", tasks, tuple(edges)), 10.0)]
    one = [QueryClass(TaskGraph("one", tasks[:1], ()), 1.0)]
    groups = joined([ServerGroup("edge", 2, 2e10), ServerGroup("cloud", 2, 1e11)], {("edge", "cloud"): 1e9})
    for what, program in (
        ("four equal servers", build_program(fan, 4, 1e11, 1e10)),
        ("one server", build_program(one, 1, 1e11, 1e10)),
        ("two groups of servers", layout_program(fan, groups)),
    ):
        yield Case(
            what,
            lambda policy, program=program: simulate_split(policy, program, 30, 0),  # type: ignore[misc]
            lambda policy, program=program: simulate_split(policy, program, 40, 0),  # type: ignore[misc]
            29,
        )


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "defer": _deferral,
    "requests": lambda: _services(False),
    "orchestrate": lambda: _services(True),
    "place": _pipelines,
    "split": _queries,
}
