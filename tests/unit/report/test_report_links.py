"""Links that the streams of a run would fill over 100 %: found, said first, and said in every output."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import edgewise as ew
from edgewise import cli
from edgewise.cli import verbs
from edgewise.model.topology import WayTable
from edgewise.report import summary as links
from edgewise.report.schema import STREAMS
from edgewise.workloads.generate import generate_streams, most_load_bps


@pytest.fixture(scope="module")
def scenario():
    return ew.load_scenario("tiny")


def narrow(scenario, bps):
    """The scenario with links of so many bits per second."""
    table = scenario.topology.ways
    shape = (len(scenario.topology.sites), len(scenario.topology.clusters))
    delay = np.full(shape, 0.001)
    made = WayTable(
        [s.name for s in scenario.topology.sites], [c.name for c in scenario.topology.clusters],
        delay, 0 * delay, np.full(shape, bps),
    )  # fmt: skip
    assert len(table) == len(made)
    return replace(scenario, topology=replace(scenario.topology, ways=made))


def naive_peak(rows, row):
    """Load at the opening of a row, of all rows on its link."""
    same = [r for r in rows if (r["site"], r["cluster"]) == (row["site"], row["cluster"])]
    return max(
        sum(8 * r["rate_qps"] * r["size_bytes"] for r in same if r["open_s"] <= at["open_s"] < r["close_s"])
        for at in same
    )


def test_loads_equal_a_naive_count(scenario):
    few = narrow(scenario, 1e6)
    result = ew.simulate(few, "least-impedance", seeds=[0])
    rows = [row for row in result.items.to_pylist() if row["cluster"]]
    loads = {load.link: load for load in links.crowded(few, result.items)}
    assert loads
    for row in rows:
        load, name = naive_peak(rows, row) / 1e6, f"{row['site']} → {row['cluster']}"
        same = [r for r in rows if (r["site"], r["cluster"]) == (row["site"], row["cluster"])]
        bits = sum(8 * r["rate_qps"] * r["size_bytes"] * (r["close_s"] - r["open_s"]) for r in same)
        if load <= 1.0:
            assert name not in loads
        else:
            assert loads[name].peak == pytest.approx(load)
            assert loads[name].mean == pytest.approx(bits / few.duration_s / 1e6)


def test_streams_that_fit_say_nothing(scenario):
    wide = narrow(scenario, 1e15)
    result = ew.simulate(wide, "least-impedance", seeds=[0])
    assert links.crowded(wide, result.items) == [] and links.beforehand(wide) == []
    assert links.warning(result.summary()) == [] and result.summary()[0][links.LINKS_OVER] == []
    assert links.crowded(wide, pa.Table.from_pylist([], schema=STREAMS)) == []


@pytest.mark.parametrize(
    ("length", "rates", "clients"),
    [
        ("10h", 90, 90 / 60 * 20),  # nobody goes: as many as came
        ([2, 8], [{"at_s": 0, "rate": 200}, {"at_s": 9, "rate": 20}], 200 / 60 * 5),
        (3, 200, 200 / 60 * 3),
    ],
)
def test_what_clients_send_ends_with_the_run(length, rates, clients):
    """Streams that would last for hours send no more than what has come by the end of the run."""
    lasting = {f"streams.applications.{name}.length_s": length for name in ("quick", "careful")}
    few = narrow(ew.load_scenario("tiny", lasting | {"streams.arrivals.clients_per_min": rates}), 1e5)
    sent = []
    for seed in range(60):
        came = generate_streams(few, seed)
        at_s = np.linspace(0.0, few.duration_s - 1e-6, 100)
        bps = [
            sum(8.0 * each.rate_qps * each.size_bytes for each in came if each.open_s <= t < each.close_s)
            for t in at_s
        ]
        sent.append(bps)
    (said, *_) = links.beforehand(few)
    streams = few.streams
    found = most_load_bps(streams.applications, streams.arrivals, few.duration_s)
    assert found == pytest.approx(clients * 1e6)
    assert found == pytest.approx(np.mean(sent, axis=0).max(), rel=0.15)
    assert f"its clients send {links.rate(found)} in the mean when most are there" in said


def test_ways_over_one_cable_carry_together_what_it_carries():
    campus = ew.load_scenario("campus-small")
    assert set(links.carried_bps(campus).values()) == {1e9 + 200e6}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_peaks_are_exact(spans):
    key, begin, lasts = np.array(spans).T
    _, peaks = links.peaks_of(key, np.ones(key.size), begin.astype(float), (begin + lasts).astype(float))
    found = [
        max(sum(b <= t < b + d and k == which for k, b, d in spans) for t in range(20))
        for which in sorted(set(key.tolist()))
    ]
    assert peaks.tolist() == pytest.approx(found)


def test_the_warning_comes_first_and_is_in_summary_and_report(scenario, tmp_path, monkeypatch):
    few = narrow(scenario, 1e6)
    monkeypatch.setattr(verbs, "load", lambda name, changes: few)
    for command in (
        ["simulate", "tiny", "--seeds", "0"],
        ["compare", "tiny", "--policies", "closest,cheaper"],
    ):
        folder = tmp_path / command[0]
        done = CliRunner().invoke(
            cli.app, [*command, "--seeds", "0:2", "--out", str(folder)], env={"COLUMNS": "160"}
        )
        assert done.exit_code == 0, done.output
        text = done.output
        assert text.startswith("note: site ")  # known before the run
        assert text.index("would carry over 100 %") < text.index("success %")
        (entry, *_) = json.loads((folder / "summary.json").read_text())[0][links.LINKS_OVER]
        assert entry["link"] in text and entry["peak"] > 1.0
        assert "would carry over 100 %" in (folder / "report.html").read_text()


def test_links_that_are_shared_are_not_said_to_be_unshared():
    few = narrow(ew.load_scenario("tiny", {"sharing": "fifo"}), 1e6)
    result = ew.simulate(few, "closest", (0,))
    assert all(row[links.LINKS_OVER] == [] for row in result.summary())
    assert max(one.peak for one in result.used() if one.what == "messages") > 0.9
