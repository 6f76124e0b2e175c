"""`edgewise check`: capacity, load, who can serve whom, and what nobody can; each planted by hand."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import edgewise as ew
from edgewise import config
from edgewise.limits.balance import Options, balanced
from edgewise.limits.checked import Checked
from edgewise.limits.requests import requests_of
from edgewise.model.parsing import parse_scenario
from edgewise.workloads.services import PROFILED, simulated_services
from in_process import edgewise
from limits_worlds import FEW_WORKERS, FULL_BOXES, FULL_LINK, NO_TIME, NO_VARIANT, scenario, world, written


def test_the_load_of_a_link_is_what_all_its_streams_send():
    """12 streams of 2 Mbit/s on average in 20 Mbit/s, in the mean of five runs' busiest step."""
    found = Checked(scenario(**FULL_LINK))
    link = next(line for line in found.lines() if line.name == "wan:up")
    assert link.has == "20 Mbit/s" and 1.2 <= link.load < 1.8
    first = found.limits[0]
    assert (first.kind, first.name) == ("link", "wan:up") and first.share == pytest.approx(link.load)
    assert first.text.startswith("the link wan (up) is full: ") and "of 20 Mbit/s from second" in first.text
    (path, bps), *_ = first.cures[0].changes
    assert path == "links.wan.bandwidth_bps" and bps >= first.share * 20e6


def test_full_boxes_and_workers_that_are_too_few_are_told_apart():
    boxes, workers = (Checked(scenario(**given)).limits[0] for given in (FULL_BOXES, FEW_WORKERS))
    assert (boxes.kind, boxes.name) == ("node", "box")
    assert "box has no room for another (0 of 2 cores free, it takes 2)" in boxes.text
    assert "2 more nodes like box" in boxes.cures[0].text
    assert (workers.kind, workers.name) == ("worker", "small-cpu at box")
    assert "there is room for 3 more" in workers.text
    assert workers.cures[0].changes == (("workers.0.count", 3),)
    assert 1.5 <= boxes.share == workers.share < 2.2  # 60 queries/s of 40


def test_what_no_variant_and_what_no_deadline_allows_is_named():
    variant, deadline = (Checked(scenario(**given)) for given in (NO_VARIANT, NO_TIME))
    assert not variant.servable and not deadline.servable
    (limit,) = variant.unserved
    assert (limit.kind, limit.name, limit.lost) == ("variant", "camera", 1.0)
    assert "wants an accuracy of 60, the best worker has 50" in limit.text
    assert limit.cures[-1].changes == (("streams.applications.camera.min_accuracy", 50.0),)
    (limit,) = deadline.unserved
    # 2 (1 + 20) ms of way, 8 x 50 kB / 100 Mbit/s = 4 ms of payload, 10 ms of work.
    assert (limit.kind, limit.name, limit.lost) == ("deadline", "camera", 1.0)
    assert limit.share == pytest.approx(56 / 40)
    assert (
        "no worker can keep camera's deadline of 40 ms" in limit.text
        and "takes 56 ms, 16 ms too long" in limit.text
    )
    assert limit.cures[-1].changes[0][0] == "streams.applications.camera.deadline_s"


def test_of_a_range_of_deadlines_the_part_that_nobody_keeps_counts():
    found = Checked(scenario(**NO_TIME | {"deadline": ["50ms", "74ms"]}))
    assert found.servable
    (limit,) = found.unserved
    assert limit.lost == pytest.approx(6 / 24)
    (serving,) = found.serving()
    assert serving.by == () and serving.at_times == (("large-gpu at cloud", pytest.approx(0.056)),)


def test_no_node_has_room_for_a_job_or_a_task():
    data = world(box_cores=4)
    data["clusters"][0]["nodes"][0]["speed_ops"] = 1e9
    data |= {"pipelines": [{"name": "p", "source": "box", "input_bytes": 1, "length_s": 1,
        "tasks": [{"name": "t", "memory_bytes": "100GB", "work_ops": 1, "output_bytes": 1}]}]}  # fmt: skip
    found = Checked(parse_scenario(data, "planted"))
    assert not found.servable
    assert "no node has room for task t of p" in found.unserved[0].text


