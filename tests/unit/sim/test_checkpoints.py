"""Checkpoints that have a size: over the links of all, they count once they are there, and are fetched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgewise.core.pulls import Pulls
from edgewise.errors import ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.model.topology import Resources
from edgewise.model.work import DeferrableJob
from edgewise.run import assigning
from edgewise.sim.parts.checkpoints import Checkpoints, SavingWay
from joint_scenarios import run_of

NODE = {"cpu_cores": 2, "memory_bytes": "4GB"}
WAN_BPS, KEPT = 10e6, 0.1
TWO_S = 2.0 * WAN_BPS * (1.0 - KEPT) / 8.0  # bytes that take two seconds alone


def data(
    jobs: list[dict[str, Any]],
    timeline: Sequence[tuple[float, str, bool]] = (),
    **more: Any,
) -> dict[str, Any]:
    """Two nodes, a cloud that keeps checkpoints, and a service that hardly anybody asks for."""
    variant = {"name": "served", "model": "small", "resources": {"cpu_cores": 1, "memory_bytes": "500MB"},
               "profile": {"fixed_s": "50ms"}, "largest_bytes": "20kB"}  # fmt: skip
    listed = [{"name": f"job-{i}", "cores": 2, "duration_s": 20, "latest_s": 30, "checkpoint_s": 5} | job
              for i, job in enumerate(jobs)]  # fmt: skip
    return {
        "name": "kept", "duration_s": 60, "sharing": "fifo", "reservations": {"kept": KEPT},
        "telemetry": {"period_s": 1, "lag_s": 0},
        "catalog": {"models": [{"name": "small", "task": "detection", "accuracy": 30}],
                    "variants": [variant]},
        "clusters": [
            {"name": "near", "tier": 0, "nodes": [{"name": "near", "count": 2, "resources": NODE}]},
            {"name": "cloud", "tier": 1,
             "nodes": [{"name": "cloud", "resources": {"cpu_cores": 1, "memory_bytes": "4GB"}}]},
        ],
        "sites": [{"name": "site", "cluster": "near", "uplink_bps": "1Gbps"}],
        "links": [
            {"site": "site", "cluster": "near", "over": "lan"},
            {"site": "site", "cluster": "cloud", "over": "wan"},
            {"name": "lan", "bandwidth_bps": "1Gbps"}, {"name": "wan", "bandwidth_bps": WAN_BPS},
        ],
        "workers": [{"variant": "served", "cluster": "cloud"}],
        "policies": {"orchestrate": "none", "defer": "fifo"},
        "services": {"cloud": "cloud", "cores_held": "life", "frame_s": 10,
                     "offered": [{"variant": "served", "deadline_s": 1, "initial": 0}],
                     "requests": {"rate_qps": 0.01, "service_s": "50ms", "slack": 5}},
        "jobs": {"slot_s": 5, "submitted": listed},
        "timeline": [{"at_s": at_s, "node": node, "up": up} for at_s, node, up in timeline],
    } | more  # fmt: skip


def ended(made: dict[str, Any]) -> list[tuple[float, float]]:
    """When each job was done, and what it did in vain."""
    return [(row["ended_s"], row["redone_s"]) for row in run_of(made, check=True)[1]["jobs"]]


FAILS = [(11.0, "near-0", False)]  # of which a job on that node hears at once, to start anew at 15 s


def test_a_checkpoint_counts_once_it_is_there_and_is_fetched_by_who_goes_on_elsewhere() -> None:
    """Written after 5 s and 10 s of work, there 2 s later; the second one was under way at 11 s."""
    weightless = ended(data([{}], FAILS))
    assert weightless == [pytest.approx((15.0 + 10.0, 1.0))]
    assert ended(data([{"checkpoint_bytes": TWO_S}], FAILS)) == [pytest.approx((15.0 + 2.0 + 15.0, 6.0))]


def test_checkpoints_of_two_jobs_share_the_links() -> None:
    """Both are there 4 s after they were written; the third ones, at 15 s, too late for who fails at 18 s."""
    made = data([{"checkpoint_bytes": TWO_S}] * 2, [(18.0, "near-0", False), (20.0, "near-0", True)])
    found = ended(made)
    failed = max(found, key=lambda row: row[1])
    other = min(found, key=lambda row: row[1])
    assert other == pytest.approx((20.0, 0.0))
    # Fetched from 20 s on, alone, and 10 s of work are left.
    assert failed == pytest.approx((20.0 + 2.0 + 10.0, 8.0))


def test_links_carry_checkpoints_there_and_back() -> None:
    run, _ = run_of(data([{"checkpoint_bytes": TWO_S}], FAILS), check=True)
    links, bits = run.use()["links"], {"wan:up": 0.0, "wan:down": 0.0}
    for name, start_s, end_s, bps in zip(
        links["link"], links["start_s"], links["end_s"], links["reserved_bps"], strict=True
    ):
        if name in bits:
            bits[name] += bps * (end_s - start_s)
    # There: one whole, half of the next one, then those of 10 s and 15 s of work. Back: one.
    assert bits["wan:up"] == pytest.approx(8 * TWO_S * 3.5, rel=0.05)
    assert bits["wan:down"] == pytest.approx(8 * TWO_S, rel=0.05)


def test_without_shared_links_they_weigh_nothing_and_that_is_said() -> None:
    made = data([{"checkpoint_bytes": TWO_S}], FAILS, sharing="none")
    scenario = parse_scenario(made, "alone")
    assert ended(made) == ended(data([{}], FAILS, sharing="none"))
    notes = assigning.notes(scenario, "services", "edgewise simulate")
    assert any("here they weigh nothing" in note for note in notes)
    shared = parse_scenario(data([{"checkpoint_bytes": TWO_S}]), "shared")
    assert not any("weigh" in note for note in assigning.notes(shared, "services", "edgewise simulate"))


def test_a_size_of_no_checkpoint_is_an_error() -> None:
    with pytest.raises(ScenarioError, match=r"checkpoint_bytes: 5 is of no checkpoint; add checkpoint_s"):
        parse_scenario(data([{"checkpoint_bytes": 5, "checkpoint_s": None}]), "wrong")


def test_what_stands_still_sends_nothing_and_sends_it_anew_when_it_goes_on() -> None:
    job = DeferrableJob(0, Resources(1.0), 20.0, 0.0, 0.0, 1.0, checkpoint_s=5.0, checkpoint_bytes=10.0)
    pulls = Pulls(np.array([40.0, 40.0]), 0.0, lambda now_s, bps: None)
    ways = {"near": SavingWay((0, np.array([0])), (1, np.array([1])))}
    kept, lengths = Checkpoints([job], pulls, ways), np.array([20.0])
    kept.runs(0, "near", 0.0, 0.0, 20.0)
    assert kept.next_s() == 5.0
    kept.write(5.0, ["near"], lengths)
    assert kept.next_s() == 10.0 and pulls.next_s() == 7.0 and pulls.reserved_bps.tolist() == [40.0, 0.0]
    kept.stops(0, 6.0)
    assert kept.next_s() == pulls.next_s() == np.inf and pulls.reserved_bps.tolist() == [0.0, 0.0]
    kept.runs(0, "near", 100.0, 6.0, 20.0)
    assert kept.next_s() == 104.0 and pulls.next_s() == 102.0 and kept.saved_s[0] == 0.0
    pulls.end(102.0)
    assert kept.saved_s[0] == 5.0
    kept.write(104.0, ["near"], lengths)
    kept.ends(0, 105.0)
    assert kept.saved_s[0] == 5.0 and not pulls.pulls


def test_one_that_is_due_while_another_is_on_its_way_is_left_out_and_none_is_written_at_the_end() -> None:
    job = DeferrableJob(0, Resources(1.0), 20.0, 0.0, 0.0, 1.0, checkpoint_s=5.0, checkpoint_bytes=40.0)
    pulls = Pulls(np.array([40.0]), 0.0, lambda now_s, bps: None)
    kept, lengths = (
        Checkpoints([job], pulls, {"near": SavingWay((0, np.array([0])), (0, np.array([0])))}),
        np.array([20.0]),
    )
    kept.runs(0, "near", 0.0, 0.0, 20.0)
    for at_s in (5.0, 10.0):
        kept.write(at_s, ["near"], lengths)
    assert pulls.next_s() == 13.0 and len(pulls.pulls) == 1
    pulls.end(13.0)
    kept.write(15.0, ["near"], lengths)
    assert kept.saved_s[0] == 5.0 and kept.next_s() == np.inf
    pulls.end(23.0)
    assert kept.saved_s[0] == 15.0


def test_on_a_node_of_the_cloud_it_is_there_at_once() -> None:
    job = DeferrableJob(0, Resources(1.0), 20.0, 0.0, 0.0, 1.0, checkpoint_s=5.0, checkpoint_bytes=40.0)
    kept = Checkpoints([job], Pulls(np.array([40.0]), 0.0, lambda now_s, bps: None), {})
    kept.runs(0, "cloud", 0.0, 0.0, 20.0)
    kept.write(5.0, ["cloud"], np.array([20.0]))
    assert kept.saved_s[0] == 5.0
    found: list[str] = []
    kept.fetch(0, "cloud", 6.0, lambda: found.append("there"))
    assert found == ["there"]
