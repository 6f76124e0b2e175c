"""Requests and replicas in a whole live system: replicas follow the load, nothing accepted is lost."""

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from running_system import started

from command_line import edgewise
from edgewise.config import load_scenario
from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.http.messages import write_request
from edgewise.runtime.protocol.messages import InferRequest, encode_request
from waiting import becomes, pace, wait_until

pytestmark = pytest.mark.live
LONG_S = 150.0  # nothing is measured here: the machine may be busy with other things
FRAME_S = 0.5
MEMORY_BYTES, REPLICA_BYTES = 2.5e9, {"camera": 1e9, "plates": 1e9, "sorting": 0.5e9}


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    changes = {"services.frame_s": FRAME_S, "services.nodes_per_frame": 3}
    with started(tmp_path_factory.mktemp("services"), load_scenario("kais-live", changes)) as made:
        yield made


def query(service="camera", deadline_s=60.0, **headers):
    more, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
    stated = {**more, "edgewise-deadline-s": str(deadline_s), **headers}
    return "POST", f"/v2/models/{service}/infer", stated, body


async def request(client, service="camera", **what):
    return await ask(client, *query(service, **what), patience_s=LONG_S)


async def service(system, name="camera"):
    found = (await system.get("/v1/status"))["orchestration"]
    return next(row for row in found["services"] if row["service"] == name)


async def replicas(system, state="ready"):
    return sum(states[state] for states in (await service(system))["nodes"].values())


class Load:
    """Clients that ask one after the other; everything must be answered 200. Watches memory meanwhile."""

    def __init__(self, system, clients):
        self.system, self.count = system, clients
        self.statuses, self.most_bytes = [], 0.0

    async def __aenter__(self):
        self.gateways = [self.system.gateway(k) for k in range(2)]
        self.over = asyncio.Event()
        self.tasks = [asyncio.create_task(self.ask(self.gateways[k % 2])) for k in range(self.count)]
        self.tasks.append(asyncio.create_task(self.watch()))
        return self

    async def __aexit__(self, kind, error, trace):
        self.over.set()
        await asyncio.wait_for(asyncio.gather(*self.tasks), LONG_S)
        for gateway in self.gateways:
            gateway.close()
        if kind is None:
            assert len(self.statuses) > 20 and set(self.statuses) == {200}
            assert self.most_bytes <= MEMORY_BYTES

    async def ask(self, gateway):
        while not self.over.is_set():
            self.statuses.append((await request(gateway)).status)

    async def watch(self):
        """Memory of replicas that are wanted or have a process, node by node."""
        while not self.over.is_set():
            used = {}
            for running in self.system.store.processes("replica"):
                settings = running.process.settings
                if running.process.wanted or running.handle:
                    used.setdefault(settings["node"], []).append(REPLICA_BYTES[settings["service"]])
            self.most_bytes = max(self.most_bytes, *map(sum, used.values()))
            await pace(0.02)  # of its looks


def test_replicas_follow_the_load_and_go_when_it_falls(system):
    async def run():
        assert await becomes(lambda: replicas(system)) == 1
        before = (await service(system))["requests"]
        async with Load(system, 8) as load:

            async def grown():
                return await replicas(system) >= 4 and len(load.statuses) > 20

            await becomes(grown)
        assert load.most_bytes > 1.5e9  # more than one replica on a node
        places = (await service(system))["nodes"]
        assert sum(states["ready"] > 0 for states in places.values()) >= 2
        async with Load(system, 1) as load:  # goes on while they go

            async def shrunk():
                rows = system.store.processes("replica")
                left = [r for r in rows if r.process.settings["service"] == "camera"]
                fewer = len(left) <= 4 and all(r.process.wanted and r.handle for r in left)
                return fewer and len(load.statuses) > 20

            await becomes(shrunk)

        async def alone():
            rows = system.store.processes("replica")
            return sum(r.process.settings["service"] == "camera" for r in rows) == 1

        await becomes(alone)
        after = (await service(system))["requests"]
        assert after["arrived"] > before["arrived"]
        assert after["failed"] == after["dropped"] == 0

    asyncio.run(run())


