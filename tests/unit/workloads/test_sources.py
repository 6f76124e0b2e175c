"""Sources: how they are written, when they open, and that they ask again."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgewise as ew
from edgewise import policies
from edgewise.config import dump_scenario, parse_setting
from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import Library
from edgewise.model.parsing import parse_scenario, set_paths
from edgewise.model.scenario import Scenario
from edgewise.runtime.clients.traffic import send_times_s
from edgewise.sim.sites import simulation_of
from edgewise.workloads.generate import generate_streams

CAMERA = {"name": "cameras", "task": "detection", "rate_qps": 10, "size_bytes": "10kB", "deadline_s": "80ms"}


def data(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Two sites with a box each, of one worker that carries ten cameras."""
    variant = {
        "name": "small-cpu", "model": "small", "resources": {"cpu_cores": 2}, "profile": {"fixed_s": "10ms"},
        "largest_bytes": "20kB",
    }  # fmt: skip
    return {
        "name": "shop", "duration_s": 20, "window_s": 5, "sharing": "none",
        "catalog": {
            "models": [{"name": "small", "task": "detection", "accuracy": 30}], "variants": [variant],
        },
        "clusters": [
            {"name": "box", "count": 2, "tier": 0, "nodes": [{"name": "n", "resources": {"cpu_cores": 2}}]}
        ],
        "sites": [{"name": "hall", "count": 2, "cluster": "box"}],
        "links": [
            {"site": "*", "cluster": "own", "delay_s": "1ms"},
            {"site": "*", "cluster": "box", "delay_s": "5ms"},
        ],
        "workers": [{"variant": "small-cpu", "cluster": "box"}],
        "streams": {"gateways": "per_site", "sources": list(sources)},
    } | more  # fmt: skip


def shop(*sources: dict[str, Any], **more: Any) -> Scenario:
    return parse_scenario(data(*sources, **more), "shop")


def test_count_is_for_each_site_and_names_of_sites_and_kinds_may_be_listed() -> None:
    scenario = shop(
        CAMERA | {"count": 3},
        CAMERA | {"name": "door", "site": "hall-1"},
        CAMERA | {"name": "till", "site": ["hall"], "count": 2},
    )
    found = [(s.application, s.site) for s in generate_streams(scenario, 0)]
    assert sorted(found) == sorted(
        [("cameras", 0)] * 3 + [("cameras", 1)] * 3 + [("door", 1)] + [("till", 0)] * 2 + [("till", 1)] * 2
    )
    assert [s.id for s in generate_streams(scenario, 0)] == list(range(11))
    assert parse_scenario(scenario.spec.model_dump(mode="json", exclude_none=True), "again") == scenario
    assert "hall-1" in dump_scenario(scenario)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"rate": 5}, r"streams.sources\[0\].rate: unknown key 'rate'; did you mean 'rate_qps'\?"),
        ({"cuont": 5}, "unknown key 'cuont'; did you mean 'count'"),
        ({"site": "hal"}, r"streams.sources\[0\].site: unknown site 'hal'; did you mean 'hall'\?"),
        ({"site": ["hall-0", "hall-7"]}, "unknown site 'hall-7'; did you mean 'hall-"),
        ({"task": "detectoin"}, "no model has task 'detectoin'; did you mean 'detection'"),
        ({"hours": [8]}, "hours: .* are no hours; write"),
        ({"hours": [8, 8]}, "two that differ, from 0 to 24"),
        ({"hours": [8, 25]}, "two that differ, from 0 to 24"),
        ({"hours": [[8, 12], [14, 30]]}, "two that differ, from 0 to 24"),
        ({"count": -1}, "use an integer >= 0"),
        ({"priority": "high"}, "use an integer >= -1000"),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        shop(CAMERA | changed)


def test_what_is_missing_twice_or_nothing_at_all_is_named() -> None:
    with pytest.raises(ScenarioError, match="'cameras' is given twice"):
        shop(CAMERA, CAMERA)
    with pytest.raises(ScenarioError, match="applications: is missing; add it, or 'sources'"):
        shop()
    with pytest.raises(ScenarioError, match=r"applications: is missing; add it$"):
        shop(streams={"sources": [CAMERA], "arrivals": {"clients_per_min": 1}})
    application = CAMERA | {"length_s": 5}
    with pytest.raises(ScenarioError, match="an application is called 'cameras', too"):
        shop(
            streams={
                "applications": [application], "arrivals": {"clients_per_min": 1}, "sources": [CAMERA],
            }
        )  # fmt: skip


