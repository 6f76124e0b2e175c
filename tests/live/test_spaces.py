"""A live system on namespaces: links are as fast as the scenario says, who dies comes back to its place."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import yaml
from running_system import small_scenario, started

from command_line import edgewise
from edgewise.config import dump_scenario
from edgewise.core.world import World
from edgewise.errors import RunError
from edgewise.model.parsing import parse_scenario
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.rehearsal import rehearse
from edgewise.runtime.gateway.forwarding import Ways
from edgewise.runtime.protocol.messages import WORKER, InferRequest, encode_request
from edgewise.runtime.testbeds.kernel import unavailable
from edgewise.runtime.testbeds.spaces import SPACES, Spaces, from_settings, left_behind
from waiting import becomes

WHY_NOT = unavailable() if shutil.which("ip") else "no iproute2 here"
pytestmark = [pytest.mark.live, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]
RATE_BPS, PORT = 16e6, 5000
SENT_BYTES = 400_000  # 0.2 s at that rate

# Takes what one sender sends and says when the last byte came.
TAKES = """
import socket, sys, time
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
inbox = socket.create_server((host, port))
print("ready", flush=True)
for _ in range(count):
    connection, _ = inbox.accept()
    while connection.recv(1 << 16):
        pass
    print(time.time(), flush=True)
