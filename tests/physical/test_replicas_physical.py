"""Replicas that come and go in simulation and in a live system: the controller hears and says the same.

Controller and gateways are those of `edgewise up`, with their store, on one virtual clock; processes
of replicas, links and clients are played.
"""

import asyncio

import pytest
from played_replicas import PlayedReplica, ReplicaClient, Ways
from steered import until_over
from test_requests_physical import AT_THE_END, LAG_S, PERIOD_S, ask, asked, gateway_of
from virtual import BEGAN_UNIX_S, played

from alone import Alone
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.orchestrate.events import FrameBegan, RequestsCounted, StartReplica
from edgewise.core.world import World
from edgewise.model.parsing import parse_scenario
from edgewise.model.services import services_of
from edgewise.runtime import http
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.plan import DATABASE, prepare
from edgewise.runtime.controller.reconcile import turns
from edgewise.runtime.gateway.service_requests import ServiceRequests
from edgewise.runtime.store.steady import SteadyStore
from joint_scenarios import run_of

FRAME_S, DURATION_S = 5.0, 20.0
# A file: from the first frame on, each frame another node has a replica of another service, or one less.
IN_TURN = """
from edgewise.core.orchestrate import AddReplica, RemoveReplica

class InTurn:
    name, decision, batched = "in-turn", "orchestrate", False

    def reset(self, world, key):
        self.first = FIRST

    def decide(self, view):
        frame = round(float(view.clock_s) / 5.0)
        if frame < self.first:
            return []
        node, service = (frame + 4) % 4, (frame + 4) % 3
        kind = RemoveReplica if view.ready[node + 1, service] > 0 else AddReplica
        return [kind(node, service)]
"""


def scenario_of(orchestrate):
    data = asked(60, (8, 16))
    data["services"]["frame_s"] = FRAME_S
    data["policies"] = {"orchestrate": orchestrate}
    return data | {"duration_s": DURATION_S, "live": {"budgets_s": {"orchestrate": 60, "requests": 60}}}


def noted(patched):
    log, handle = [], OrchestrateCore.handle

    def handle_and_note(core, event):
        where = {name: (each.node, each.service) for name, each in core.replicas.items()}
        commands = handle(core, event)
        said = [
            (type(c).__name__, *(c if isinstance(c, StartReplica) else where[c.replica])) for c in commands
        ]
        log.append((event, said))
        return commands

    patched.setattr(OrchestrateCore, "handle", handle_and_note)
    return log


class PlayedBackend(Alone):
    """Processes of replicas; those of the beginning are up at once."""

    def __init__(self, start_delay_s):
        self._replicas, self._handles, self._delay_s = {}, {}, start_delay_s

    def start(self, process):
        loop = asyncio.get_running_loop()
        handle = f"{process.name} {loop.time()}"
        replica = self._handles[handle] = self.at(process.url)
        if loop.time() > 0.0:
            loop.call_later(self._delay_s, replica.start)
        else:
            replica.start()
        return handle

    def at(self, url):
        """Who answers at an address, or will."""
        if url not in self._replicas:
            self._replicas[url] = PlayedReplica(by_deadline=True)
            self._replicas[url].up = False
        return self._replicas[url]

    def alive(self, handle):
        return handle in self._handles

    def look(self, process, handle):
        """Whether one is ready, it says at its port."""
        return Answering(process.url, None)

    def stop(self, handle, force=False):
        if handle in self._handles:
            self._handles.pop(handle).die()


async def live(data, seed, requests, folder, patched):
    scenario = parse_scenario(data, "campus")
    services, world = (
        services_of(scenario),
        World.build(scenario.catalog, scenario.topology, scenario.sharing),
    )
    prepare(folder, scenario).close()
    backend, store, gateways = (
        PlayedBackend(services.system.start_delay_s),
        SteadyStore(folder / DATABASE),
        [],
    )
    ways = Ways(services.system, services.spec.answers, seed)
    cloud = {name: PlayedReplica(by_deadline=False) for name in world.worker_names}

    async def answers(method, path):
        return [{"gateway": each.site, "answer": each.services.core.report()} for each in gateways]

    async def at_once(work, *given):
        return work(*given)

    patched.setattr(Controller, "ask_gateways", lambda controller, *asked: answers(*asked))
    patched.setattr(asyncio, "to_thread", at_once)
    at, refresh = [0], ServiceRequests.refresh

    def refreshed(mine):
        at[0] = mine.core.site
        refresh(mine)

    patched.setattr(ServiceRequests, "refresh", refreshed)

    def of_url(url, token=None):
        where = next(r.process for r in store.processes("replica") if r.process.url == url).settings
        client = ReplicaClient(backend.at(url), (at[0], services.place(where)[0] + 1), ways, requests, LAG_S)
        client.url = url
        return client

    patched.setattr(http.Client, "of_url", of_url)
    store.put("began_s", BEGAN_UNIX_S)
    controller = Controller(store, backend)
    for running in store.processes():  # of the others nobody asks here
        if running.process.kind != "replica":
            store.set_wanted(running.process.name, False)
    controller.reconcile()
    for site, name in enumerate(world.site_names):

        def client(station, worker, site=site):
            return ReplicaClient(cloud[worker], (site, station), ways, requests, LAG_S)

        numbers = iter([i for i, request in enumerate(requests) if request["site"] == site])
        made = gateway_of(
            scenario, services, world, (site, name), "deadline-queue", seed, (), client, numbers
        )
        made.services.wanted = lambda: store.processes("replica")
        made.services.refresh()
        made.services.note_workers()
        gateways.append(made)
    passes = controller.passes()
    work = [turns([passes["processes"]]), passes["replicas"].keep()]
    work += [each for gateway in gateways for each in (gateway.keep_time(PERIOD_S), gateway.watch())]
    work += [ask(gateways[request["site"]], services, i, request) for i, request in enumerate(requests)]
    await until_over(work, DURATION_S)
    store.close()


def frames(log):
    """By frame, what had arrived and which replicas come and go; the first is at the beginning."""
    found, counted = {}, None
    for event, said in log:
        if isinstance(event, RequestsCounted):
            counted = event
        elif isinstance(event, FrameBegan):
            found[round(event.time_s / FRAME_S)] = counted.arrived.tolist(), said
    return found


def both(folder, first):
    """By frame, in simulation and live, with a policy that does something from its first frame on."""
    (folder / "turns.py").write_text(IN_TURN.replace("FIRST", str(first)))
    data = scenario_of(policy := f"{folder / 'turns.py'}:InTurn")
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        run, _ = run_of(data, 3, trace=AT_THE_END, requests="deadline-queue", orchestrate=policy)
    before = frames(log)
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        played(live(data, 3, run.parts["services"].sites.rows, folder / "live", patched))
    return before, frames(log)


def test_a_controller_starts_and_ends_replicas_as_simulated(tmp_path):
    before, after = both(tmp_path, first=1)
    ran = range(1, int(DURATION_S / FRAME_S))
    assert [before[k] for k in ran] == [after[k] for k in ran]
    assert {kind for _, said in before.values() for kind, *_ in said} == {"StartReplica", "EndReplica"}
    assert all(sum(arrived) > 200 for arrived, _ in [before[k] for k in ran])


def test_a_controller_decides_in_its_first_frame_as_simulated(tmp_path):
    before, after = both(tmp_path, first=0)
    assert before[0] == after[0]
