"""Several gateways sharing workers: the worker grants, or the gateway decides anew."""

import asyncio
import json
import random
import time

import pytest
from hypothesis import given, settings, strategies as st
from live_system import dense_file, dense_world

from edgewise import policies
from edgewise.core.dispatch.events import ReservedElsewhere
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.grants import LEASE_S, Grants
from edgewise.runtime import http
from edgewise.runtime.gateway.gateway import Gateway
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.process.serving import Listen, run_gateway
from edgewise.runtime.worker.reservations import Reservations
from edgewise.runtime.worker.worker import LiveWorker, OnnxModel
from edgewise.testing import VirtualClock
from waiting import becomes

pytestmark = pytest.mark.live
CAPACITY = 100.0


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return OnnxModel("dense", dense_file(tmp_path_factory.mktemp("models")))


class Shared:
    """Two workers that grant, two gateways; in one event loop."""

    def __init__(self, model, grant=(True, True)):
        self.model, self.grant = model, grant

    async def __aenter__(self):
        self.books = [Reservations(CAPACITY) if grant else None for grant in self.grant]
        self.workers = [LiveWorker(self.model, reservations=book) for book in self.books]
        self.servers = [await http.serve(worker.handle, at_once=True) for worker in self.workers]
        began = time.monotonic()
        self.gateways, self.fronts, self.clients = [], [], []
        for name in ("north", "south"):
            session = Session(
                dense_world(),
                policies.load("dispatch", "least-impedance"),
                0,
                lambda: time.monotonic() - began,
            )
            clients = [http.Client(server.host, server.port) for server in self.servers]
            self.gateways.append(Gateway(session, clients, ["dense"] * 2, name=name))
            self.fronts.append(await http.serve(self.gateways[-1].handle, at_once=True))
            self.clients.append(http.Client(self.fronts[-1].host, self.fronts[-1].port))
        return self

    async def __aexit__(self, *error):
        for server in (*self.fronts, *self.servers):
            await server.close(0.1)
        for gateway in self.gateways:
            gateway.session.core.validate()

    async def open(self, gateway, rate_qps):
        needs = {"task": "score", "rate_qps": rate_qps, "size_bytes": 256, "deadline_s": 5.0}
        body = json.dumps(needs).encode()
        answer = await self.clients[gateway].request("POST", "/v1/streams", body=body)
        return answer.status, json.loads(answer.body)

    def granted(self):
        return [book.total_qps for book in self.books]


def go(model, scenario, **options):
    async def run():
        async with Shared(model, **options) as shared:
            await asyncio.wait_for(scenario(shared), 60)

    asyncio.run(run())


def test_the_second_gateway_is_sent_elsewhere_and_then_refused(model):
    async def scenario(shared):
        places = [(await shared.open(k % 2, 60.0))[1].get("worker") for k in range(2)]
        assert sorted(places) == ["dense-0", "dense-1"]  # each alone would have taken the same one
        status, answer = await shared.open(0, 60.0)
        assert status == 409 and "capacity" in answer["reason"]
        assert shared.granted() == [60.0, 60.0]

    go(model, scenario)


def test_what_is_closed_can_be_had_by_the_other(model):
    async def scenario(shared):
        opened = [(await shared.open(0, 100.0))[1] for _ in range(2)]
        assert (await shared.open(1, 100.0))[0] == 409
        await shared.clients[0].request("DELETE", f"/v1/streams/{opened[0]['stream']}")
        await becomes(lambda: min(shared.granted()) <= 0)
        await shared.gateways[1].granting.renew()  # hears that there is room again
        status, answer = await shared.open(1, 100.0)
        assert (status, answer["worker"]) == (201, opened[0]["worker"])

    go(model, scenario)


def test_a_worker_that_starts_again_hears_what_it_had_granted(model):
    async def scenario(shared):
        for k in range(4):
            assert (await shared.open(k % 2, 40.0))[0] == 201
        before = shared.granted()
        for worker in shared.workers:
            worker.reservations = Reservations(CAPACITY)  # as after kill -9
        shared.books = [worker.reservations for worker in shared.workers]
        for gateway in shared.gateways:
            await gateway.granting.renew()
        assert shared.granted() == before and sum(before) == 160.0

    go(model, scenario)


def test_what_no_longer_fits_after_a_restart_is_decided_anew(model):
    async def scenario(shared):
        _, first = await shared.open(0, 60.0)
        lost = int(first["worker"][-1])
        shared.workers[lost].reservations = shared.books[lost] = Reservations(CAPACITY)
        assert shared.books[lost].grants.grant(time.monotonic(), "south", "9", 60.0)  # the other was quicker
        await shared.gateways[0].granting.renew()
        await becomes(lambda: shared.granted() == [60.0, 60.0])
        assert shared.gateways[0].session.bound_to(first["stream"]) == 1 - lost

    go(model, scenario)


def heard_s(grants):
    """When a worker heard the gateway of the north last."""
    return grants.heard_s("north")