def test_set_and_vary_reach_a_source_by_its_name() -> None:
    path, value = parse_setting("streams.sources.cameras.count=7")
    changed = set_paths(data(CAMERA), {path: value}, "shop", Library())
    assert len(generate_streams(parse_scenario(changed, "shop"), 0)) == 14
    with pytest.raises(ScenarioError, match="unknown key 'camera'; did you mean 'cameras'"):
        set_paths(data(CAMERA), {"streams.sources.camera.count": 7}, "shop", Library())


def test_each_sends_evenly_from_a_phase_of_its_own_that_the_seed_draws() -> None:
    """What it needs is its own, too; more sources move no phase."""
    period_s, first = 1.0 / CAMERA["rate_qps"], {}
    door = CAMERA | {"name": "door", "rate_qps": 4, "size_bytes": "7kB", "deadline_s": "1s", "priority": 3}
    for seed, count in ((0, 6), (1, 6), (0, 7)):
        streams = generate_streams(shop(CAMERA | {"count": count}, door), seed)
        needs = {(s.application, s.rate_qps, s.size_bytes, s.deadline_s, s.priority) for s in streams}
        assert needs == {("cameras", 10, 10e3, 0.08, 0), ("door", 4, 7e3, 1.0, 3)}
        times = {(s.source, s.site): send_times_s(s, seed) for s in streams if s.source.startswith("cameras")}
        for each in times.values():
            assert len(each) == 200 and np.diff(each) == pytest.approx(period_s)
        first[seed, count] = {which: each[0] for which, each in times.items()}
        phases = np.array(list(first[seed, count].values())) / period_s
        assert len(set(phases)) == 2 * count and 0.0 < phases.min() < 0.4 and 0.6 < phases.max() < 1.0
    assert not set(first[0, 6].values()) & set(first[1, 6].values())
    assert first[0, 6].items() < first[0, 7].items()


H = 3600.0


@pytest.mark.parametrize(
    ("hours", "begins_h", "lasts_h", "expected"),
    [
        ([], 0, 30, [(0, 30)]),
        ([8, 18], 0, 24, [(8, 18)]),
        ([8, 18], 9, 4, [(0, 4)]),
        ([8, 18], 7.5, 24, [(0.5, 10.5)]),
        ([8, 18], 19, 5, []),
        ([8, 18], 12, 24, [(0, 6), (20, 24)]),
        ([22, 6], 0, 24, [(0, 6), (22, 24)]),
        ([22, 6], 23, 24, [(0, 7), (23, 24)]),
        ([[8, 12], [14, 18]], 0, 48, [(8, 12), (14, 18), (32, 36), (38, 42)]),
        ([[22, 24], [0, 6]], 20, 24, [(2, 10)]),
        ([0, 24], 5, 48, [(0, 48)]),
    ],
)
def test_sources_open_at_their_hours(
    hours: Any, begins_h: float, lasts_h: float, expected: list[tuple[float, float]]
) -> None:
    streams = {"sources": [CAMERA | {"hours": hours, "site": "hall-0"}], "begins_at_s": begins_h * H}
    scenario = shop(streams=streams, duration_s=lasts_h * H, window_s=H)
    found = [(s.open_s / H, s.close_s / H) for s in generate_streams(scenario, 0)]
    assert found == [pytest.approx(each) for each in expected]


def test_the_more_important_asks_first() -> None:
    """Ten fit each box; of the twelve at one, two are refused: the less important, though written first."""
    scenario = shop(
        CAMERA | {"name": "aisle", "count": 7, "site": "hall-0"},
        CAMERA | {"name": "door", "count": 5, "site": "hall-0", "priority": 1},
        CAMERA | {"name": "other", "count": 10, "site": "hall-1"},
    )
    rows = ew.simulate(scenario, "closest", [0]).items.to_pylist()
    # Until it hears that the other box is full, a gateway sends a query or two there.
    assert [row["application"] for row in rows if row["rejected"] > 100] == ["aisle", "aisle"]
    assert sum(row["rejected"] for row in rows) == pytest.approx(400, abs=2)


@pytest.mark.parametrize("gateways", ["one", "per_site"])
def test_a_source_that_is_refused_asks_again_and_a_client_does_not(gateways: str) -> None:
    """A box holds ten cameras, and ten more important ones are on in the first half of the run."""
    early = CAMERA | {"name": "early", "count": 10, "hours": [0, 10.0 / H], "priority": 1}
    late = CAMERA | {"name": "late", "count": 10}
    scenario = shop(streams={"sources": [early, late], "gateways": gateways})
    trace = generate_streams(scenario, 0)
    clients = [replace(stream, source="") for stream in trace]
    for streams, expected in ((trace, 100), (clients, 200)):
        make = partial(policies.load, "dispatch", "closest")
        outcome = simulation_of(scenario, make, 0, streams=streams).run()
        kinds = zip(*(outcome.streams[name] for name in ("application", "rejected", "queries")), strict=True)
        late_ones = [(rejected, sent) for name, rejected, sent in kinds if name == "late"]
        assert len(late_ones) == 20 and {sent for _, sent in late_ones} == {200}
        # Until it hears that the other box is full, a gateway sends a query or two there.
        assert all(expected - 2 <= rejected <= expected for rejected, _ in late_ones)


