"""The reproduction of ENTS: its small cases, its second reading of OTFS, and its setting."""

import json

import numpy as np
import pytest

from edgewise.core.keyed import Key
from edgewise.core.place import arrays_of, throughput
from edgewise.policies.place.baselines import Otfs
from edgewise_studies.papers.ents import AT_ONCE, FigurePoint, make, outcomes_of, setting, small_case
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
