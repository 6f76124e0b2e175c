"""Frames on nodes that tasks share: what leaves a job agrees with the judge's fair shares."""

import numpy as np
import pytest
from streaming_example import (
    edge_network,
    example_job,
    example_network,
    place_by_hand,
    small_case,
    streaming_jobs,
    view_of,
)

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.placement import arrays_of, throughput
from edgewise.sim.stations.shared_frames import simulate_shared

WITHIN = 0.02
SPREAD = 50.0  # the fastest job does at most so many frames while the slowest does one


def test_one_and_two_jobs_on_one_node():
    network = example_network()
    wide = {"a": (["e4", "e2", "e1"], 1000.0)}
    placed = place_by_hand(network, example_job(), {"a": "e1", "b": "e1", "c": "e1"}, wide)
    assert simulate_shared(network, [placed]) == pytest.approx([200 / 55], rel=WITHIN)
    assert simulate_shared(network, [placed, placed]) == pytest.approx([100 / 55] * 2, rel=WITHIN)


@pytest.mark.parametrize("name", ["tp", "otfs", "otfa", "joint"])
@pytest.mark.parametrize("kind", ["random", "recognition"])
def test_frames_leave_at_the_fair_rate_within_two_percent(name, kind):
    held_up = 0
    for seed in range(2):
        if kind == "random":
            network, jobs = small_case(seed, 14, 8)
        else:
            network = edge_network(seed, 20, 20e6)
            jobs = [arrays_of(j, i, network) for i, j in enumerate(streaming_jobs(seed, network, 6))]
        policy = policies.load("place", name)
        policy.reset(network, Key(seed))
        placed = list(policy.place(view_of(network, jobs)))
        alone = throughput(network, placed)
        placed = [p for p, fps in zip(placed, alone, strict=True) if fps > alone.max() / SPREAD]
        fair = throughput(network, placed, share_cpu=True)
        held_up += int((fair < 0.98 * throughput(network, placed)).sum())
        assert simulate_shared(network, placed, 100) == pytest.approx(fair, rel=WITHIN)
    assert held_up >= 2  # nodes were shared in earnest


def test_what_cannot_be_measured_is_refused():
    network = example_network()
    flows = {"b": (["e4", "e2", "e1"], 0.0), "c": (["e4", "e2", "e1"], 9.0)}
    placed = place_by_hand(network, example_job(), {"a": "e4", "b": "e1", "c": "e1"}, flows)
    with pytest.raises(ValueError, match="has data and no bandwidth"):
        simulate_shared(network, [placed])
    with pytest.raises(ValueError, match="frames is 7"):
        simulate_shared(network, [], frames=7)
    assert np.array_equal(simulate_shared(network, []), np.zeros(0))