def test_records_and_tables_say_what_became_of_each_source(tmp_path: Path) -> None:
    """Ten of a box's twelve are served, as each seed says."""
    scenario = shop(
        CAMERA | {"count": 12, "site": "hall-0"}, CAMERA | {"name": "x", "count": 10, "site": "hall-1"}
    )
    result = ew.simulate(scenario, "closest", (0, 1))
    items = result.items.to_pylist()
    assert {(r["source"], r["site"]) for r in items if r["application"] == "cameras"} == {
        (f"cameras-{k}", "hall-0") for k in range(12)
    }
    cameras, other = result.sources()
    assert (cameras["source"], cameras["sources"], cameras["policy"]) == ("cameras", 12, "closest")
    assert (other["source"], other["sources"]) == ("x", 10)
    mine = [r for r in items if r["application"] == "cameras"]
    for key, of in (("in_time", "ok"), ("refused", "rejected")):
        assert cameras[key] == sum(r[of] for r in mine) / sum(r["queries"] for r in mine)
    assert cameras["refused"] == pytest.approx(2 / 12, abs=0.01) and cameras["worst"] < 0.02
    assert other["refused"] == 0.0 and other["worst"] > 0.9
    page = (result.save(tmp_path / "run") / "report.html").read_text("utf-8")
    assert "<h3>Sources</h3>" in page and f"{100 * cameras['refused']:.2f}" in page
    clients = ew.simulate("tiny", "closest", (0,))
    assert clients.sources() == [] and set(clients.items["source"].to_pylist()) == {None}
    assert "<h2>Sources</h2>" not in (clients.save(tmp_path / "two") / "report.html").read_text("utf-8")


@pytest.mark.parametrize("gateways", ["one", "per_site"])
def test_a_source_at_workers_of_its_own_changes_no_record_of_others(gateways: str) -> None:
    """Bindings by chance, noise on the way and services that vary: all as without it, to the last bit."""
    base = data()
    base["catalog"]["models"].append({"name": "other", "task": "reading", "accuracy": 1})
    small = base["catalog"]["variants"][0] | {"profile": {"fixed_s": "10ms", "deviation": 0.2}}
    base["catalog"]["variants"] = [small, small | {"name": "reader", "model": "other"}]
    base["clusters"][0]["nodes"][0]["resources"] = {"cpu_cores": 6}
    base["links"] = [{"site": "*", "cluster": "*", "delay_s": "3ms", "deviation_s": "1ms"}]
    base["workers"] = [
        {"variant": "small-cpu", "cluster": "box", "count": 2}, {"variant": "reader", "cluster": "box"},
    ]  # fmt: skip
    application = CAMERA | {"name": "client", "length_s": [2, 9], "arrivals": "poisson"}
    clients = {"applications": [application], "arrivals": {"clients_per_min": 60}}
    reader = CAMERA | {"name": "reader", "task": "reading", "count": 3}
    both = clients | {"sources": [CAMERA | {"count": 2}], "gateways": gateways}
    more = both | {"sources": [*both["sources"], reader]}
    runs = [
        ew.simulate(parse_scenario(base | {"streams": streams}, "shop"), "random-by-load", [3]).items
        for streams in (both, more)
    ]
    rows = [[row for row in run.to_pylist() if row["application"] != "reader"] for run in runs]
    assert rows[0] == rows[1] and len({row["worker"] for row in rows[0]}) == 4
    assert runs[1].num_rows == len(rows[1]) + 6


def test_sources_run_beside_all_other_kinds_of_work() -> None:
    door = CAMERA | {"name": "door", "count": 2, "site": ["at-hall", "at-gate"], "rate_qps": 2}
    settings = {"streams.sources": [door | {"deadline_s": "300ms"}], "duration_s": 120}
    result = ew.simulate(ew.load_scenario("campus-small", settings), seeds=(0,))
    assert set(result.beside) == {"services", "pipelines", "graphs", "jobs"}
    (row,) = result.sources()
    assert (row["source"], row["sources"], row["queries"], row["refused"]) == ("door", 4, 960, 0.0)
