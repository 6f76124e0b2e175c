"""Probes find each other, measure the ways between them and what their node uses, and forget who is away."""

import asyncio
import json
import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgewise.errors import RunError, ScenarioError
from edgewise.runtime import http
from edgewise.runtime.process.probing import be_probe
from edgewise.runtime.watch.probe import MOST_BYTES, RATES_EVERY, MachineUse, NodeUse, Probe, found_at
from waiting import pace

SLOW_S = 0.05
USE = NodeUse(1.5, 2e9)


class Nodes:
    """Three nodes with a probe each; what `far` answers takes a while."""

    def __init__(self, token=None):
        self.token, self.servers, self.probes = token, {}, {}

    async def __aenter__(self):
        for name in ("near", "far", "third"):
            probe = Probe(name, self.addresses, self.token, load=lambda: USE)
            handler = probe.handle if name != "far" else self.slowly(probe.handle)
            guarded = http.protect(handler, http.AccessGuard((self.token,) if self.token else (), (), ()))
            self.servers[name], self.probes[name] = await http.serve(guarded), probe
        return self

    async def __aexit__(self, *error):
        for name, server in self.servers.items():
            self.probes[name].close()
            await server.close(0.1)

    async def addresses(self):
        return [(server.host, server.port) for server in self.servers.values()]

    def slowly(self, handle):
        async def answer(request):
            await pace(SLOW_S)
            return await handle(request)

        return answer


async def answer(probe, path, method="GET"):
    return await probe.handle(http.HttpRequest(method, path, {}, b""))


@pytest.mark.parametrize("token", [None, "secret-of-probes"])
def test_ways_to_all_others_are_measured_and_shown(token):
    async def work():
        async with Nodes(token) as nodes:
            near = nodes.probes["near"]
            await near.measure()
            shown = json.loads((await answer(near, "/v1/measured")).body)
            return near.seen, shown, (await answer(near, "/metrics")).body.decode()

    seen, shown, metrics = asyncio.run(work())
    assert set(seen) == {"far", "third"}
    assert SLOW_S <= seen["far"].round_trip_s < 10 * SLOW_S and seen["third"].round_trip_s < SLOW_S
    assert seen["far"].rate_bps > 1e6 and seen["third"].rate_bps > 1e6
    assert shown["node"] == "near" and shown["cores"] == 1.5 and shown["memory_bytes"] == 2e9
    assert {each["node"]: each["round_trip_s"] for each in shown["others"]} == {
        name: each.round_trip_s for name, each in seen.items()
    }
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    assert samples["edgewise_node_cores", "near"] == 1.5
    for name, each in seen.items():
        assert samples["edgewise_way_round_trip_seconds", "near", name] == each.round_trip_s
        assert samples["edgewise_way_bits_per_second", "near", name] == each.rate_bps


def test_who_is_away_is_forgotten_and_rates_are_measured_seldom():
    async def work():
        async with Nodes() as nodes:
            near, asked = nodes.probes["near"], []
            handle = nodes.probes["third"].handle
            nodes.probes["third"].handle = lambda request: asked.append(request.path) or handle(request)
            server = await http.serve(lambda request: nodes.probes["third"].handle(request))
            await nodes.servers["third"].close(0.1)
            nodes.servers["third"] = server
            del nodes.servers["far"]
            for _ in range(RATES_EVERY + 1):
                await near.measure()
            rates = sum("bytes" in path for path in asked)
            del nodes.servers["third"]
            await near.measure()
            await server.close(0.1)
            return rates, near.seen

    rates, seen = asyncio.run(work())
    assert rates in (2, 3)  # when it was first seen, and in its turn
    assert seen == {}


def test_who_refuses_or_answers_nonsense_is_away_and_stops_nothing():
    async def nonsense(request):
        return http.Response(200, b"not JSON")

    async def work():
        async with Nodes() as nodes:
            nodes.servers["odd"] = await http.serve(nonsense)
            nodes.probes["odd"] = nodes.probes["near"]
            gone = nodes.servers["third"]
            await gone.close(0.1)
            await nodes.probes["near"].measure()
            return nodes.probes["near"].seen

    assert set(asyncio.run(work())) == {"far"}


def test_only_what_is_bounded_is_answered():
    async def work():
        probe = Probe("near", None, load=lambda: USE)
        paths = ("/v1/bytes/99999999", "/v1/bytes/10", "/v1/bytes/-1", "/v1/bytes/x", "/v1/else")
        answers = [await answer(probe, path) for path in paths]
        return answers, await answer(probe, "/v1/measured", "POST")

    answers, posted = asyncio.run(work())
    assert [len(each.body) for each in answers[:2]] == [MOST_BYTES, 10]
    assert [each.status for each in answers] == [200, 200, 404, 404, 404] and posted.status == 405


def test_what_a_machine_uses_is_read_as_linux_says_it(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    proc = "cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 5\n"
    (tmp_path / "meminfo").write_text("MemTotal: 4000 kB\nMemFree: 1000 kB\nMemAvailable: 3000 kB\n")
    (tmp_path / "stat").write_text(proc.format(busy=100, idle=300))
    load = MachineUse(tmp_path)
    assert load() == NodeUse(pytest.approx(2 * 0.25), 1024.0 * 1000)
    (tmp_path / "stat").write_text(proc.format(busy=400, idle=400))
    assert load().cores == pytest.approx(2 * 0.75)
    assert MachineUse(tmp_path / "nowhere")() == NodeUse(0.0, 0.0)


def test_a_name_stands_for_addresses():
    assert ("127.0.0.1", 8090) in asyncio.run(found_at("localhost", 8090)())


@pytest.mark.parametrize("given", ["8090", ":8090", "host", "host:", "host:http", "host:0", "host:65536"])
def test_where_probes_are_must_be_said(given):
    with pytest.raises(RunError, match="HOST:PORT"):
        be_probe(given, None, True)


def test_nobody_may_ask_without_a_token_unless_that_is_said():
    with pytest.raises(ScenarioError, match="--open"):
        be_probe("localhost:8090", None, False)