def test_the_memory_that_pipelines_hold_at_once_counts():
    """6 GB from 0 to 20 s and 4 GB from 10 to 30 s, of 8: full from 10 s on."""
    data = world(box_cores=4)
    data["clusters"][0]["nodes"][0]["speed_ops"] = 1e9
    data["clusters"][0]["nodes"][0]["resources"]["memory_bytes"] = "8GB"
    data["pipelines"] = [
        {"name": name, "source": "box", "input_bytes": 1, "length_s": 20, "arrive_s": arrive_s,
         "tasks": [{"name": "t", "memory_bytes": memory, "work_ops": 1, "output_bytes": 1}]}
        for name, arrive_s, memory in (("p", 0, "6GB"), ("q", 10, "4GB"))
    ]  # fmt: skip
    found = Checked(parse_scenario(data, "planted"))
    (limit,) = (each for each in found.limits if each.text.startswith("pipelines hold"))
    free = found.rooms["box"].free[1]
    assert limit.share == pytest.approx(10e9 / free) and limit.when_s == 10.0
    # Over 10 of the 30 s, in which 100 of 200 GB s are held, there is too little for a part of them.
    assert limit.lost == pytest.approx((1.0 - free / 10e9) / 2.0)


def test_the_load_of_requests_of_a_pattern_is_what_is_drawn():
    """Each core-second and each byte of a drawn run is asked for, of its service, at its site and time."""
    scenario = ew.load_scenario("scarce")
    given, asked = simulated_services(scenario), requests_of(scenario)
    seen, step_s = given.draw([PROFILED]), scenario.duration_s / asked.demand.shape[2]
    many = int(seen.count[0])
    assert asked.demand.sum() * step_s == pytest.approx(many) and many > 100
    core_s = np.einsum("ksn,s->", asked.demand, asked.core_s) * step_s
    assert core_s == pytest.approx(seen.work_core_s[0, :many].sum())
    size = np.einsum("ksn,s->", asked.demand, asked.payload_bytes) * step_s
    assert size == pytest.approx(seen.payload_bytes[0, :many].sum())
    first = seen.arrival_s[0, :many] < step_s
    assert asked.demand[:, :, 0].sum() * step_s == pytest.approx(first.sum())
    at = (seen.site[0, :many] == 2) & (seen.service[0, :many] == 0)
    assert asked.demand[2, 0].sum() * step_s == pytest.approx(at.sum())
    loads = [line.load for line in Checked(scenario).lines() if line.kind == "node"]
    assert max(each for each in loads if each is not None) > 0.3


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_no_sharing_out_beats_the_least_load(needs, resources, seed):
    """Against random divisions, which all load something more; and its prices bound other demands."""
    random = np.random.default_rng(seed)
    count = needs * resources
    need, resource = np.repeat(np.arange(needs), resources), np.tile(np.arange(resources), needs)
    amount, capacity = random.uniform(0.1, 2.0, count), random.uniform(1.0, 9.0, resources)
    options = Options(need, resource, np.arange(count), amount, capacity)
    demand = random.uniform(0.0, 3.0, (needs, 2))
    found = balanced(options, demand[:, 0])
    bound = found.bound(options, demand)
    assert bound[0] == pytest.approx(found.share.max(), rel=1e-5)
    for _ in range(50):
        part = random.dirichlet(np.full(resources, 0.3), needs).ravel()
        for k in (0, 1):
            load = np.bincount(resource, part * demand[need, k] * amount) / capacity
            assert load.max() >= bound[k] - 1e-9


def test_the_command_says_it_in_words_and_json(tmp_path):
    file = written(tmp_path, **NO_VARIANT)
    done = edgewise("check", file, cwd=tmp_path)
    assert done.returncode == 1 and "no variant can serve camera" in done.stdout
    done = edgewise(
        "check", file, "--set", "streams.applications.camera.min_accuracy=40", "--json", cwd=tmp_path
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["servable"] and not found["unserved"]
    assert found["serving"][0]["by"] == [["large-gpu at cloud", pytest.approx(0.056)]]
    kinds = {line["kind"] for line in found["capacity"]}
    assert kinds == {"node", "worker", "link"} and found["policies"] == {"dispatch": "least-harm"}


@pytest.mark.parametrize("name", config.shipped_scenarios())
def test_shipped_scenarios_can_be_checked(name):
    found = Checked(ew.load_scenario(name))
    assert found.servable
    for line in found.lines():
        assert 0.0 <= line.held <= 1.0 + 1e-9 and (line.load is None or line.load >= 0.0)
