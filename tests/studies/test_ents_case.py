"""The reproduction of ENTS: its small cases, its second reading of OTFS, and its setting."""

import json

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.place import arrays_of, throughput
from edgewise.policies.place.baselines import Otfs
from edgewise_studies.papers.ents import (
    AT_ONCE,
    LEAST_FPS,
    FigurePoint,
    against,
    make,
    median_more,
    outcomes_of,
    setting,
    small_case,
    world,
)
from edgewise_studies.run import find
from streaming_example import edge_network, streaming_jobs, view_of


def test_joint_is_near_the_optimum_of_small_cases_and_otfa_is_never_beyond():
    cases = [small_case(seed) for seed in range(8)]
    assert all(case.solved for case in cases)
    assert np.mean([case.joint for case in cases]) >= 0.95
    assert all(max(case.joint, case.otfa) <= 1 + 1e-4 for case in cases)


def test_otfs_at_once_starts_what_otfs_lets_wait():
    network = edge_network(3, 20)
    jobs = [arrays_of(job, i, network) for i, job in enumerate(streaming_jobs(3, network, 14))]
    started = {}
    for wait in (True, False):
        policy = Otfs(wait=wait)
        policy.reset(network, Key(0))
        started[wait] = policy.decide(view_of(network, jobs))
    assert len(started[True]) < len(started[False])
    assert (throughput(network, started[True]) > 0).all()
    assert (throughput(network, started[False]) == 0).any()  # they run, and nothing is left for them
    assert isinstance(make(AT_ONCE), Otfs) and not make(AT_ONCE).wait


def test_a_point_is_the_same_every_time_and_the_setting_is_json():
    point = FigurePoint(20, 1, 8)
    (first, again) = (outcomes_of(point, 7, ["otfa"]) for _ in range(2))
    assert first == again
    assert first["otfa"].fps == pytest.approx(first["otfa"].overall_fps, rel=0.5)
    assert {"constants", "points", "generated"} == set(json.loads(setting()))


def test_otfa_lets_nothing_wait_that_fits():
    """It takes bandwidth from what runs, so a pipeline only waits for memory, of which there is enough."""
    point = FigurePoint(30, 1, 20)
    found = outcomes_of(point, 0, ("otfa", "otfs"))
    assert found["otfa"].waiting_s == 0.0 < found["otfs"].waiting_s


def test_as_live_tasks_share_cores_and_flows_leave_a_part_of_links():
    point = FigurePoint(20, 1, 12)
    alone, live = (outcomes_of(each, 1, ["otfa"])["otfa"] for each in (point, point._replace(live=True)))
    assert world(point, 1)[0].cores is None and world(point._replace(live=True), 1)[0].cores.min() >= 1
    assert 0 < live.fps < alone.fps


def test_claims_say_in_which_world_they_are_measured():
    what = find("ents")
    assert {what.setting_of(id) for id in what.claims if id.startswith("live-")} == {"as live"}
    assert {what.setting_of(id) for id in what.claims if not id.startswith("live-")} == {"published"}
    assert {id for id in what.claims if what.method(id) == "edgewise"} == {
        id for id in what.claims if "joint" in id
    }


def measured_by_hand(fps, medians):
    fields = {"fps": fps, "median_fps": medians, "waiting_s": fps, "unserved": fps}
    return {name: {each: np.array(v) for each, v in of.items()} for name, of in fields.items()}


def test_medians_are_compared_by_their_difference_and_a_mean_of_nothing_gives_a_ratio():
    outcomes = measured_by_hand(
        {"otfa": [1.0, 2.0], "lr": [0.0, 0.0]}, {"otfa": [0.5, 0.7], "lr": [0.1, 0.2]}
    )
    assert median_more(outcomes, "otfa", "lr").estimate == pytest.approx(0.45)
    found = against(outcomes, "otfa", "lr")
    assert found.estimate == pytest.approx(np.sqrt(1.0 * 2.0) / LEAST_FPS - 1)