def test_kill_9_of_the_controller_while_replicas_come_and_go(system):
    async def run():
        async with Load(system, 8):

            async def grows():
                return await replicas(system) + await replicas(system, "starting") >= 2

            await becomes(grows)
            before = {r.process.name: r.handle for r in system.store.processes("replica") if r.handle}
            await system.kill("controller")
            after = {r.process.name: r.handle for r in system.store.processes("replica")}
            assert len(before) >= 3
            kept = [name for name in before if name in after and after[name] == before[name]]
            assert len(kept) >= len(before) - 1  # one may just have been on its way out

            async def grown():
                return await replicas(system) >= 4

            await becomes(grown)
            await system.kill("controller")
            await becomes(grown)
            victim = next(r for r in system.store.processes("replica") if r.process.wanted and r.handle)
            os.kill(int(victim.handle.split(":")[0]), signal.SIGKILL)

            async def again():
                rows = {r.process.name: r for r in system.store.processes("replica")}
                new = rows.get(victim.process.name)
                return new is None or (new.handle is not None and new.handle != victim.handle)

            await becomes(again)

        most = len(system.store.processes("replica"))

        async def fewer():
            return len(system.store.processes("replica")) < most

        async def alone():
            rows = system.store.processes("replica")
            return sum(r.process.settings["service"] == "camera" for r in rows) == 1

        await becomes(fewer)
        await system.kill("controller")
        await becomes(alone)
        orphans = await becomes(lambda: without_orphans(system))
        assert orphans == "none"

    asyncio.run(run())


async def without_orphans(system):
    """No process of a replica runs that the store does not know."""
    known = {r.process.name for r in system.store.processes("replica")}
    places = [file for file in (system.folder / "places").iterdir() if "#" in file.name]
    alive = {file.name for file in places if (number := file.read_text()) and runs(number)}
    return "none" if alive <= known else ""


def runs(number):
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_request_at_a_stopped_replica_goes_elsewhere_and_waits_no_longer_than_its_deadline(system):
    async def run():
        await becomes(lambda: replicas(system))
        client = system.gateway()
        rows = system.store.processes("replica")
        mine = [r for r in rows if r.process.settings["service"] == "camera" and r.handle]
        numbers = [int(r.handle.split(":")[0]) for r in mine]

        async def timed(deadline_s):
            began_s = time.monotonic()
            answer = await client.request(*query(deadline_s=deadline_s), timeout_s=LONG_S)
            return answer, time.monotonic() - began_s

        await system.get("/v1/policies/requests", "PUT", {"policy": "greedy"})
        for number in numbers:
            os.kill(number, signal.SIGSTOP)
        (kept, _), (late, took_s) = await asyncio.gather(timed(60.0), timed(0.4))
        for number in numbers:
            os.kill(number, signal.SIGCONT)
        assert kept.status == 200 and kept.headers["edgewise-worker"] not in {r.process.name for r in mine}
        assert late.status == 504 and took_s < 0.4 + 1.5
        client.close()

    asyncio.run(run())


def test_requests_and_streams_at_one_worker_are_booked_together(system):
    needs = {"task": "detection", "rate_qps": 15, "size_bytes": 16, "deadline_s": 2.0}

    async def views():
        row = next(r for r in await system.get("/v1/workers") if r["name"] == "camera@cloud")
        return row.get("gateways", {}).values()

    async def opened():
        client = system.gateway()
        answer = await client.request("POST", "/v1/streams", body=json.dumps(needs).encode())
        client.close()
        return answer.status, json.loads(answer.body)

    async def run():
        await system.get("/v1/policies/requests", "PUT", {"policy": "cloud-only"})
        async with Load(system, 6):  # about 25 requests/s, which is all it can take

            async def seen_by_both():
                found = await views()
                return len(found) == 2 and all(view["load_qps"] > 12.0 for view in found)

            await becomes(seen_by_both)
            assert all(0.0 < view["requests_qps"] < view["load_qps"] for view in await views())
            assert sum(view["held"] for view in await views()) > 0
            status, answer = await opened()
            assert status == 409 and "capacity" in answer["reason"]

        async def room():
            return all(view["load_qps"] < 5.0 for view in await views())

        await becomes(room)
        status, answer = await opened()
        assert (status, answer["worker"]) == (201, "camera@cloud")

        async def told():
            return all(15.0 <= view["load_qps"] < 20.0 for view in await views())

        await becomes(told)
        client = system.gateway()
        await client.request("DELETE", f"/v1/streams/{answer['stream']}")
        client.close()
        await system.get("/v1/policies/requests", "PUT", {"policy": "greedy"})

    asyncio.run(run())