"""
SENDS = """
import socket, sys, time
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
out = socket.create_connection((host, port), 20)
begun = time.time()
out.sendall(bytes(size))
out.close()
print(begun)
"""


def scenario():
    """Two sites that share the cable to the far cluster; each has one of its own to the near one."""
    data = yaml.safe_load(dump_scenario(small_scenario(gateways_sites=2)))
    data["sharing"] = "fifo"
    data["links"] = [
        {"site": "*", "cluster": "near", "delay_s": 0.001, "over": "lan-{site}"},
        {"site": "*", "cluster": "far", "delay_s": 0.004, "over": ["lan-{site}", "wan"]},
        {"name": "lan-{site}", "bandwidth_bps": 8 * RATE_BPS},
        {"name": "wan", "bandwidth_bps": RATE_BPS},
    ]
    return parse_scenario(data, "small")


@pytest.fixture
def laid(tmp_path):
    spaces = Spaces(tmp_path)
    yield spaces, spaces.make(scenario().topology, {})
    spaces.remove()


def begun_in(place, code, *arguments):
    command = ["ip", "netns", "exec", place.space, sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def seconds(sources, target):
    """How long a message of each source takes to a place, all sent at once."""
    taker = begun_in(target, TAKES, target.host, PORT, len(sources))
    assert taker.stdout.readline() == "ready\n"
    senders = [begun_in(source, SENDS, target.host, PORT, SENT_BYTES) for source in sources]
    begun = [float(sender.communicate(timeout=60)[0]) for sender in senders]
    ends = [float(line) for line in taker.communicate(timeout=60)[0].split()]
    return max(ends) - min(begun)


def test_links_are_as_fast_as_the_scenario_says_and_whoever_shares_one_waits(laid):
    _, places = laid
    (one, other), far, near = (
        [places["site-0"], places["site-1"]],
        places["far-node"],
        places["near-node"],
    )
    alone_s = 8 * SENT_BYTES / RATE_BPS
    took_s = seconds([one], far)
    assert alone_s * 0.9 < took_s  # never faster; slower where this machine is busy
    assert seconds([one, other], far) > 2 * alone_s * 0.9
    assert seconds([far], one) > alone_s * 0.9  # back, on a link of its own
    assert min(seconds([one], near) for _ in range(5)) < alone_s / 2


def test_what_is_there_stays_and_nothing_is_left_behind(laid, tmp_path):
    spaces, places = laid
    topology = scenario().topology
    fewer = replace(topology, sites=topology.sites[:1], ways=topology.ways[:2])
    assert spaces.make(fewer, places) == {name: places[name] for name in places if name != "site-1"}
    assert spaces.make(topology, places) == places
    again = Spaces(tmp_path / "other")
    try:
        others = again.make(topology, {})
        hosts = {place.host for place in (*places.values(), *others.values())}
        assert len(hosts) == len(places) + len(others)
        assert {tmp_path, tmp_path / "other"} <= set(left_behind())
    finally:
        again.remove()
    spaces.remove()
    assert tmp_path not in left_behind()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert places["site-0"].space not in listed


def test_a_system_runs_on_namespaces_and_who_dies_comes_back_to_its_place(tmp_path):
    folder = tmp_path / "system"
    try:
        with started(folder, scenario(), on_namespaces=True) as system:
            places = from_settings(system.store.get(SPACES))
            far = system.of("echo-cpu@far-node")
            assert far.process.url == f"http://{places['far-node'].host}:{far.process.port}"

            async def run():
                await system.ready()
                assert await answered(system) is not None
                await system.kill("echo-cpu@far-node")
                await system.kill("gateway-0")
                await system.kill("controller")
                await becomes(lambda: answered(system), limit_s=120)

            asyncio.run(run())
            for name, place in (("echo-cpu@far-node", "far-node"), ("gateway-0", "site-0")):
                space = os.stat(f"/run/netns/{places[place].space}").st_ino
                assert os.stat(f"/proc/{system.pid(name)}/ns/net").st_ino == space
            with pytest.raises(RunError, match="--on: cannot change while the system runs"):
                started(folder, scenario()).__enter__()
    finally:
        Spaces(folder).remove()


def test_what_links_here_carry_is_not_passed_once_more():
    made = scenario()
    world = World.build(made.catalog, made.topology, made.sharing)
    emulated, carried = Ways(world, 7), Ways(world, 7, carried=True)
    there_s, back_s = emulated.delays_s(0, 1, (SENT_BYTES, 0.0), 1, 1)
    rest_s, same_s = carried.delays_s(0, 1, (SENT_BYTES, 0.0), 1, 1)
    uplink_s = 8 * SENT_BYTES / min(float(world.uplink_bps[0]), RATE_BPS)
    assert there_s - rest_s == pytest.approx(8 * SENT_BYTES / RATE_BPS) and same_s == back_s
    assert there_s == pytest.approx(uplink_s + 0.004)
    assert emulated.rest_s((there_s, back_s), there_s + 0.5, 0.5) == pytest.approx(back_s)
    assert (
        emulated.rest_s((there_s, back_s), there_s + 9.0, 0.5) == 0.0
    )  # what took longer is part of the way
    assert carried.rest_s((rest_s, back_s), there_s + 9.0, 0.5) == back_s


async def answered(system):
    """Who answered a query at the first gateway; None: nobody did."""
    client = system.gateway()
    more, body = encode_request(InferRequest({"x": np.ones((1, 4), np.float32)}))
    headers = {**more, "edgewise-rate-qps": "1", "edgewise-deadline-s": "5"}
    answer = await ask(client, "POST", "/v2/models/score/infer", headers, body, patience_s=30)
    client.close()
    return answer.headers.get(WORKER) if answer.status == 200 else None


def test_a_dry_run_gives_places_their_addresses_and_makes_none(tmp_path):
    """The port of a gateway that gets an address of its own may be taken on this machine."""
    (tmp_path / "small.yaml").write_text(dump_scenario(scenario()))
    spaces = Spaces(tmp_path / "live")
    with socket.create_server(("127.0.0.1", 0)) as other:
        up = ("up", "small.yaml", "--state", "live", "--port", str(other.getsockname()[1]), "--dry-run")
        edgewise(*up, folder=tmp_path, code=2)
        said = edgewise(*up, "--on", "namespaces", folder=tmp_path)
    assert "+ start    gateway gateway-1" in said and spaces.remove() == []


def test_a_dry_run_of_what_runs_keeps_its_addresses_and_gives_others_to_what_comes(tmp_path):
    more = yaml.safe_load(dump_scenario(scenario()))
    more["clusters"][0]["nodes"].append({"name": "one-more", "resources": {"cpu_cores": 9}})
    try:
        prepare(tmp_path, scenario(), on_namespaces=True).close()
        rows = rehearse(tmp_path, parse_scenario(more, "small"), on_namespaces=True)[1]
        there = {r.process.name: r.process.settings["space"] for r in rows}
        real = prepare(tmp_path, parse_scenario(more, "small"), on_namespaces=True)
        made = {r.process.name: r.process.settings["space"] for r in real.processes()}
        assert there == made and "one-more" in real.get(SPACES)
        real.close()
    finally:
        Spaces(tmp_path).remove()