def test_leases_are_renewed_however_long_a_period_of_telemetry_is(model):
    """A gateway whose telemetry is rarer than a lease was forgotten, and its worker overbooked."""

    async def scenario(shared):
        _, opened = await shared.open(0, 60.0)
        book, gateway = shared.books[int(opened["worker"][-1])], shared.gateways[0]
        serving = asyncio.create_task(run_gateway(gateway, Listen(port=0), telemetry_period_s=600.0))
        heard = heard_s(book.grants)
        for _ in range(3):
            before_s = time.monotonic()
            await becomes(lambda heard=heard: heard_s(book.grants) != heard)
            heard = heard_s(book.grants)
            assert heard - before_s < LEASE_S / 2
        assert shared.granted()[int(opened["worker"][-1])] == 60.0
        serving.cancel()

    go(model, scenario)


def test_random_openings_and_closings_never_exceed_what_workers_have(model):
    async def scenario(shared):
        draws, opened = random.Random(3), []
        for _ in range(150):
            if opened and draws.random() < 0.4:
                gateway, stream = opened.pop(draws.randrange(len(opened)))
                await shared.clients[gateway].request("DELETE", f"/v1/streams/{stream}")
            else:
                gateway = draws.randrange(2)
                status, answer = await shared.open(gateway, draws.uniform(5.0, 40.0))
                opened += [(gateway, answer["stream"])]
            assert max(shared.granted()) <= CAPACITY * (1 + 1e-6)

        async def released_everywhere():  # what was closed last
            for gateway in shared.gateways:
                await gateway.granting.renew()
            known = shared.gateways[1].session.core.view().load_qps.tolist()  # the last to renew knows all
            return known == pytest.approx(shared.granted())

        await becomes(released_everywhere)

    go(model, scenario)


def test_requests_of_one_gateway_leave_less_to_streams_of_both(model):
    async def scenario(shared):
        session = shared.gateways[0].session
        for worker in 2000 * [0, 1]:  # in no time: much more than both can take
            session.request_sent(worker, 1e6)
            session.came_back(worker, 0.001)
        session.sample()
        assert min(session.requests_qps) > 50.0 and (session.in_flight == 0).all()
        for gateway in shared.gateways:
            await gateway.granting.renew()
        for k, gateway in enumerate(shared.gateways):
            view = gateway.session.core.view()
            assert view.load_qps.tolist() == pytest.approx(session.requests_qps.tolist())
            assert (await shared.open(k, 60.0))[0] == 409
        assert shared.granted() == pytest.approx(session.requests_qps.tolist())

    go(model, scenario)


def test_a_server_without_reservations_is_believed(model):
    async def scenario(shared):
        assert [(await shared.open(k, 90.0))[0] for k in (0, 1)] == [201, 201]

    go(model, scenario, grant=(False, False))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from("123"),
            st.integers(0, 60),
            st.sampled_from(["+", "-", "=", "w"]),
        )
    )
)
def test_the_ledger_against_a_plain_dictionary(steps):
    clock = VirtualClock()
    ledger, plain, heard = Grants(CAPACITY, lease_s=5.0), {}, {"a": 0.0, "b": 0.0}
    for gateway, stream, load, what in steps:
        if what == "w":
            clock.advance(load / 10)
            continue
        plain = {k: v for k, v in plain.items() if clock() - heard[k[0]] <= 5.0}
        heard[gateway] = clock()
        if what == "-":
            plain.pop((gateway, stream), None)
            ledger.release(clock(), gateway, stream)
            continue
        if what == "=":
            kept = {k: v for k, v in plain.items() if k[0] != gateway}
            plain = kept | ({(gateway, stream): load} if sum(kept.values()) + load <= CAPACITY else {})
            refused = ledger.renew(clock(), gateway, {stream: load})
            assert (refused == []) == ((gateway, stream) in plain)
            continue
        rest = sum(v for k, v in plain.items() if k != (gateway, stream))
        fits = rest + load <= CAPACITY
        assert ledger.grant(clock(), gateway, stream, load) == fits
        if fits:
            plain[gateway, stream] = load
    plain = {k: v for k, v in plain.items() if clock() - heard[k[0]] <= 5.0}
    assert ledger.total_qps(clock()) == pytest.approx(sum(plain.values()))


def test_what_two_gateways_did_their_cores_do_again(model):
    """Events of live gateways, with all that came between them, go into new cores: the commands are equal."""
    said = [[], []]

    def recording(core, log):
        def handle(event):
            commands = handled(event)
            log.append((event, commands))
            return commands

        handled, core.handle = core.handle, handle

    async def scenario(shared):
        for gateway, log in zip(shared.gateways, said, strict=True):
            recording(gateway.session.core, log)
        draws, opened = random.Random(7), []
        for step in range(80):
            if opened and draws.random() < 0.3:
                gateway, stream = opened.pop(draws.randrange(len(opened)))
                await shared.clients[gateway].request("DELETE", f"/v1/streams/{stream}")
            else:
                gateway = draws.randrange(2)
                status, answer = await shared.open(gateway, draws.uniform(5.0, 60.0))
                opened += [(gateway, answer["stream"])] if status == 201 else []
            if step % 10 == 9:
                for gateway in shared.gateways:
                    await gateway.granting.renew()
                    counts = [await each.counts(5.0) for each in gateway.upstreams]
                    gateway.session.sample(counts)
                    gateway.session.tick()

    go(model, scenario)
    for log in said:
        core = DispatchCore(dense_world(), policies.load("dispatch", "least-impedance"), 0)
        assert [core.handle(event) for event, _ in log] == [commands for _, commands in log]
        assert any(isinstance(event, ReservedElsewhere) for event, _ in log)
