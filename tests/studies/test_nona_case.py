"""The reproduction of Nona: what stood among its claims and could not fail."""

import pytest

from edgewise.policies.split import optimise
from edgewise_studies.papers.nona import SETTING, program_of


@pytest.mark.parametrize("gap", [1e-2, 1e-4])
@pytest.mark.parametrize("workload", SETTING["workloads"])
def test_every_workload_is_solved_to_the_gap_that_is_asked_for(workload, gap):
    program = program_of(workload, 0.5)
    plan, best = optimise(program, gap=gap), optimise(program, gap=1e-6)
    assert 0.0 <= plan.gap <= gap * (1 + 1e-6)
    assert best.forecast.mean_s <= plan.forecast.mean_s <= best.forecast.mean_s * (1 + gap) + 1e-9