def test_policies_are_switched_while_it_runs(system):
    async def run():
        client = system.gateway()
        done = await system.switch("/v1/policies/requests", "cloud-only")
        states = {row["gateway"]: row["state"] for row in done["gateways"]}
        assert (done["state"], states) == ("done", {"gateway-0": "done", "gateway-1": "done"})
        answers = [await request(client) for _ in range(3)]
        assert {each.headers["edgewise-worker"] for each in answers} == {"camera@cloud"}
        assert (await system.switch("/v1/shadows/requests", "greedy"))["state"] == "done"
        await request(client)
        seen = [row["answer"] for row in await system.get("/v1/shadows/requests")]
        assert {each["policy"] for each in seen} == {"greedy"}
        assert sum(each["decisions"] for each in seen) >= 1
        assert all(sum(each["chosen"].values()) == each["decisions"] for each in seen)
        await system.kill("gateway-0")
        assert (await request(client)).headers["edgewise-worker"] == "camera@cloud"
        seen = [row["answer"]["policy"] for row in await system.get("/v1/shadows/requests")]
        assert seen == ["greedy", "greedy"]  # also in the gateway that was started anew
        assert (await system.switch("/v1/shadows/requests", ""))["state"] == "done"
        assert (await system.switch("/v1/policies/requests", "greedy"))["state"] == "done"

        async def near():
            return "cloud" not in (await request(client)).headers["edgewise-worker"]

        await becomes(near)
        done = await system.switch("/v1/policies/orchestrate", "none")
        assert (done["state"], done["policy"]) == ("done", "none")
        assert (await system.switch("/v1/shadows/orchestrate", "autoscaler"))["state"] == "done"

        async def watched(times=1):
            rows = await system.get("/v1/shadows/orchestrate")
            return any((row["answer"] or {}).get("decisions", 0) >= times for row in rows)

        await becomes(watched)
        await system.kill("controller")
        assert (await system.get("/v1/policies/orchestrate"))["policy"] == "none"
        rows = [r.process.name for r in system.store.processes("replica")]
        async with Load(system, 6):
            await becomes(lambda: watched(4))  # frames of the new controller
        assert [r.process.name for r in system.store.processes("replica")] == rows
        assert (
            "none of autoscaler"
            in (await system.get("/v1/policies/orchestrate", "PUT", {"policy": "x"}))["error"]
        )
        await system.switch("/v1/policies/orchestrate", "autoscaler")
        client.close()

    asyncio.run(run())


def test_a_changed_scenario_replaces_replicas_one_by_one_under_load(system):
    changes = {"services.frame_s": FRAME_S, "catalog.variants.camera.profile.fixed_s": 0.05}

    async def run():
        async with Load(system, 3):
            before = {r.handle for r in system.store.processes("replica")}
            prepare(system.folder, load_scenario("kais-live", changes)).close()

            async def replaced():
                rows = system.store.processes()
                settings = [r.process.settings for r in rows if r.process.kind == "replica"]
                cameras = [each["profile"]["fixed_s"] for each in settings if each["service"] == "camera"]
                current = all(r.handle and not r.outdated for r in rows if r.process.wanted)
                anew = any(r.process.kind == "replica" and r.handle not in before for r in rows if r.handle)
                return current and anew and set(cameras) == {0.05}

            await becomes(replaced)
            await system.ready()
        assert (await service(system))["service"] == "camera"

    asyncio.run(run())


