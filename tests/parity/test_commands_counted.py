"""Whatever the records of a shipped scenario say was decided, a core decided: counts are equal.

Each of them is simulated, most of them for a short time. Commands are counted where cores issue them: what
`handle` returns, and what kernels that `handle` calls count of themselves where compiled code asks them.
"""

from collections import Counter
from functools import wraps
from importlib.resources import files

import numpy as np
import pytest

import edgewise as ew
from edgewise.config import load_scenario
from edgewise.core.defer import StartJob
from edgewise.core.defer.core import DeferCore
from edgewise.core.dispatch.books import Books
from edgewise.core.dispatch.events import Bind, Refuse
from edgewise.core.dispatch.policy import OPEN
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import StartReplica
from edgewise.core.place import MovePipeline, StartPipeline
from edgewise.core.place.core import PlaceCore
from edgewise.core.split.core import SplitCore
from edgewise.workloads.services import simulated_services

SHORT = {
    "campus": {"duration_s": 7200, "timeline": []},
    "campus-small": {},
    "commuters": {"duration_s": 1800},
    "deferrable": {},
    **{name: {"duration_s": 50} for name in ("edge-cloud", "edge-cloud-complex", "scarce", "scarce-complex")},
    "factory": {"duration_s": 100},
    "kais-demo": {"duration_s": 1000},
    "kais-live": {"duration_s": 21},
    "recognition": {"duration_s": 200},
    "split-inception": {},
    "three-tier": {},
    "tiny": {},
}
SCENARIOS = sorted(
    each.name.removesuffix(".yaml")
    for each in files("edgewise").joinpath("data/scenarios").iterdir()
    if each.name.endswith(".yaml")
)
# Where the usual policy of a decision never changes anything, one that does.
DECIDES = {"services": {"orchestrate": "marginal"}}


class Issued:
    """What the cores of one run issued.

    Attributes:
        cores: by kind, all that were made.
        last: by stream, its last `Bind` or `Refuse`.
        commands: of all others, how many by type.
        started: jobs that have started, once or more often.
    """

    def __init__(self, patch):
        self.cores = {kind: [] for kind in (DispatchCore, RequestCore, SplitCore, PlaceCore)}
        self.cores |= {OrchestrateCore: [], DeferCore: []}
        self.last, self.commands, self.started = {}, Counter(), set()
        for kind in self.cores:
            patch.setattr(kind, "__init__", self._noting(kind, kind.__init__))
            patch.setattr(kind, "handle", self._counting(kind.handle))
        patch.setattr(DispatchCore, "play", self._playing(DispatchCore.play))
        patch.setattr(Books, "took", self._taking(Books.took))

    def _noting(self, kind, begin):
        @wraps(begin)
        def noted(core, *given, **named):
            self.cores[kind].append(core)
            begin(core, *given, **named)

        return noted

    def _counting(self, handle):
        @wraps(handle)
        def counted(core, event):
            commands = handle(core, event)
            for command in commands:
                self.commands[type(command)] += 1
                if isinstance(command, Bind | Refuse):
                    self.last[command.stream_id] = type(command)
                elif isinstance(command, StartJob):
                    self.started.add(command.job)
            return commands

        return counted

    def _playing(self, play):
        @wraps(play)
        def played(core, batch, rows, worker, reason):
            play(core, batch, rows, worker, reason)
            for row in batch.row[batch.kind == OPEN].tolist():
                self.last[rows.item(row).id] = Bind if worker[row] >= 0 else Refuse

        return played

    def _taking(self, took):
        """Of gateways at sites, which kernels that `handle` calls decided."""

        @wraps(took)
        def taken(books, rows, i, at_s, worker, reason):
            took(books, rows, i, at_s, worker, reason)
            self.last[rows.item(i).id] = Bind if worker >= 0 else Refuse

        return taken

    def said(self, what):
        """How often request cores said something."""
        return sum(core.said[what] for core in self.cores[RequestCore])


def filled(table, column):
    return len(table) - table[column].null_count


def streams(issued, items, result):
    assert not issued.cores[DispatchCore] or issued.last
    last = Counter(issued.last.values())
    return (last[Bind], last[Refuse]), (filled(items, "worker"), filled(items, "reason"))


def requests(issued, items, result):
    dropped = np.array(items["outcome"]) == "dropped"
    nowhere = np.array(items["station"].is_null())
    there = issued.said("sent"), issued.said("refused")
    return there, (filled(items, "station"), int((dropped & nowhere).sum()))


def pipelines(issued, items, result):
    asked = issued.commands[StartPipeline], issued.commands[MovePipeline]
    return asked, (filled(items, "start_s"), sum(items["migrations"].to_pylist()))


def queries(issued, items, result):
    return sum(core.placed for core in issued.cores[SplitCore]), len(items)


def jobs(issued, items, result):
    return len(issued.started), filled(items, "started_s")


COUNTED = {
    "streams": streams, "services": requests, "pipelines": pipelines, "graphs": queries, "jobs": jobs,
}  # fmt: skip


def replicas(issued, result):
    """Those that were not there at first, as the records say who held what of nodes."""
    holds, given = result.use["holds"].to_pydict(), simulated_services(result.scenario)
    nodes = {node.name for node in result.scenario.topology.nodes}
    own = {
        owner
        for owner, work, place in zip(holds["owner"], holds["work"], holds["place"], strict=True)
        if work == "services" and place in nodes and f"-{place}-" in owner
    }
    came = len(own) - int(given.system.initial.sum()) + workers(result)
    return issued.commands[StartReplica], came


def workers(result):
    """Workers of streams that were not there at first, in the same way."""
    pooled = {each.name: each.at_first for each in result.scenario.topology.workers if each.pool is not None}
    held = sum(owner in pooled for owner in result.use["holds"]["owner"].to_pylist())
    return held - sum(pooled.values())


def simulated(scenario):
    """What cores issued, and the run."""
    work = "services" if scenario.services is not None and "streams" not in scenario.holds else ""
    with pytest.MonkeyPatch.context() as patched:
        issued = Issued(patched)
        return issued, ew.simulate(scenario, DECIDES.get(work), seeds=(3,))


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_is_recorded_was_decided_by_a_core(name):
    issued, result = simulated(load_scenario(name, SHORT.get(name, {"duration_s": 20})))
    found = {result.work: result, **result.beside}
    for work, each in found.items():
        there, recorded = COUNTED[work](issued, each.items, each)
        assert there == recorded, work
        assert np.sum(recorded) > 0, f"{name}: nothing is decided of {work}"
        if work == "services":
            there, recorded = replicas(issued, result)
            assert there == recorded, "orchestrate"


def test_what_no_core_decided_is_seen():
    """A published setting has an engine of its own, which asks no core."""
    published = {**SHORT["kais-demo"], "services.gateways": "one"}
    issued, result = simulated(load_scenario("kais-demo", published))
    there, recorded = requests(issued, result.items, result)
    assert there == (0, 0) and recorded[0] > 100


def test_workers_that_come_and_go_were_wanted_by_a_core():
    """Who held what of nodes, again: a command started every worker of streams but those there at first."""
    with pytest.MonkeyPatch.context() as patched:
        issued = Issued(patched)
        scenario = load_scenario("commuters", {"duration_s": 1800})
        result = ew.simulate(scenario, {"orchestrate": "autoscaler"}, seeds=(3,))
    assert workers(result) == issued.commands[StartReplica] > 0
