"""Networks cut into sub-models on workers in processes of their own answer what the whole network answers."""

import asyncio
import json
import os
import re
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from live_system import dense_world
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from command_line import edgewise
from edgewise import policies
from edgewise.errors import PolicyError, ProfileError, ScenarioError
from edgewise.model.grammar.scenario import BudgetsSpec
from edgewise.policies.split import contract
from edgewise.profiling.dags import cut, task_graph
from edgewise.runtime import http
from edgewise.runtime.clients.reaching import ask
from edgewise.runtime.clients.split_trial import (
    TASK,
    VARIANT,
    TrialSetting,
    draw_inputs,
    live_scenario,
    running,
    try_split,
)
from edgewise.runtime.controller.plan import DATABASE
from edgewise.runtime.gateway.needs import StreamRules
from edgewise.runtime.gateway.session import Session
from edgewise.runtime.gateway.split import SplitGroup, SplitMetrics, SplitUpstream
from edgewise.runtime.protocol.messages import AGE, InferRequest, decode_response, encode_request
from edgewise.runtime.store import Store
from edgewise.runtime.worker.batching import Line
from edgewise.runtime.worker.onnx_model import OnnxModel
from edgewise.runtime.worker.pieces import PieceWorker, describe, read_split, write_split
from edgewise.runtime.worker.worker import LiveWorker
from split_models import branching, real_ensemble
from waiting import IN_FILES, becomes

pytestmark = pytest.mark.live
SHAPE = [1, 3, 12, 12]
NAMES = ("halves", "broken", "sleeps")
BROKEN = f"""
{IN_FILES}

class Broken:
    decision, name = "split", "broken"
    def reset(self, program, key): pass
    def decide(self, view): return 1 / 0

class Sleeps(Broken):
    name = "sleeps"
    def decide(self, view): takes(1.0)
"""