CROWD, HONEST = 400, 150  # connections, requests


def test_four_hundred_connections_from_two_addresses_cost_another_client_at_most_5_points(system):
    """Without shares nearly all of its requests met full queues; then refusals kept the gateway busy."""

    async def asking(gateway, address, goes_on, statuses):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway, local_addr=(address, 0))
        method, path, headers, body = query(deadline_s=2.0)
        data = b"".join(write_request(method, path, "127.0.0.1", headers, body))
        while goes_on():
            writer.write(data)
            line, length = await reader.readline(), 0
            while (header := await reader.readline()).strip():
                name, _, value = header.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            await reader.readexactly(length)
            statuses.append(int(line.split()[1]))
        writer.close()

    async def honest(port):
        found = []
        asked = [asking(port, "127.0.0.3", lambda: len(found) <= HONEST - 3, found) for _ in range(3)]
        await asyncio.gather(*asked)
        return found.count(200) / len(found), found

    async def run():
        port, over = system.of("gateway-0").process.port, asyncio.Event()
        theirs, (alone, _) = [], await honest(port)
        crowd = [
            asyncio.create_task(asking(port, f"127.0.0.{1 + k % 2}", lambda: not over.is_set(), theirs))
            for k in range(CROWD)
        ]
        await becomes(lambda: theirs.count(429) >= CROWD)  # there is no more room
        beside, found = await honest(port)
        over.set()
        await asyncio.gather(*crowd)
        assert len(found) == HONEST and beside >= alone - 0.05, (alone, found)
        assert alone > 0.9 and theirs.count(200) > 0

    asyncio.run(asyncio.wait_for(run(), LONG_S))


def test_requests_without_enough_time_are_refused_and_say_why(system):
    async def run():
        client = system.gateway()

        async def page():
            return (await client.request("GET", "/metrics")).body.decode()

        def dropped(text):
            found = re.search(r'edgewise_requests_total\{outcome="dropped",service="camera"\} (\S+)', text)
            return float(found.group(1))

        before = dropped(await page())
        answer = await request(client, deadline_s=0.001)
        assert answer.status == 409 and "cannot end in time" in json.loads(answer.body)["error"]
        assert (await request(client, deadline_s="soon")).status == 400
        assert (await request(client, **{"edgewise-remaining-s": "0.001"})).status == 409
        assert (await request(client, "sorting")).status == 200
        ready = await client.request("GET", "/v2/models/sorting/ready")
        assert json.loads(ready.body)["ready"] is True
        found = json.loads((await client.request("GET", "/v2/models/sorting")).body)
        assert found["name"] == "sorting" and found["inputs"]

        text = await page()
        assert dropped(text) == before + 2

        async def told():
            return (await service(system))["requests"].get("dropped") == before + 2

        await becomes(told)
        assert re.search(r'edgewise_replicas\{node="cloud",service="camera",state="ready"\} 1.0', text)
        assert 'edgewise_request_policy{policy="' in text
        client.close()

    asyncio.run(run())


def test_the_command_line_shows_and_steers_it(system):
    folder = ("--state", str(system.folder))

    def say(*arguments, code=0):
        return edgewise(*arguments, *folder, folder=system.folder, code=code)

    assert "in time" in say("load", "plates", "--rate-qps", "20", "--seconds", "1", "--deadline-s", "30")
    own_s = load_scenario("kais-live").spec.services.offered[1].deadline_s
    assert own_s != 1.0 and f"within {own_s:g} s" in say("load", "plates", "--seconds", "0.5")
    assert "refused" in say(
        "load", "plates", "--seconds", "0.5", "--deadline-s", "0.001", "--site", "site-east"
    )
    assert "did you mean 'plates'" in say("load", "plate", code=2)
    assert "site-west" in say("load", "plates", "--site", "north", code=2)
    said = say("status")
    assert "west-0" in said and re.search(r"requests +\S+", said) and re.search(r"orchestrate +\S+", said)
    assert re.search(r"plates@\S+#0\s+ready", say("workers"))
    assert "the controller" in say("policy", "set", "orchestrate=gsp-ss")
    assert "gateway-0, gateway-1" in say("policy", "set", "requests=two-choices")
    shown = say("policy", "show", "orchestrate")
    assert re.search(r"orchestrate +gsp-ss\s", shown) and "there are autoscaler" in shown
    assert "the scenario has no pipelines" in say("policy", "set", "place=tp", code=2)
    say("policy", "set", "orchestrate=autoscaler")


