"""What live processes told their cores, told to fresh ones: the same commands.

Two gateways with the delays of their links, a controller; requests of three services, replicas that come, go
and are killed; streams that both gateways bind to the same worker; jobs that give way. A policy has the
processes note what goes into their cores and what comes out.
"""

import asyncio
import json
import os
import pickle
import signal
from contextlib import suppress

import pytest
from running_system import System, open_stream
from test_live_services import query

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.defer import EvictJob, Slots, StartJob, SuspendJob
from edgewise.core.defer.core import DeferCore
from edgewise.core.dispatch.events import (
    Bind,
    Drop,
    Measured,
    Refuse,
    Release,
    ReplicaChanged,
    ReplicaTold,
    RequestReturned,
    ReservedElsewhere,
    Send,
    StreamClosed,
    StreamOpened,
    Tick,
    WorkerChanged,
)
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.one_world import batched
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import EndReplica, StartReplica
from edgewise.core.plane import Plane
from edgewise.core.world import World
from edgewise.model.services import services_of
from edgewise.runtime.clients.reaching import ask, client_to
from edgewise.runtime.controller.jobs import SLOT_S
from joint_scenarios import TURNS
from waiting import becomes

pytestmark = pytest.mark.live
BUDGETED = ("dispatch", "requests", "orchestrate", "defer")
NOTING = """
import itertools
import os, pickle, sys
from pathlib import Path

from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.guard import Strict
from edgewise.core.plane import Plane
from edgewise.policies.requests.rules import TwoChoices
from edgewise.policies.dispatch.static import Closest

numbers = itertools.count()


def noted(kind, told, guard):
    handle = kind.handle

    def handle_and_note(self, event, *more):
        commands = handle(self, event, *more)
        if not isinstance(guard(self), Strict):  # else it is a rehearsal
            number = self.__dict__.setdefault("number", next(numbers))
            with open(Path(os.environ["NOTED"]) / f"{kind.__name__}-{os.getpid()}-{number}", "ab") as file:
                file.write(pickle.dumps((told(self), event, more, list(commands))))
        return commands

    kind.handle = handle_and_note


apart = "apart" in " ".join(sys.orig_argv)
if "NOTED" in os.environ and not apart and RequestCore.handle.__name__ == "handle":
    noted(RequestCore, lambda core: (core.site, core.seed), lambda core: core.adviser.guard)
    noted(DispatchCore, lambda core: core.seed, lambda core: core.guard)
    noted(Plane, lambda plane: (), lambda plane: None)


class Near(Closest):
    pass


class Choices(TwoChoices):
    pass

"""


def rows_of(file):
    with file.open("rb") as opened:
        while True:
            try:
                yield pickle.load(opened)
            except EOFError:
                return


async def load_gateways(system):
    """Requests and streams at both gateways until a replica died at work, a job gave way, a worker died.

    Some requests cannot end in time; the streams of one gateway fill the worker that both know.
    """
    clients, over = [system.gateway(k) for k in range(2)], asyncio.Event()

    async def client(k):
        number = 0
        while number < 24 or not over.is_set():
            service = ("camera", "plates", "sorting")[(k + number) % 3]
            deadline_s = 0.02 if number % 8 == 7 else 30.0
            await ask(clients[k % 2], *query(service, deadline_s), patience_s=60.0)
            number += 1

    async def streams(k):
        rounds = 0
        while rounds < 5 or not over.is_set():
            needs = {"task": "detection", "size_bytes": 1000, "deadline_s": 0.5, "rate_qps": 14.0}
            opened = [await open_stream(clients[k], **needs) for _ in range(2)]
            for status, stream in opened:
                assert status in (201, 409), stream
                if status == 201:
                    await ask(clients[k], "DELETE", f"/v1/streams/{stream['stream']}")
            rounds += 1

    under_way = asyncio.gather(*(client(k) for k in range(6)), *(streams(k) for k in range(2)))
    await kill_one_at_work(system)
    await jobs_that_give_way(system)
    await system.kill(next(row.process.name for row in system.store.processes("worker")))
    over.set()
    await under_way
    for each in clients:
        each.close()


async def jobs_that_give_way(system):
    """Jobs take what memory there is, until one has gone for a replica."""
    job = {"command": ["/bin/sleep", "300"], "folder": "/", "duration_s": 600, "memory_bytes": 0.9e9}
    for number in range(6):
        kind = ("pause", "restart")[number % 2]
        await system.get("/v1/admin/jobs", "POST", {**job, "key": str(number), "when_evicted": kind})

    async def one_has_gone():
        rows = await system.get("/v1/admin/jobs")
        return any(row["state"] in ("suspended", "evicted") for row in rows)

    await becomes(one_has_gone)


