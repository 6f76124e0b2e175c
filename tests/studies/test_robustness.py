"""Variations of a scenario one at a time, and who wins in how many of them."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise.config import load_scenario
from edgewise.errors import PolicyError
from edgewise.model.topology import LinkChange, NodeChange
from edgewise.report.statistics import holm
from edgewise.workloads.generate import generate_streams
from edgewise_studies.robustness import (
    STREAM_CHANGES,
    scale_capacity,
    scale_delay,
    scale_load,
    success_of,
    suite,
    variations,
)

TINY = load_scenario("tiny")


def test_six_variations_and_the_base_one_thing_at_a_time():
    found = variations(TINY, STREAM_CHANGES)
    assert list(found) == [
        "base", "capacity ×0.8", "capacity ×1.2", "network delay ×0.8", "network delay ×1.2", "load ×0.8",
        "load ×1.2",
    ]  # fmt: skip
    assert found["base"] is TINY
    for name, scenario in list(found.items())[1:]:
        parts = {
            "capacity": scenario.catalog != TINY.catalog,
            "network delay": scenario.topology != TINY.topology,
            "load": scenario.streams.arrivals != TINY.streams.arrivals,
        }
        assert [part for part, differs in parts.items() if differs] == [name.rsplit(" ", 1)[0]]
    with pytest.raises(ValueError, match="step is 20"):
        variations(TINY, STREAM_CHANGES, 20)


def test_capacity_and_processing_delay_go_together():
    slow = scale_capacity(TINY, 0.8)
    for before, after in zip(TINY.catalog.variants, slow.catalog.variants, strict=True):
        assert after.capacity_qps == pytest.approx(0.8 * before.capacity_qps)
        for batch in (1, 4):
            expected = before.profile.delay_s(1e4, batch) / 0.8
            assert after.profile.delay_s(1e4, batch) == pytest.approx(expected)


def test_network_delays_include_access_deviation_and_the_timeline():
    changes = (LinkChange(1.0, "site", "far", delay_s=0.1), NodeChange(2.0, "far-node", False))
    after = scale_delay(replace(TINY, timeline=changes), 1.2)
    far = after.topology.ways[1]
    assert (far.delay_s, far.deviation_s) == (pytest.approx(0.024), pytest.approx(0.0024))
    assert after.topology.sites[0].access_delay_s == pytest.approx(0.0012)
    assert after.timeline[0].delay_s == pytest.approx(0.12) and after.timeline[0].deviation_s is None
    assert after.timeline[1] == changes[1]
    assert far.bandwidth_bps == TINY.topology.ways[1].bandwidth_bps


def test_load_changes_how_many_come():
    counts = [
        np.mean([len(generate_streams(scenario, seed)) for seed in range(60)])
        for scenario in (TINY, scale_load(TINY, 1.2))
    ]
    assert counts[1] / counts[0] == pytest.approx(1.2, rel=0.05)


def test_a_suite_of_made_up_systems_counts_wins():
    # The "scenario" is a number, the policy's lead over the rival: 0.05 ± 20 % of 0, 1 and 8 times it.
    rng = np.random.default_rng(3)
    noise = rng.normal(0.0, 0.002, 8)
    changes = {"size": lambda lead, f: lead * f, "sign": lambda lead, f: lead * (5 - 5 * f)}

    def measure(lead):
        base = np.linspace(0.3, 0.6, 8)
        return {"ours": base + lead + noise, "rival": base, "other": base}

    told = []
    found = suite(0.05, changes, measure, "ours", "rival", progress=told.append)
    assert told == list(found.names) == ["base", "size ×0.8", "size ×1.2", "sign ×0.8", "sign ×1.2"]
    assert [row.verdict for row in found.rows] == ["win", "win", "win", "win", "loss"]
    assert (found.wins, str(found)) == (4, "ours wins against rival in 4 of 5 (1 loss)")
    assert [row.difference for row in found.rows] == pytest.approx(
        [lead + noise.mean() for lead in (0.05, 0.04, 0.06, 0.05, -0.05)]
    )
    assert [row.p_holm for row in found.rows] == pytest.approx(holm([row.p for row in found.rows]))
    labels = [text.get_text() for text in found.figure().axes[0].get_yticklabels()]
    assert labels == list(found.names)
    assert suite(0.05, changes, measure, "ours", "rival", minimum_effect=0.055).wins == 1
    with pytest.raises(PolicyError, match="base: 'nobody' has no values; there are ours, rival, other"):
        suite(0.05, changes, measure, "ours", "nobody")


def test_a_suite_of_streams():
    chosen, seeds = ["closest", "least-impedance"], range(6)
    found = suite(TINY, STREAM_CHANGES, success_of(chosen, seeds), "closest", "least-impedance")
    assert len(found.rows) == 7 and all(row.n == 6 for row in found.rows)
    base = success_of(chosen, seeds)(TINY)
    assert found.rows[0].mean == pytest.approx(base["closest"].mean())
    table = {name: row.mean for name, row in zip(found.names, found.rows, strict=True)}
    # Less load and faster workers cannot make the closest worker answer less here.
    assert table["load ×0.8"] >= table["load ×1.2"] and table["capacity ×1.2"] >= table["capacity ×0.8"]
