"""Frames one by one: what leaves a job agrees with the analytic throughput, under every policy."""

import pytest

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.place import arrays_of, throughput
from edgewise.sim.parts.frames import simulate_frames
from streaming_example import (
    edge_network,
    example_job,
    example_network,
    place_by_hand,
    sharing,
    small_case,
    streaming_jobs,
    view_of,
)

WITHIN = 0.02
SPREAD = 50.0  # the fastest job does at most so many frames while the slowest does one


@pytest.mark.parametrize(
    ("width", "fps"), [((5.0, 5.0), 2.5), ((10 / 3, 20 / 3), 10 / 3), ((6.0, 10.0), 4.0)]
)
def test_the_worked_example_frame_by_frame(width, fps):
    network = example_network()
    ways = {"b": ["e4", "e3", "e1"] if width[0] == 6.0 else ["e4", "e2", "e1"], "c": ["e4", "e2", "e1"]}
    flows = {name: (ways[name], w) for name, w in zip("bc", width, strict=True)}
    placed = place_by_hand(network, example_job(), {"a": "e4", "b": "e1", "c": "e1"}, flows)
    assert throughput(network, [placed]) == pytest.approx([fps])
    assert simulate_frames(network, [placed]) == pytest.approx([fps], rel=1e-6)


@pytest.mark.parametrize("name", policies.names("place"))
@pytest.mark.parametrize("kind", ["random", "recognition"])
def test_frames_leave_at_the_analytic_rate_within_two_percent(name, kind):
    compared = 0
    for seed in range(6):
        if kind == "random":
            network, jobs = small_case(seed, 14, 8)
        else:
            network = edge_network(seed, 20)
            jobs = [arrays_of(j, i, network) for i, j in enumerate(streaming_jobs(seed, network, 6))]
        policy = policies.load("place", name)
        policy.reset(network, Key(seed))
        placed = list(policy.decide(view_of(network, jobs)))
        expected = throughput(network, placed)
        measured = simulate_frames(network, placed)
        assert measured == pytest.approx(expected, rel=WITHIN)
        compared += len(placed)
    assert compared >= 6 or (name in ("lr", "br"))


def test_a_slow_flow_stops_the_tasks_before_it():
    network = example_network()
    flows = {"b": (["e4", "e2", "e1"], 0.1), "c": (["e4", "e2", "e1"], 9.0)}
    placed = place_by_hand(network, example_job(), {"a": "e4", "b": "e1", "c": "e1"}, flows)
    assert simulate_frames(network, [placed], frames=20) == pytest.approx([0.1], rel=1e-6)


def test_one_and_two_jobs_that_share_a_node():
    network = example_network()
    wide = {"a": (["e4", "e2", "e1"], 1000.0)}
    placed = place_by_hand(network, example_job(), {"a": "e1", "b": "e1", "c": "e1"}, wide)
    for jobs in (1, 2):
        rates = simulate_frames(sharing(network), [placed] * jobs)
        assert rates == pytest.approx([200 / jobs / 55] * jobs, rel=WITHIN)


@pytest.mark.parametrize("name", ["tp", "otfs", "otfa", "joint"])
@pytest.mark.parametrize("kind", ["random", "recognition"])
def test_frames_leave_shared_nodes_at_the_fair_rate_within_two_percent(name, kind):
    held_up = 0
    for seed in range(2):
        if kind == "random":
            network, jobs = small_case(seed, 14, 8)
        else:
            network = edge_network(seed, 20, 20e6)
            jobs = [arrays_of(j, i, network) for i, j in enumerate(streaming_jobs(seed, network, 6))]
        policy = policies.load("place", name)
        policy.reset(network, Key(seed))
        placed = list(policy.decide(view_of(network, jobs)))
        alone = throughput(network, placed)
        placed = [p for p, fps in zip(placed, alone, strict=True) if fps > alone.max() / SPREAD]
        fair = throughput(sharing(network), placed)
        held_up += int((fair < 0.98 * throughput(network, placed)).sum())
        assert simulate_frames(sharing(network), placed, 100) == pytest.approx(fair, rel=WITHIN)
    assert held_up >= 2  # nodes were shared in earnest


def test_what_cannot_be_measured_is_refused():
    network = example_network()
    flows = {"b": (["e4", "e2", "e1"], 0.0), "c": (["e4", "e2", "e1"], 9.0)}
    placed = place_by_hand(network, example_job(), {"a": "e4", "b": "e1", "c": "e1"}, flows)
    with pytest.raises(ValueError, match="edge 1 has data and no bandwidth"):
        simulate_frames(network, [placed])
    with pytest.raises(ValueError, match="frames is 7"):
        simulate_frames(network, [], frames=7)
    assert simulate_frames(network, []).size == 0 == simulate_frames(sharing(network), []).size