async def kill_one_at_work(system):
    """Kill a replica that stands still with a request of somebody; those without one go on."""
    gateways = [client_to(each.process, system.store, system.store.secret("operator"))
                for each in system.store.processes("gateway")]  # fmt: skip

    async def one_is_killed():
        for each in [each for each in system.store.processes("replica") if each.handle is not None]:
            pid = int(each.handle.split(":")[0])
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, signal.SIGSTOP)
                held = [0, 0]
                for i in range(2 * len(gateways)):  # twice: what it answered before it stood still has come
                    found = await ask(gateways[i // 2], "GET", "/v1/admin/replicas")
                    held[i // 2] = (
                        json.loads(found.body)["replicas"].get(each.process.name, {}).get("held", 0)
                    )
                os.kill(pid, signal.SIGKILL if any(held) else signal.SIGCONT)
                if any(held):
                    return True
        return False

    await becomes(one_is_killed)
    for gateway in gateways:
        gateway.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The scenario, the policy's file and what each process noted."""
    folder = tmp_path_factory.mktemp("cores")
    file, notes = folder / "noting.py", folder / "notes"
    file.write_text(NOTING + TURNS)
    notes.mkdir()
    changes = {
        "services.frame_s": 0.5, "window_s": 1.0, "live.budgets_s": dict.fromkeys(BUDGETED, 10),
        "policies.requests": f"{file}:Choices", "policies.orchestrate": f"{file}:Turns",
    }  # fmt: skip
    scenario = load_scenario("kais-live", changes)
    system = System(folder / "system", scenario, given={"dispatch": f"{file}:Near", "defer": "fifo"})
    os.environ["NOTED"] = str(notes)
    # Policies of files decide in processes of their own: who notes is in every process of the system.
    (notes.parent / "sitecustomize.py").write_text(NOTING)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(notes.parent), os.environ.get("PYTHONPATH", "")])
    try:
        system.start()
    finally:
        del os.environ["NOTED"]
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
    asyncio.run(system.ready())
    asyncio.run(asyncio.wait_for(load_gateways(system), 120))
    system.stop()
    return scenario, file, [(each.name, list(rows_of(each))) for each in sorted(notes.iterdir())]


def of(noted, kind):
    """What cores of a kind noted, that had something to say."""
    return [rows for name, rows in noted if name.startswith(f"{kind}-")]


def test_cores_of_two_gateways_decide_the_same_again(told):
    scenario, file, noted = told
    services, found, gateways = services_of(scenario), [], set()
    for rows in of(noted, "RequestCore"):
        site, seed = rows[0][0]
        policy = policies.load("requests", f"{file}:Choices", live=True)
        fresh = RequestCore(services, site, policy, seed)
        gateways.add(site)
        for _, event, _, commands in rows:
            assert fresh.handle(event) == commands, event
            fresh.validate()
            found += [event, *commands]
    assert gateways == {0, 1}
    sent = {each.replica for each in found if isinstance(each, Send)}
    assert any("@cloud" in name for name in sent) and len(sent) > 3
    assert {type(each) for each in found} >= {Drop, Send, ReplicaChanged, ReplicaTold, RequestReturned}
    assert any(isinstance(each, RequestReturned) and each.how == "lost" for each in found)


def test_streams_of_two_gateways_are_bound_the_same_again(told):
    """Each fills a worker that both know, so that what one reserves the other hears of."""
    scenario, file, noted = told
    world, cores, lost = World.build(scenario.catalog, scenario.topology, scenario.sharing), 0, []
    for rows in of(noted, "DispatchCore"):
        fresh, found = DispatchCore(world, policies.load("dispatch", f"{file}:Near"), rows[0][0]), []
        for _, event, _, commands in rows:
            assert fresh.handle(event) == commands, event
            fresh.validate()
            found += [event, *commands]
        assert {type(each) for each in found} >= {
            StreamOpened, StreamClosed, Measured, Tick, ReservedElsewhere, Bind, Refuse, Release,
        }  # fmt: skip
        lost += [each for each in found if isinstance(each, WorkerChanged) and not each.up]
        cores += 1
    assert cores == 2 and lost  # the worker may be back before the other gateway misses it


def test_the_controllers_plane_decides_the_same_again(told):
    """Replicas come and go, and jobs give way to them; each core hears what the other did."""
    scenario, file, noted = told
    services, ledger = services_of(scenario), NodeLedger(())
    policy = batched(policies.load("orchestrate", f"{file}:Turns"))
    (rows,) = of(noted, "Plane")
    policy.reset(services.system, Key(0))
    most = scenario.services.nodes_per_frame
    core = OrchestrateCore(services.system, services.holds, policy, ledger, services.nodes, None, most)
    defer = DeferCore(Slots(SLOT_S), ledger, policies.load("defer", "fifo"))
    fresh, done = Plane(ledger, {"orchestrate": core, "defer": defer}), []
    for _, event, (now_s,), commands in rows:
        assert fresh.handle(event, now_s) == commands, event
        fresh.validate()
        done += commands
    assert {type(command) for command in done} >= {StartReplica, EndReplica, StartJob}
    assert any(isinstance(command, SuspendJob | EvictJob) for command in done)
