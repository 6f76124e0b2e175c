"""Two processes behind one port: every query is answered, whichever gets it and whichever is killed."""

import asyncio
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
from running_system import System, infer, infer_until, open_stream, small_scenario, started

from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.errors import RunError
from edgewise.model.scenario import Scenario
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask, fronts, store_of
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.rolling import read_change
from edgewise.runtime.process.serving import Listen
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from edgewise.runtime.states import DONE
from waiting import becomes, pace

pytestmark = pytest.mark.live
HANG_S = 120.0
NAMES = ("gateway-0", "gateway-0.1")
CLIENTS = "one of-one\nother of-other"
GRPC = importlib.util.find_spec("grpc") is not None


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    where = Listen(grpc_port=0 if GRPC else None)
    options = {"gateways": 1, "gateway_processes": 2, "where": where}
    with started(tmp_path_factory.mktemp("shared"), small_scenario(capacity_qps=300), **options) as made:
        yield made


def go(work):
    return asyncio.run(asyncio.wait_for(work, HANG_S))


def clients_of(system, count):
    """Clients of the shared port, each with a connection of its own."""
    (front,) = fronts(system.store)
    return [http.Client.of_url(front.url) for _ in range(count)]


async def opened_at(clients, each, **changes):
    """So many streams in each of the processes; whose a stream is, its number says."""
    found = ([], [])
    while min(map(len, found)) < each:
        for client in clients:
            status, answer = await open_stream(client, **changes)
            assert status == 201, answer
            if len(mine := found[answer["stream"] % 2]) < each:
                mine.append(answer["stream"])
            else:
                assert (await client.request("DELETE", f"/v1/streams/{answer['stream']}")).status == 200
    return found


async def close(client, streams):
    for stream in streams:
        assert (await ask(client, "DELETE", f"/v1/streams/{stream}")).status == 200


async def metric(client, name, **labels):
    """Sums of a metric by process."""
    page = (await ask(client, "GET", "/metrics")).body.decode()
    found = dict.fromkeys(NAMES, 0.0)
    for said, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.M):
        if all(f'{key}="{wanted}"' in said for key, wanted in labels.items()):
            found[re.search(r'gateway="([^"]*)"', said)[1]] += float(value)
    return found


def test_queries_of_one_stream_over_many_connections_are_all_answered_and_both_serve(system):
    async def scenario():
        clients = clients_of(system, 16)
        mine, others = await opened_at(clients, 2, rate_qps=60)
        before = await metric(clients[0], "edgewise_queries_total", outcome="ok")
        for stream in (*mine, *others):
            answers = await asyncio.gather(*(infer(client, stream) for client in clients))
            assert [answer.status for answer in answers] == [200] * 16
            rows = [await client.request("GET", f"/v1/streams/{stream}") for client in clients[:4]]
            assert {row.body for row in rows if b'"ok": 16' in row.body} and len(
                {r.status for r in rows}
            ) == 1
        served = await metric(clients[0], "edgewise_queries_total", outcome="ok")
        assert {name: served[name] - before[name] for name in NAMES} == dict.fromkeys(NAMES, 32.0)
        assert min((await metric(clients[0], "edgewise_passed_on_total")).values()) > 0
        listed = (await clients[3].request("GET", "/v1/streams")).body
        assert all(str(stream).encode() in listed for stream in (*mine, *others))
        assert {row["gateway"] for row in await system.get("/v1/streams")} == set(NAMES)
        await close(clients[0], [*mine, *others])

    go(scenario())


def test_queries_that_name_no_stream_make_one_whose_rate_holds_for_all_connections(system):
    async def scenario():
        clients = clients_of(system, 48)  # at once, of which a stream may have 20 as a burst
        more, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
        needs = {"edgewise-rate-qps": "0.5", "edgewise-deadline-s": "5", "edgewise-application": "one"}
        asked = [c.request("POST", "/v2/models/score/infer", more | needs, body) for c in clients]
        statuses = [answer.status for answer in await asyncio.gather(*asked)]
        rows = [row for row in await system.get("/v1/streams") if row.get("application") == "one"]
        assert len(rows) == 1 and set(statuses) == {200, 429}
        assert statuses.count(200) < 30  # two streams would let twice as many through
        await close(clients[0], [rows[0]["stream"]])

    go(scenario())


@pytest.mark.skipif(not GRPC, reason="gRPC is not installed")
def test_grpc_meets_either_process_and_is_answered_by_the_one_that_has_the_stream(system):
    import tritonclient.grpc as triton

    (front,) = fronts(system.store)
    mine, others = go(opened_at(clients_of(system, 4), 1, rate_qps=60))
    channels = [("grpc.use_local_subchannel_pool", 1)]
    for _ in range(6):  # a connection each
        client = triton.InferenceServerClient(
            f"127.0.0.1:{front.settings['grpc_port']}", channel_args=channels
        )
        x = triton.InferInput("x", (1, 4), "FP32").set_data_from_numpy(np.ones((1, 4), np.float32))
        for stream in (*mine, *others):
            answer = client.infer("score", [x], headers={"edgewise-stream": str(stream)})
            assert [list(output.shape) for output in answer.get_response().outputs] == [[1, 4]]
        client.close()
    go(close(clients_of(system, 1)[0], [*mine, *others]))