def answer_size(system):
    """Bytes of an answer that a client gets."""

    async def run():
        gateway = system.gateway(0)
        answer = await request(gateway, "plates")
        gateway.close()
        assert answer.status == 200
        return len(answer.body)

    return asyncio.run(run())


def answers_so_far(system):
    """How many answers of a service are known of, and their bytes."""
    (found,) = system.store.rows("SELECT answers, size_bytes FROM answer WHERE service = 'plates'")
    return found


def test_requests_and_jobs_are_recorded_and_simulated_under_policies_of_each_decision(system):
    folder = system.folder

    def say(*arguments, state=("--state", str(system.folder)), code=0):
        return edgewise(arguments[0], *state, *arguments[1:], folder=folder, code=code)

    began_s = time.time()
    said = say("load", "plates", "--rate-qps", "30", "--seconds", "1", "--site", "site-east")
    sent = int(re.search(r"\n +(\d+) +\d+", said)[1])
    say("submit", "--cores", "2", "--duration", "3s", "--latest", "+1h", "--", "true")
    wait_until(lambda: len(system.store.records.requests(began_s)) >= sent)
    came = system.store.records.requests(began_s)
    assert {(each.site, each.service, each.deadline_s) for each in came} == {("site-east", "plates", 0.25)}
    said = say(
        "record", "recorded", "--last", f"{time.time() - began_s + 2.0:.3f}"
    )  # a process takes its time
    kept = int(re.search(r"(\d+) requests", said)[1])
    assert kept > sent / 2
    scenario = load_scenario(folder / "recorded" / "scenario.yaml")
    assert set(scenario.holds) == {"services", "jobs"}
    assert scenario.duration_s % scenario.services.frame_s == 0
    (job,) = scenario.spec.jobs.submitted
    assert (job.cores, job.duration_s) == (2, 3) and job.latest_s + 3 < scenario.duration_s
    assert scenario.spec.jobs.room == "nodes"  # as it ran
    assert scenario.services.cores_held == "life"  # else nobody knows what is left to jobs
    assert "services.cores_held is 'life' in the recording: jobs are told" in said
    (offered,) = [each for each in scenario.services.offered if each.variant == "plates"]
    answers, size_bytes = answers_so_far(system)
    assert offered.answer_bytes == round(size_bytes / answers, 1) > 0
    wanted = size_bytes + answer_size(system)
    wait_until(lambda: answers_so_far(system) == (answers + 1, wanted))
    for given, rows in (
        (("--policies", "orchestrate=none,autoscaler", "--policy", "requests=greedy"), 2),
        (("--policies", "requests=greedy,closest,two-choices"), 3),
        (("--policy", "defer=sjf"), 1),
        (("--policies", "defer=fifo,horizon"), 2),
    ):
        found = json.loads(say("replay", "recorded", *given, "--out", "x", "--json", state=()))
        assert len(found["summary"]) == rows, found["summary"]
        asked = {row.get("arrived", row.get("jobs")) for row in found["summary"]}
        assert asked == {kept if found["work"] == "services" else 1}
    assert "has no graphs" in say("replay", "recorded", "--policy", "split=nona", state=(), code=2)


def test_down_ends_everything(system):
    handles = [r.handle for r in system.store.processes() if r.handle]
    assert "everything has ended" in edgewise("down", "--state", str(system.folder), folder=system.folder)
    system.nursery.wait(LONG_S)
    backend = LocalBackend(system.folder)
    assert handles and not any(backend.alive(handle) for handle in handles)
    assert not any(r.handle for r in system.store.processes())