def whole_answer(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def session(**budgets_s):
    rules = StreamRules(budgets_s=BudgetsSpec(**budgets_s))
    return Session(dense_world(), policies.load("dispatch", "least-impedance"), 0, time.monotonic, rules)


def written(folder, policy="nona", size=12, width=8, **changes):
    """A branching network in a folder, cut, with costs that make splitting pay."""
    model = branching(size=size, width=width)
    small = contract(task_graph(model, "net", power_ops=1e9))
    pieces = cut(model, small.members)
    setting = {"power_ops": 1e8, "link_bps": 1e10, "rate_qps": 1.0, "policy": policy} | changes
    about = describe(model, small.graph, pieces, **setting)
    write_split(folder / f"{VARIANT}.split", model, pieces, about)
    return model, about


async def send(client, inputs, **headers):
    more, body = encode_request(InferRequest(inputs))
    stated = {"edgewise-rate-qps": "1", "edgewise-deadline-s": "20"} | headers
    return await ask(client, "POST", f"/v2/models/{TASK}/infer", more | stated, body, patience_s=30)


def handles(folder):
    store = Store(folder / DATABASE)
    rows = {row.process.name: row.handle for row in store.processes() if row.process.kind == "worker"}
    store.close()
    return rows


async def samples(client):
    page = (await client.request("GET", "/metrics")).body.decode()
    return {(s.name, s.labels.get("workers")): s.value
            for family in text_string_to_metric_families(page) for s in family.samples}  # fmt: skip


def test_a_query_at_the_gateway_runs_on_several_workers(tmp_path):
    """Outputs, report, metrics, deadline, a wrong query, and a worker that dies."""
    model, about = written(tmp_path)
    rng = np.random.default_rng(3)
    queries = [{"x": rng.normal(size=SHAPE).astype(np.float32)} for _ in range(3)]

    async def run():
        async with running(tmp_path / "system", tmp_path, live_scenario(3, 4 * 3 * 12 * 12)) as url:
            client = http.Client.of_url(url)
            answers = [await send(client, query) for query in queries]
            late = await send(client, queries[0], **{"edgewise-remaining-s": "0.000001"})
            wrong = await send(client, {"x": np.zeros((1, 3, 12), np.float32)})
            counted = await samples(client)
            lost, handle = next(iter(handles(tmp_path / "system").items()))
            os.kill(int(handle.split(":")[0]), signal.SIGKILL)
            after = await send(client, queries[0])
            stopped, handle = list(handles(tmp_path / "system").items())[1]
            os.kill(int(handle.split(":")[0]), signal.SIGSTOP)
            hung = await asyncio.wait_for(send(client, queries[0]), 10)  # of its 20 s
            os.kill(int(handle.split(":")[0]), signal.SIGCONT)
            assert stopped not in hung.headers["edgewise-servers"].split(",")
            client.close()
            return [*answers, hung], late, wrong, counted, after, lost

    (*answers, hung), late, wrong, counted, after, lost = asyncio.run(run())
    for query, answer in zip([*queries, queries[0], queries[0]], [*answers, after, hung], strict=True):
        assert answer.status == 200, answer.body
        outputs = decode_response(answer.headers, answer.body).outputs
        np.testing.assert_allclose(outputs["y"], whole_answer(model, query)["y"], rtol=1e-4, atol=1e-5)
        assert answer.headers["edgewise-variant"] == VARIANT
        assert answer.headers["edgewise-plan"] == about.policy
    for answer in answers:
        assert len(set(answer.headers["edgewise-servers"].split(","))) == 3
        assert int(answer.headers["edgewise-sent-bytes"]) > 0
    assert lost not in after.headers["edgewise-servers"].split(",")
    assert late.status == 504 and wrong.status == 400 and b"inputs.x: has shape [1, 3, 12]" in wrong.body
    assert counted["edgewise_split_queries_total", "3"] == 3
    assert counted["edgewise_split_sent_bytes_total", None] > 0
    assert counted["edgewise_split_predicted_seconds", None] > 0


def test_a_second_policy_watches_a_running_split_model(tmp_path):
    """Placement by placement, also in a gateway that was started anew; one that raises is refused."""
    written(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN)
    state = tmp_path / "system"
    shadow = partial(edgewise, folder=tmp_path)
    query = {"x": np.zeros(SHAPE, np.float32)}

    async def run():
        async with running(state, tmp_path, live_scenario(3, 4 * 3 * 12 * 12)) as url:
            client = http.Client.of_url(url)
            own = f"split={tmp_path / 'broken.py'}:Broken"
            said = await asyncio.to_thread(shadow, "shadow", "set", own, "--state", str(state), code=2)
            assert "'broken' cannot decide: ZeroDivisionError" in said
            await asyncio.to_thread(shadow, "shadow", "set", "split=whole-random", "--state", str(state))
            for _ in range(4):
                answer = await send(client, query)
                assert len(answer.headers["edgewise-servers"].split(",")) == 3
            said = await asyncio.to_thread(shadow, "shadow", "show", "split", "--state", str(state))
            assert re.search(r"decisions +4\b", said) and re.search(r"alike +0\b", said) and VARIANT in said
            assert re.search(r"items: other +[1-9]", said), said
            said = await asyncio.to_thread(shadow, "status", "--state", str(state))
            assert re.search(r"split +nona +whole-random +0 of 4", said), said
            os.kill(pid(state, "gateway"), signal.SIGKILL)
            await send(client, query)
            said = await asyncio.to_thread(shadow, "shadow", "show", "--state", str(state))
            assert re.search(r"decisions +1\b", said), said
            await asyncio.to_thread(shadow, "shadow", "set", "split=", "--state", str(state))
            said = await asyncio.to_thread(shadow, "shadow", "show", "--state", str(state))
            assert "no policy in shadow" in said
            client.close()

    asyncio.run(run())


def pid(folder, kind):
    store = Store(folder / DATABASE)
    (row,) = store.processes(kind)
    store.close()
    return int(row.handle.split(":")[0])


def test_policies_of_ones_own_are_tried_live_beside_shipped_ones(tmp_path):
    """More queries than a stream may send at once, under a shipped policy and one that is a file."""
    model = branching(size=12, width=8)
    small = contract(task_graph(model, "net", power_ops=1e9))
    own = f"{Path(__file__).parents[1] / 'own_split.py'}:Halves"
    setting = TrialSetting(servers=2, rate_qps=50.0, queries=60)
    whole, halves = try_split(model, small, {}, tmp_path, ["whole-random", own], setting)
    assert len(whole.time_s) == len(halves.time_s) == 60
    assert max(whole.difference, halves.difference) < 1e-4
    assert whole.workers.mean() == 1.0 and halves.workers.mean() == 2.0
    assert {
        path.name for path in tmp_path.iterdir() if "own_split" in path.name
    }  # its state is in the folder


def test_real_weights_as_an_ensemble(tmp_path):
    model = real_ensemble()
    if model is None:
        pytest.skip("rapidocr-onnxruntime is not installed")
    shapes = {"large/x": [1, 3, 64, 64], "small/x": [1, 3, 64, 64]}
    small = contract(task_graph(model, "ensemble", shapes))
    (trial,) = try_split(
        model, small, shapes, tmp_path, ["equal"], TrialSetting(servers=2, rate_qps=20.0, queries=8)
    )
    assert trial.difference < 1e-4
    assert trial.workers.tolist() == [2.0] * 8
    assert trial.time_s.min() > 0 and trial.predicted_s > 0


def test_every_operator_alone_is_exact():
    """Not contracted: one sub-model for each operator, one after the other."""
    model = branching(branches=2, size=8, width=4)
    graph = task_graph(model, "net")
    pieces = cut(model, {task.name: (task.name,) for task in graph.tasks})
    query = {"x": np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    known = dict(query)
    for piece in pieces:
        if piece.model is not None:
            known |= whole_answer(piece.model, {name: known[name] for name in piece.inputs})
    np.testing.assert_allclose(known["y"], whole_answer(model, query)["y"], rtol=1e-5)


def test_a_cut_network_is_read_as_it_was_written(tmp_path):
    _, about = written(tmp_path)
    home = tmp_path / f"{VARIANT}.split"
    assert read_split(home) == about
    slower = about.with_seconds({task.name: 2.0 for task in about.graph.tasks})
    assert {task.work_ops for task in slower.graph.tasks} == {2.0 * about.power_ops}


def test_errors_say_what_is_wrong(tmp_path):
    model, about = written(tmp_path)
    home = tmp_path / f"{VARIANT}.split"
    members = [SplitUpstream(http.Client("127.0.0.1", 1), VARIANT) for _ in range(2)]
    with pytest.raises(ScenarioError, match="needs 2 workers or more, got 1"):
        SplitGroup(VARIANT, about, members[:1], ["a"], SplitMetrics(CollectorRegistry()), session())
    with pytest.raises(PolicyError, match="no split policy 'no'"):
        strange = read_split(home).__class__(*(getattr(about, n) for n in about.__slots__[:-1]), policy="no")
        SplitGroup(VARIANT, strange, members, ["a", "b"], SplitMetrics(CollectorRegistry()), session())
    with pytest.raises(ProfileError, match="is in no task"):
        cut(model, {"stem.conv": ("b0.0.conv",)})
    (home / "piece1.onnx").unlink()
    with pytest.raises(ScenarioError, match=r"piece1\.onnx: is missing; cut the network anew"):
        read_split(home)
    (home / "split.json").write_text(json.dumps({"network": "x"}))
    with pytest.raises(ScenarioError, match=r"split\.json: cannot be read"):
        read_split(home)


class Served:
    """A split variant's workers behind real sockets, and how old the queries were that came to them."""

    def __init__(self, folder, about, count):
        home, self.ages = folder / f"{VARIANT}.split", []
        self.lines = [Line() for _ in range(count)]
        self.workers = [
            PieceWorker(
                LiveWorker(OnnxModel(VARIANT, home / "whole.onnx"), line=line), home, about.parts, line
            )
            for line in self.lines
        ]

    async def __aenter__(self):
        self.servers = [await http.serve(self.noting(worker)) for worker in self.workers]
        self.clients = [http.Client(server.host, server.port) for server in self.servers]
        return self

    async def __aexit__(self, *_):
        for client, server, worker in zip(self.clients, self.servers, self.workers, strict=True):
            client.close()
            await worker.drain()
            await server.close(1.0)

    def noting(self, worker):
        async def handle(request):
            if request.method == "POST":
                self.ages.append(request.headers[AGE])
            return await worker.handle(request)

        return handle


def test_a_worker_takes_the_oldest_query_first_whole_or_in_pieces(tmp_path):
    """What came first runs on; a sub-model of an old query goes before the network and other sub-models."""
    _, about = written(tmp_path, size=96, width=48)
    shapes = {name: [1, 48, 96, 96] for name in about.parts[1].inputs}
    shapes["x"] = [1, 3, 96, 96]

    async def go():
        async with Served(tmp_path, about, 1) as served:
            (worker,), (line,), (client,) = served.workers, served.lines, served.clients
            models = {VARIANT: worker.whole.model} | {name: p.model for name, p in worker.pieces.items()}
            ended, asked = [], []

            def send(name, age_s):
                headers, body = encode_request(InferRequest(draw_inputs(models[name], shapes)))

                async def answer():
                    path = f"/v2/models/{name}/infer"
                    got = await client.request("POST", path, headers | {AGE: str(age_s)}, body)
                    assert got.status == 200, got.body
                    ended.append((name, age_s))

                asked.append(asyncio.create_task(answer()))

            first, second = list(worker.pieces)[:2]
            send(VARIANT, 0)
            await becomes(lambda: line.busy)
            for name, age_s in ((first, 0), (VARIANT, 20), (second, 30), (first, 10)):
                send(name, age_s)
            await becomes(lambda: line.queued == 5)
            assert line.busy and not ended
            await asyncio.gather(*asked)
            assert ended == [(VARIANT, 0), (second, 30), (VARIANT, 20), (first, 10), (first, 0)]
            headers, body = encode_request(InferRequest(draw_inputs(models[VARIANT], shapes)))
            bad = await client.request("POST", f"/v2/models/{VARIANT}/infer", headers | {AGE: "soon"}, body)
            assert bad.status == 400 and AGE.encode() in bad.body

    asyncio.run(asyncio.wait_for(go(), 60))


def test_the_gateway_says_how_old_a_query_is(tmp_path):
    """Sub-models later in the network are asked with a larger age; whole queries have one too."""
    model, about = written(tmp_path)
    query = {"x": np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)}

    of, hasty = session(split=60.0), session(split=0.2)  # a busy machine lets who is in no hurry think on

    async def go(about, of=of):
        async with Served(tmp_path, about, 3) as served:
            members = [SplitUpstream(client, VARIANT) for client in served.clients]
            group = SplitGroup(
                VARIANT, about, members, ["a", "b", "c"], SplitMetrics(CollectorRegistry()), of
            )
            headers, body = encode_request(InferRequest(query))
            answer = await members[0].infer(headers | {AGE: "1e9"}, body, 30.0)
            assert answer.status == 200 and group.core.policy.name in (about.policy, *NAMES)
            assert (group.core.guard.fault != "") == (group.core.policy.name in NAMES[1:])
            return [float(age) for age in served.ages]

    pieces = asyncio.run(go(about))
    assert len(pieces) == len([part for part in about.parts if part.name])
    assert 0 <= min(pieces) == pieces[0] < pieces[-1] < 30
    (whole,) = asyncio.run(go(replace(about, policy="whole-random")))
    assert 0 <= whole < 30
    own = Path(__file__).parents[1] / "own_split.py"
    assert len(asyncio.run(go(replace(about, policy=f"{own}:Halves")))) == len(pieces)
    (tmp_path / "broken.py").write_text(BROKEN)
    broken, sleeps = (f"{tmp_path / 'broken.py'}:{name}" for name in ("Broken", "Sleeps"))
    assert len(asyncio.run(go(replace(about, policy=broken)))) == 1  # whole
    assert len(asyncio.run(go(replace(about, policy=sleeps), hasty))) == 1
    (raised,), (late,) = of.faults.drain(), hasty.faults.drain()
    assert (raised.policy, raised.why) == (broken, "ZeroDivisionError: division by zero")
    assert (late.decision, late.policy, late.waited_s, late.instead) == (
        "split", sleeps, 0.2, "the query runs whole where there is least to do",
    )  # fmt: skip


def test_a_worker_that_moves_stays_in_its_group(tmp_path):
    _, about = written(tmp_path)
    members = [SplitUpstream(http.Client("127.0.0.1", port), VARIANT) for port in (1, 2)]
    group = SplitGroup(VARIANT, about, members, ["a", "b"], SplitMetrics(CollectorRegistry()), session())
    fresh = members[1].moved(http.Client("127.0.0.1", 3), VARIANT)
    assert group.members == [members[0], fresh]
    part = next(part for part in about.parts if part.name)
    assert group.ask(1, part).client is fresh.client