@pytest.mark.parametrize("name", NAMES)
def test_who_dies_takes_its_own_queries_along_and_nothing_else_and_its_streams_come_back(system, name):
    dying = NAMES.index(name)

    async def asking(client, stream, until, seen):
        """A client that looks at every answer; one that has none has lost its connection."""
        while not until.is_set():
            try:
                seen.append((await infer_once(client, stream)).status)
            except ConnectionError:
                seen.append("lost")
            await pace(0.005)

    async def scenario():
        clients = clients_of(system, 8)
        streams = await opened_at(clients, 4, rate_qps=40)
        pairs = [(client, streams[k % 2][k // 2]) for k, client in enumerate(clients)]
        until, seen = asyncio.Event(), [[] for _ in pairs]
        tasks = [asyncio.create_task(asking(*p, until, s)) for p, s in zip(pairs, seen, strict=True)]

        async def more(least):
            wanted = [len(each) + least for each in seen]
            await becomes(lambda: all(len(s) >= n for s, n in zip(seen, wanted, strict=True)), "answers")

        await more(10)
        took = await system.kill(name)
        await more(10)
        until.set()
        await asyncio.gather(*tasks)
        for (_, stream), statuses in zip(pairs, seen, strict=True):
            assert set(statuses) <= {200, 429, 503, "lost"} and statuses[-1] in (200, 429)
            assert (
                statuses.count("lost") <= 2
            )  # its connection, and one that the dead process had not taken yet
            assert stream % 2 == dying or 503 not in statuses  # whose stream lives is answered
        rows = {row["stream"]: row for row in await system.get("/v1/streams")}
        assert all(rows[s]["closed_s"] is None and rows[s]["worker"] for s in (*streams[0], *streams[1]))
        await close(clients[0], [*streams[0], *streams[1]])
        return took

    print(f"{name} was back after {go(scenario()):.2f} s")


async def infer_once(client, stream):
    headers, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
    return await client.request(
        "POST", "/v2/models/score/infer", headers | {"edgewise-stream": str(stream)}, body
    )


async def asked_all_the_time(system):
    """Six clients that ask until they are told to stop, and streams of both processes that they ask for."""
    clients = clients_of(system, 6)
    streams = await opened_at(clients, 3, rate_qps=60)
    until = asyncio.Event()
    pairs = [(client, streams[k % 2][k // 2]) for k, client in enumerate(clients)]
    tasks = [asyncio.create_task(infer_until(*pair, until, 0.03)) for pair in pairs]
    return clients, streams, until, tasks


def test_clients_that_ask_again_have_every_query_answered_while_both_are_killed_in_turn(system):
    async def scenario():
        clients, streams, until, tasks = await asked_all_the_time(system)
        for name in (*NAMES, *NAMES):
            await system.kill(name)
        until.set()
        statuses = [status for task in tasks for status in await task]
        assert set(statuses) == {200} and len(statuses) > 30
        await close(clients[0], [*streams[0], *streams[1]])

    go(scenario())


def test_a_change_replaces_them_one_by_one_and_the_port_answers_all_the_time(system):
    data = small_scenario(capacity_qps=300).spec.model_dump(mode="json", exclude_none=True)
    data["window_s"] = 7.0
    changed = parse(data)

    async def scenario():
        clients, streams, until, tasks = await asked_all_the_time(system)
        before = {name: system.pid(name) for name in NAMES}
        where = Listen(grpc_port=0 if GRPC else None)
        prepare(system.folder, changed, gateways=1, where=where).close()  # as many processes as there are
        await becomes(lambda: read_change(system.store).state == DONE, "the change is done", HANG_S)
        after = {name: system.pid(name) for name in NAMES}
        assert all(after[name] not in (None, before[name]) for name in NAMES)
        until.set()
        assert {status for task in tasks for status in await task} == {200}
        assert (await metric(clients[0], "edgewise_streams_bound")).keys() == set(NAMES)
        await close(clients[0], [*streams[0], *streams[1]])

    go(scenario())


def parse(data) -> Scenario:
    from edgewise.model.parsing import parse_scenario

    return parse_scenario(data, "small")


def test_a_policy_is_switched_in_both(system):
    assert go(system.switch("/v1/policies/dispatch", "closest"))["state"] == "done"
    page = go(ask(clients_of(system, 1)[0], "GET", "/metrics")).body.decode()
    assert set(re.findall(r'^edgewise_policy{gateway="(\S+)",policy="closest"} 1.0', page, re.M)) == set(
        NAMES
    )


def test_the_number_of_processes_does_not_change_while_they_run(system):
    kept = {r.process.name: r.handle for r in system.store.processes()}
    for number in (1, 3):
        with pytest.raises(RunError, match=rf"--gateway-processes {number}: 2 serve each gateway"):
            prepare(system.folder, small_scenario(capacity_qps=300), gateways=1, gateway_processes=number)
    assert {r.process.name: r.handle for r in system.store.processes()} == kept


def test_one_process_is_planned_as_ever_and_several_keep_their_ports(tmp_path):
    def planned(processes, port=0, sites=2):
        where, scenario = Listen(port=port), small_scenario(gateways_sites=sites)
        store = prepare(tmp_path, scenario, where=where, gateway_processes=processes)
        found = {r.process.name: r.process for r in store.processes("gateway")}
        shown = [(front.name, front.port, front.settings["site"]) for front in fronts(store)]
        store.close()
        return found, shown

    alone, shown = planned(None, 8000)
    assert shown == [("gateway-0", 8000, "site-0"), ("gateway-1", 8001, "site-1")]
    assert all(process.front is process for process in alone.values())
    assert not any({"share", "shared"} & process.settings.keys() for process in alone.values())
    both, shared = planned(2, 8000)
    assert shared == shown and sorted(both) == ["gateway-0", "gateway-0.1", "gateway-1", "gateway-1.1"]
    ports = {name: process.port for name, process in both.items()}
    assert len(set(ports.values()) | {8000, 8001}) == 6
    again, shared = planned(2)  # whatever is free, where nothing was
    assert shared == shown and {name: process.port for name, process in again.items()} == ports
    fewer, _ = planned(2, sites=1)
    assert sorted(fewer) == ["gateway-0", "gateway-0.1"] and fewer["gateway-0.1"].port == ports["gateway-0.1"]
    assert planned(1)[0].keys() == alone.keys()  # nothing has run yet: it may still be another number


def test_a_named_clients_stream_is_its_own_whichever_process_its_queries_meet(tmp_path):
    options = {"gateways": 1, "gateway_processes": 2, "where": Listen(token=CLIENTS)}

    async def scenario(system):
        (front,) = fronts(system.store)
        await system.ready("of-one")
        one = [http.Client.of_url(front.url, "of-one") for _ in range(6)]
        other = [http.Client.of_url(front.url, "of-other") for _ in range(6)]
        streams = await opened_at(one, 1)
        for stream in (*streams[0], *streams[1]):
            assert {(await infer(client, stream)).status for client in one} == {200}
            assert {(await infer(client, stream)).status for client in other} == {404}
        stranger = http.Client.of_url(front.url)
        assert (await infer_once(stranger, streams[0][0])).status == 401
        forged = {"edgewise-passed-on": "0.0 @one", "authorization": "Bearer of-other"}
        for client in other:
            assert (await client.request("GET", f"/v1/streams/{streams[1][0]}", forged)).status == 404

    system = System(tmp_path / "live", small_scenario(workers=2), **options)
    try:
        system.start()
        go(scenario(system))
    finally:
        system.stop()


def test_up_says_where_they_share_and_refuses_what_cannot_be(tmp_path):
    (tmp_path / "small.yaml").write_text(dump_scenario(small_scenario(workers=2)))
    up = ("up", "small.yaml", "--gateways", "1", "--gateway-processes")
    said = edgewise(*up, "0", folder=tmp_path, code=2)
    assert "--gateway-processes" in said and "Traceback" not in said
    assert "more than 64 processes" in edgewise(*up, "100", folder=tmp_path, code=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = edgewise(*up, "2", "--port", str(port), folder=tmp_path, code=2)
        assert f"port {port}, for gateway-0: Address already in use; use another --port" in said
        free = ("--port", "0", "--grpc-port", str(port))
        said = edgewise(*up, "2", *free, "--state", "other", folder=tmp_path, code=2)
        assert f"port {port}, for gRPC of gateway-0: Address already in use" in said
    command = [sys.executable, "-m", "edgewise", *up, "2", "--port", str(port)]
    try:
        first = said_until_up(command, tmp_path)
        assert f"gateway-0: http://127.0.0.1:{port} (site site-0, 2 processes)\n" in first
        assert "1 gateway accepting (2 processes), 2 workers ready" in first[-1]
        there = {r.process.name: r.handle for r in store_of(tmp_path / "runs/live").processes()}
        second = said_until_up(command, tmp_path)  # all goes on, and is taken over with its port
        assert any(line.startswith("0 to start, 0 to end, 0 to replace") for line in second)
        assert {r.process.name: r.handle for r in store_of(tmp_path / "runs/live").processes()} == there
    finally:
        edgewise("down", folder=tmp_path)


def said_until_up(command, folder):
    """What `edgewise up` says until all serve; then it is killed."""
    running, lines = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True), []
    while not lines or not lines[-1].startswith("up after"):
        lines.append(running.stdout.readline())
        assert lines[-1], lines  # it ended
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    return lines
