"""The reproduction of Nona: what stood among its claims and could not fail, and its public instance."""

import itertools

import numpy as np
import pytest

from edgewise.core.split import Ledger, SplitView
from edgewise.policies.split import optimise
from edgewise_studies.papers import nona_fleet as fleet
from edgewise_studies.papers.nona import SETTING, program_of


@pytest.mark.parametrize("gap", [1e-2, 1e-4])
@pytest.mark.parametrize("workload", SETTING["workloads"])
def test_every_workload_is_solved_to_the_gap_that_is_asked_for(workload, gap):
    program = program_of(workload, 0.5)
    plan, best = optimise(program, gap=gap), optimise(program, gap=1e-6)
    assert 0.0 <= plan.gap <= gap * (1 + 1e-6)
    assert best.forecast.mean_s <= plan.forecast.mean_s <= best.forecast.mean_s * (1 + gap) + 1e-9


def test_memory_makes_the_pipeline_as_slow_as_was_reported():
    assert 1e3 * fleet.slowest_stage_s(fleet.BY_CAPACITY) == pytest.approx(34.88, abs=0.01)


def test_no_other_pipeline_within_the_memory_has_a_faster_slowest_stage():
    gbps, most = list(fleet.BANDWIDTH_GBPS.values()), list(fleet.MEMORY_GB.values())
    best = fleet.slowest_stage_s(fleet.by_bandwidth())
    room = [min(int((best - 1e-12) * each), memory) for each, memory in zip(gbps, most, strict=True)]
    assert sum(fleet.by_bandwidth()) == fleet.LAYERS and sum(room) < fleet.LAYERS


@pytest.mark.parametrize("cuts", [(), range(1, fleet.LAYERS)])
def test_a_query_is_cut_where_it_ends_first_and_no_machine_needs_more_memory_than_it_has(cuts):
    policy, memory = fleet.CutOnce(cuts), np.array(list(fleet.MEMORY_GB.values()))
    speed = np.array(list(fleet.BANDWIDTH_GBPS.values()))
    for wait_s in np.random.default_rng(1).exponential(0.05, (50, 5)):
        placed = policy.decide(SplitView(0, 0, Ledger(wait_s, np.zeros(5, int), speed), np.ones(5, bool)))
        ends = {}
        for cut in (*cuts, fleet.LAYERS):
            for a, b in itertools.product(range(5), repeat=2):
                layers = np.bincount([a] * cut + [b] * (fleet.LAYERS - cut), minlength=5)
                if (
                    (cut < fleet.LAYERS) == (a != b)
                    and memory[b] >= fleet.LAYERS
                    and (layers <= memory).all()
                ):
                    there = wait_s[a] + cut / speed[a] + (fleet.MESSAGE_BYTES * 8 / fleet.LINK_BPS) * (a != b)
                    ends[cut, a, b] = max(there, wait_s[b]) + (fleet.LAYERS - cut) / speed[b]
        cut, a, b = min(ends, key=ends.get)
        assert placed.tolist() == [a] * cut + [b] * (fleet.LAYERS - cut)
