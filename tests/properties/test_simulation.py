"""Invariants of whole runs: determinism, paired noise, no peeking, work conserved."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.core.dispatch.views import DispatchView
from edgewise.report.records import write_run
from edgewise.sim.simulate import Simulation
from edgewise.workloads.generate import generate_streams

NAMES = [name for name in policies.names("dispatch") if not name.startswith("chooser-")]


@pytest.fixture(scope="module")
def scenario():
    return ew.load_scenario("three-tier")


def run(scenario, policy, seed, streams=None):
    return Simulation(scenario, policies.load("dispatch", policy), seed, streams).run()


@pytest.mark.parametrize("policy", NAMES)
def test_same_seed_same_bytes(scenario, policy, tmp_path):
    manifest = dict.fromkeys(("seeds", "policies", "version", "command"), "") | {"work": "streams"}
    for folder in ("a", "b"):
        run = ew.simulate(scenario, policy, seeds=[5])
        tables = {"items": run.items, "windows": run.windows, "summary": run.summary()}
        write_run(tmp_path / folder, scenario_yaml="", manifest=manifest, **tables)  # figures take seconds
    for name in ("items.parquet", "windows.parquet", "summary.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_other_seed_other_records(scenario):
    a, b = (ew.simulate(scenario, "closest", seeds=[seed]) for seed in (0, 1))
    assert a.items.column("open_s") != b.items.column("open_s")


def test_policies_meet_the_same_arrivals_and_the_same_number_of_queries(scenario):
    a, b = (ew.simulate(scenario, policy, seeds=[2]).items for policy in ("closest", "least-impedance"))
    for column in ("stream", "site", "application", "open_s", "close_s", "rate_qps", "deadline_s", "queries"):
        assert a.column(column) == b.column(column)
    assert a.column("worker") != b.column("worker")


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_every_query_is_ok_failed_or_rejected_once(scenario, policy, seed):
    result = ew.simulate(scenario, policy, seeds=[seed])
    streams, windows = result.items.to_pydict(), result.windows.to_pydict()
    for table in (streams, windows):
        parts = np.array(table["ok"]) + np.array(table["failed"]) + np.array(table["rejected"])
        assert (parts == table["queries"]).all()
        assert (np.array(table["ok"]) >= 0).all()
    for column in ("queries", "ok", "failed", "rejected"):
        assert sum(streams[column]) == sum(windows[column])
    assert sum(windows["streams_opened"]) == len(streams["stream"])
    for worker, reason, ok, failed in zip(
        *(streams[c] for c in ("worker", "reason", "ok", "failed")), strict=True
    ):
        assert (worker is None) == (reason is not None)
        assert worker is not None or ok + failed == 0


def test_periodic_streams_send_what_their_rate_says(scenario):
    table = ew.simulate(scenario, "closest", seeds=[0]).items
    length = np.subtract(table["close_s"], table["open_s"])
    expected = length * np.asarray(table["rate_qps"])
    assert (np.abs(np.asarray(table["queries"]) - expected) <= 1.0).all()


def test_no_answer_is_faster_than_light(scenario):
    world = Simulation(scenario, policies.load("dispatch", "closest"), 0).world
    table = ew.simulate(scenario, "closest", seeds=[0]).items.to_pydict()
    fastest = float(world.fixed_s.min()) * 0.5
    assert all(mean is None or mean > fastest for mean in table["delay_mean_s"])


class Watching:
    """Wraps a policy and keeps everything it was shown."""

    def __init__(self, inner):
        self.inner, self.name, self.seen = inner, inner.name, []

    def reset(self, world, key):
        self.inner.reset(world, key)

    def tick(self, view):
        self.seen.append(view)
        getattr(self.inner, "tick", lambda view: None)(view)

    def decide(self, view, items):
        decisions = self.inner.decide(view, items)
        self.seen.append((view, items.rows, decisions.worker.tolist(), decisions.reason.tolist()))
        return decisions


def content(entry):
    if isinstance(entry, DispatchView):
        measured = (entry.queue, entry.throughput_qps, entry.delay_mean_s, entry.delay_p95_s)
        return (entry.now_s, entry.load_qps.tolist(), *(x.tolist() for x in measured), entry.measured_s)
    view, *rest = entry
    return (content(view), *rest)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("cut_s", [31.0, 77.7])
def test_no_policy_can_see_the_future(scenario, policy, cut_s):
    """Two worlds equal up to `cut_s` with different futures give the same views and decisions."""
    first = generate_streams(scenario, 0)
    before = [s for s in first if s.open_s < cut_s]
    # In the other future, streams end and open differently, from the cut on.
    other = [
        s if s.close_s <= cut_s else replace(s, close_s=cut_s + 0.3 * (s.close_s - cut_s)) for s in before
    ]
    other += [
        replace(s, id=len(before) + i, rate_qps=s.rate_qps * 1.7)
        for i, s in enumerate(s for s in generate_streams(scenario, 99) if s.open_s >= cut_s)
    ]
    seen = []
    for streams in (first, other):
        watching = Watching(policies.load("dispatch", policy))
        Simulation(scenario, watching, 0, streams).run()
        entries = [content(e) for e in watching.seen]
        seen.append([e for e in entries if (e[0] if isinstance(e[0], float) else e[0][0]) < cut_s])
    assert len(seen[0]) > 20
    assert seen[0] == seen[1]


def test_telemetry_arrives_late_by_its_lag(scenario):
    from edgewise.model.parsing import parse_scenario

    data = scenario.spec.model_dump(exclude_none=True)
    data["telemetry"] = {"period_s": 2.0, "lag_s": 1.5}
    watching = Watching(policies.load("dispatch", "closest"))
    Simulation(parse_scenario(data, "test"), watching, 0).run()
    ages = [e[0].age_s for e in watching.seen if isinstance(e, tuple) and np.isfinite(e[0].measured_s)]
    assert min(ages) >= 1.5 and max(ages) <= 3.5 + 1e-9


def test_compare_pairs_by_seed(scenario):
    comparison = ew.compare(scenario, ["closest", "least-impedance"], seeds=range(4))
    success = comparison.result.values()
    (row,) = comparison.rows
    assert row.difference == pytest.approx((success["least-impedance"] - success["closest"]).mean())
    assert isinstance(comparison.result.items, pa.Table)
