"""Networks split over live workers answer what the whole network answers."""

import asyncio

import numpy as np
import onnxruntime
import pytest
from split_models import branching, real_ensemble

from edgewise.errors import EdgewiseError, ProfileError
from edgewise.policies.split import JobClass, Rule, build_program, contract, optimise, split_policy
from edgewise.policies.split.online import RateTracker
from edgewise.profiling.cut import cut
from edgewise.profiling.dags import measure, task_graph
from edgewise.runtime import http
from edgewise.runtime.split import SplitService, load_pieces, serve_pieces, with_seconds

pytestmark = pytest.mark.live
POWER = 1e9


def whole_answer(model, inputs):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def prepared(model, shapes, servers=3, link_bps=1e10):
    """Contracted graph with measured costs, program, sub-models."""
    seconds = measure(model, shapes, runs=3)
    small = contract(task_graph(model, "net", shapes, seconds, POWER))
    return build_program([JobClass(small.graph, 1.0)], servers, POWER, link_bps), cut(
        model, small.members, shapes
    )


def answers(model, program, pieces, queries, folder, name="nona"):
    """Queries in turn through a service in front of as many servers as the program has."""

    async def run():
        servers = [await serve_pieces(load_pieces(model, pieces, folder)) for _ in range(program.servers)]
        clients = [http.Client(server.host, server.port) for server in servers]
        policy = split_policy(name, program, Rule.LEAST_LOADED)
        service = SplitService(program, policy, pieces, clients, [o.name for o in model.graph.output], seed=3)
        found = [await service.infer(query) for query in queries]
        assert service.ledger.tasks.tolist() == [0] * program.servers
        for client in clients:
            client.close()
        for server in servers:
            await server.close(0.1)
        return found, policy

    return asyncio.run(run())


def check(model, shapes, tmp_path, rng):
    program, pieces = prepared(model, shapes)
    assert optimise(program).forecast.load > 0  # the plan splits
    queries = [
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(4)
    ]
    found, policy = answers(model, program, pieces, queries, tmp_path)
    for query, answer in zip(queries, found, strict=True):
        for name, expected in whole_answer(model, query).items():
            np.testing.assert_allclose(answer.outputs[name], expected, rtol=1e-4, atol=1e-5)
        assert len(set(answer.servers.values())) > 1
    assert policy.plan is not None and policy.plan.forecast.mean_s > 0
    return found, policy.plan.forecast.mean_s


def test_branches_run_on_different_workers_and_agree_with_the_whole(tmp_path):
    model = branching()
    found, predicted_s = check(model, {"x": [1, 3, 24, 24]}, tmp_path, np.random.default_rng(1))
    assert all(answer.sent_bytes > 0 for answer in found)
    print(f"predicted {1e3 * predicted_s:.2f} ms, measured {[round(1e3 * a.time_s, 2) for a in found]}")


def test_real_weights_as_an_ensemble(tmp_path):
    model = real_ensemble()
    if model is None:
        pytest.skip("rapidocr-onnxruntime is not installed")
    shapes = {"large/x": [1, 3, 128, 128], "small/x": [1, 3, 96, 96]}
    found, predicted_s = check(model, shapes, tmp_path, np.random.default_rng(2))
    print(f"predicted {1e3 * predicted_s:.2f} ms, measured {[round(1e3 * a.time_s, 2) for a in found]}")


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


def test_measured_costs_and_a_policy_that_follows_the_rate(tmp_path):
    """Costs measured through the workers give the forecast; the tracker hears of every query."""
    model = branching()
    program, pieces = prepared(model, {"x": [1, 3, 24, 24]})
    query = {"x": np.random.default_rng(5).normal(size=(1, 3, 24, 24)).astype(np.float32)}

    async def run():
        servers = [await serve_pieces(load_pieces(model, pieces, tmp_path)) for _ in range(3)]
        clients = [http.Client(server.host, server.port) for server in servers]
        service = SplitService(program, split_policy("nona", program), pieces, clients, ["y"])
        seconds = await service.calibrate(query, runs=3)
        graph = with_seconds(program.classes[0].graph, seconds, POWER)
        live = build_program([JobClass(graph, 1.0)], 3, POWER, 1e10)
        service = SplitService(
            live, split_policy("nona", live), pieces, clients, ["y"],
            tracker=RateTracker(live, queues=False, memory_s=0.05),
        )  # fmt: skip
        found = [await service.infer(query) for _ in range(8)]
        for client in clients:
            client.close()
        for server in servers:
            await server.close(0.1)
        return seconds, found, service

    seconds, found, service = asyncio.run(run())
    assert set(seconds) == {piece.task for piece in pieces if piece.model is not None}
    assert service.tracker.solved > 1  # eight queries in a row are more than one a second
    assert service.policy is service.tracker.policy
    for answer in found:
        np.testing.assert_allclose(answer.outputs["y"], whole_answer(model, query)["y"], rtol=1e-4, atol=1e-5)
    predicted_s = optimise(build_program(service.program.classes, 3, POWER, 1e10)).forecast.mean_s
    print(f"predicted {1e3 * predicted_s:.2f} ms, measured {[round(1e3 * a.time_s, 2) for a in found]}")


def test_whole_queries_stay_whole(tmp_path):
    model = branching(branches=2, size=8, width=4)
    program, pieces = prepared(model, {"x": [1, 3, 8, 8]}, servers=2)
    query = {"x": np.ones((1, 3, 8, 8), np.float32)}
    (answer,), _ = answers(model, program, pieces, [query], tmp_path, "whole-least-loaded")
    assert answer.sent_bytes == 0 and len(set(answer.servers.values())) == 1
    np.testing.assert_allclose(answer.outputs["y"], whole_answer(model, query)["y"], rtol=1e-5)


def test_errors_say_what_is_wrong(tmp_path):
    model = branching(branches=2, size=8, width=4)
    program, pieces = prepared(model, {"x": [1, 3, 8, 8]}, servers=2)
    with pytest.raises(EdgewiseError, match="x"):
        answers(
            model, program, pieces, [{"x": np.ones((1, 3, 9, 8), np.float64)}], tmp_path, "whole-least-loaded"
        )
    with pytest.raises(EdgewiseError, match="2 clients"):
        SplitService(program, split_policy("nona", program), pieces, [], ["y"])
    some = {task.task: (task.task,) for task in pieces[1:2]}
    with pytest.raises(ProfileError, match="is in no task"):
        cut(model, some)
