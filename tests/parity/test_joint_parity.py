"""What a joint run tells its cores, told to the cores of a live system: the same commands.

Two gateways with news that are late, replicas that come and go, jobs that give way to them, a node that
fails and comes back. Cores are those that a controller and two gateways make of the same scenario.
"""

from dataclasses import replace
from functools import partial

import pytest

from edgewise import policies
from edgewise.core.defer import EvictJob, StartJob, SuspendJob
from edgewise.core.dispatch.events import (
    Bind,
    Drop,
    Measured,
    Refuse,
    Release,
    ReplicaTold,
    RequestReturned,
    Send,
)
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate.events import EndReplica, FrameBegan, StartReplica
from edgewise.core.plane import NodesChanged, Plane
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.services import services_of
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.sites import simulation_of
from joint_scenarios import TURNS, campus, run_of

SEED = 3
DECIDES = {"dispatch": "least-impedance", "requests": "deadline-queue", "defer": "fifo"}
FAILS = [{"at_s": 20.0, "node": "west-0", "up": False}, {"at_s": 32.0, "node": "west-0", "up": True}]
JOBS = [
    {"duration_s": 10 + 10 * (i % 3), "cores": 1, "memory_bytes": 5e9 if 6 <= i < 10 else 5e8,
     "when_evicted": ("pause", "restart")[i % 2], "latest_s": 30}
    for i in range(12)
]  # fmt: skip


def noted(kind, monkeypatch):
    """By core, what goes in and comes out."""
    logs, handle = {}, kind.handle

    def handle_and_note(self, event, *more):
        commands = handle(self, event, *more)
        self.validate()
        logs.setdefault(id(self), (self, []))[1].append((event, more, list(commands)))
        return commands

    monkeypatch.setattr(kind, "handle", handle_and_note)
    return logs


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A scenario, who decides, and by kind of core what each was told."""
    file = tmp_path_factory.mktemp("policy") / "turns.py"
    file.write_text(TURNS)
    decides = {**DECIDES, "orchestrate": f"{file}:Turns"}
    data = campus(80, JOBS, FAILS)
    data["duration_s"] = 45
    data["telemetry"] = {"period_s": 0.5, "lag_s": 0.3}
    data["streams"]["gateways"] = "per_site"
    data["streams"]["arrivals"]["clients_per_min"] = 30
    data["live"] = {"budgets_s": dict.fromkeys(("dispatch", "requests", "orchestrate", "defer"), 60)}
    with pytest.MonkeyPatch.context() as patched:
        logs = {Plane: noted(Plane, patched)}
        patched.setattr("edgewise.run.streams.simulation_of", partial(simulation_of, note_all=True))
        patched.setattr("edgewise.run.services.RequestSites", partial(RequestSites, notes=1000))
        run, _ = run_of(data, SEED, True, **decides)
    return (
        parse_scenario(data, "campus"),
        decides,
        {kind: list(cores.values()) for kind, cores in logs.items()},
        run.parts["streams"].simulation,
        run.parts["services"].sites,
    )


def without_why(commands):
    """What was said; a simulation does not say why it drops a request."""
    return [each._replace(reason="") if isinstance(each, Drop) else each for each in commands]


def same(core, log):
    """Have a core handle what another was told; the types of commands and events."""
    found = set()
    for event, more, commands in log:
        assert without_why(core.handle(event, *more)) == without_why(commands), event
        core.validate()
        found |= {type(event), *(type(command) for command in commands)}
    return found


def test_two_gateways_bind_streams_as_simulated(told):
    scenario, decides, _, streams, _ = told
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    assert len(streams.cores) == 2
    for core, heeded in zip(streams.cores, streams.heeded, strict=True):
        log = [(event, (), commands) for event, commands in heeded]
        policy = policies.load("dispatch", decides["dispatch"])
        session = Session(world, policy, core.seed, lambda: 0.0, StreamRules.of(scenario))
        assert same(session.core, log) >= {Measured, Bind, Refuse, Release}
        assert not session.core.faults


def test_two_gateways_send_requests_as_simulated(told):
    """Which are told of others' requests late, and lose what they sent to the node that fails.

    The scenario says how long simulated requests take; live that is the variant's profile, then measured.
    """
    scenario, decides, _, _, sites = told
    services, sent, lost = services_of(scenario), set(), 0
    assert len(sites.cores) == 2
    for site, core in enumerate(sites.cores):
        log = [(event, (), commands) for where, event, commands in sites.log if where == site]
        policy = policies.load("requests", decides["requests"], live=True)
        known = replace(services, service_s=core.services.service_s, least_s=core.services.least_s)
        live = RequestCore(known, core.site, policy, core.seed)
        assert same(live, log) >= {ReplicaTold, RequestReturned, Send}
        lost += sum(isinstance(event, RequestReturned) and event.how == "lost" for event, _, _ in log)
        sent |= {each.replica for _, _, commands in log for each in commands if isinstance(each, Send)}
    assert len(sent) > 6 and lost > 0


def test_a_controller_orchestrates_and_defers_as_simulated(told, tmp_path):
    """Its plane hears of nodes, workers, replicas and jobs what the simulated one heard."""
    scenario, decides, logs, _, _ = told
    ((simulated, log),) = logs[Plane]
    store = prepare(tmp_path, scenario, given=decides)
    plane = LivePlane(store)
    jobs = LiveJobs(plane, scenario.jobs.pattern.slot_s)
    Replicas(plane, None, lambda handle: False)
    assert plane.replicas() is not None  # its core is in the plane from now on
    Plane.handle(plane, NodesChanged(scenario.topology.nodes), 0.0)
    found = same(plane, log)
    assert found >= {FrameBegan, StartReplica, EndReplica, StartJob, NodesChanged}
    assert found & {SuspendJob, EvictJob}
    assert jobs.core.world == simulated.cores["defer"].world  # both see memory, too
    assert not jobs.core.guard.faults and not plane.cores["orchestrate"].guard.faults
    store.close()
