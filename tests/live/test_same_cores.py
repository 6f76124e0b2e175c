"""What live processes told their cores, told to fresh ones: the same commands.

Two gateways with the delays of their links, a controller, requests of three services, replicas that come, go
and are killed. A policy's file has the processes note what goes into their cores and what comes out.
"""

import asyncio
import json
import os
import pickle
import signal
from contextlib import suppress

import pytest
from running_system import System
from test_live_services import query

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.core.dispatch.events import Drop, ReplicaChanged, ReplicaTold, RequestReturned, Send
from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.core.one_world import batched
from edgewise.core.orchestrate.core import EndReplica, OrchestrateCore, StartReplica
from edgewise.core.plane import DECISION_OF, Plane
from edgewise.model.services import services_of
from edgewise.runtime.reaching import ask, client_to

pytestmark = pytest.mark.live
NOTING = """
import os, pickle
from pathlib import Path

from edgewise.core.dispatch.requests import RequestCore
from edgewise.core.orchestrate import AddReplica, RemoveReplica
from edgewise.core.plane import Plane
from edgewise.policies.dispatch.requests.rules import TwoChoices


def noted(kind, told):
    handle = kind.handle

    def handle_and_note(self, event, *more):
        commands = handle(self, event, *more)
        row = told(self), event, more, list(commands)
        with open(Path(os.environ["NOTED"]) / f"{kind.__name__}-{os.getpid()}", "ab") as file:
            file.write(pickle.dumps(row))
        return commands

    kind.handle = handle_and_note


if "NOTED" in os.environ and RequestCore.handle.__name__ == "handle":
    noted(RequestCore, lambda core: (id(core), core.site, core.seed))
    noted(Plane, lambda plane: ())


class Choices(TwoChoices):
    pass


class Turns:
    name, decision, batched = "turns", "orchestrate", False

    def reset(self, world, key):
        self.frames = 0

    def decide(self, view):
        self.frames += 1
        node, service = self.frames % 4, self.frames % 3
        kind = RemoveReplica if view.ready[node + 1, service] > 0 else AddReplica
        return [kind(node, service)]
"""


def rows_of(file):
    with file.open("rb") as opened:
        while True:
            try:
                yield pickle.load(opened)
            except EOFError:
                return


async def load_gateways(system):
    """Requests at both gateways, some of which cannot end in time, until a replica was killed at work."""
    clients, killed = [system.gateway(k) for k in range(2)], asyncio.Event()

    async def client(k):
        number = 0
        while number < 24 or not killed.is_set():
            service = ("camera", "plates", "sorting")[(k + number) % 3]
            deadline_s = 0.02 if number % 8 == 7 else 30.0
            await ask(clients[k % 2], *query(service, deadline_s), patience_s=60.0)
            number += 1

    under_way = asyncio.gather(*(client(k) for k in range(6)))
    await kill_one_at_work(system)
    killed.set()
    await under_way
    for each in clients:
        each.close()


async def kill_one_at_work(system):
    """Kill a replica that stands still with a request of somebody; those without one go on."""
    gateways = [client_to(each.process, system.store, system.store.secret("operator"))
                for each in system.store.processes("gateway")]  # fmt: skip
    while True:
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
                    for gateway in gateways:
                        gateway.close()
                    return
        await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The scenario, the policy's file and what each process noted."""
    folder = tmp_path_factory.mktemp("cores")
    file, notes = folder / "noting.py", folder / "notes"
    file.write_text(NOTING)
    notes.mkdir()
    changes = {
        "services.frame_s": 0.5, "live.budgets_s.requests": 10, "services.dispatch": f"{file}:Choices",
        "services.orchestrate": f"{file}:Turns",
    }  # fmt: skip
    scenario = load_scenario("kais-live", changes)
    system = System(folder / "system", scenario)
    os.environ["NOTED"] = str(notes)
    try:
        system.start()
    finally:
        del os.environ["NOTED"]
    asyncio.run(system.ready())
    asyncio.run(load_gateways(system))
    system.stop()
    return scenario, file, {each: list(rows_of(each)) for each in notes.iterdir()}


def test_cores_of_two_gateways_decide_the_same_again(told):
    scenario, file, noted = told
    services, found, gateways = services_of(scenario), [], set()
    for name, rows in noted.items():
        for core in {row[0] for row in rows if name.name.startswith("RequestCore")}:
            _, site, seed = core
            mine = [row for row in rows if row[0] == core]
            if not isinstance(mine[0][1], ReplicaChanged):
                continue  # a rehearsal
            policy = policies.load("dispatch", f"{file}:Choices", "requests", live=True)
            fresh = RequestCore(services, site, policy, seed)
            gateways.add(site)
            for _, event, _, commands in mine:
                assert fresh.handle(event) == commands, event
                fresh.validate()
                found += [event, *commands]
    assert gateways == {0, 1}
    sent = {each.replica for each in found if isinstance(each, Send)}
    assert any("@cloud" in name for name in sent) and len(sent) > 3
    assert {type(each) for each in found} >= {Drop, Send, ReplicaChanged, ReplicaTold, RequestReturned}
    assert any(isinstance(each, RequestReturned) and each.lost for each in found)


def test_the_controllers_core_of_replicas_decides_the_same_again(told):
    scenario, file, noted = told
    services, ledger = services_of(scenario), NodeLedger(())
    policy = policies.load("orchestrate", f"{file}:Turns")
    (rows,) = [rows for name, rows in noted.items() if name.name.startswith("Plane")]
    most = scenario.spec.services.nodes_per_frame
    policy = batched(policy)
    policy.reset(services.system, Key(0))
    core = OrchestrateCore(services.system, services.holds, policy, ledger, services.nodes, None, most)
    fresh, done = Plane(ledger, {"orchestrate": core}), []
    for _, event, (now_s,), commands in rows:
        if DECISION_OF.get(type(event)) not in ("defer", "place"):
            assert fresh.handle(event, now_s) == commands, event
            fresh.validate()
            done += commands
    assert {type(command) for command in done} >= {StartReplica, EndReplica}
