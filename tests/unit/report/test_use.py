"""Who held what in a run, how busy workers and links were, and how long answers took."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import edgewise as ew
from edgewise.core.defer import Slots
from edgewise.core.defer.core import DeferCore
from edgewise.core.holders import GONE, TOTAL
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import network_of
from edgewise.policies import load
from edgewise.report import records, timeline
from edgewise.report.use import USE, delays_of, use_of
from edgewise.run import result
from edgewise.run.graphs import graphs_to_run
from edgewise.sim.links.wires import LOOKS
from edgewise.sim.parts.graphs import simulate_split
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.sim.streams.telemetry import CELL_ENDS_S, delay_cell
from edgewise.workloads.deferrable import jobs_apart, jobs_of, left_over_cores
from edgewise.workloads.pipelines import pipelines_of
from in_process import edgewise
from joint_scenarios import five_kinds, held as only, mixed, over_cables, run_jobs

JOBS = [{"cores": 3, "duration_s": 20}, {"cores": 1, "duration_s": 10, "submitted_s": 5}]


def at(holds: dict[str, Any], time_s: float, place: str) -> dict[str, float]:
    """Cores held of a place by owner."""
    rows = [dict(zip(holds, row, strict=True)) for row in zip(*holds.values(), strict=True)]
    return {
        row["owner"] or row["work"]: row["cores"]
        for row in rows
        if row["place"] == place and row["work"] != TOTAL and row["start_s"] <= time_s < row["end_s"]
    }


def test_what_is_noted_of_holders_is_what_the_ledger_held() -> None:
    """After every moment; a node that is down shows, and nobody holds anything of it."""
    from edgewise.run import assigning
    from edgewise.run.joint import JointRun

    scenario = parse_scenario(five_kinds(JOBS, timeline=[(10.0, False), (20.0, True)]), "mixed")
    work, chosen = assigning.assigned(scenario, {})
    makers = {decision: assigning.maker(decision, each)[1] for decision, each in chosen.items()}
    run = JointRun(scenario, assigning.beside(scenario, work), makers, 0)
    seen, step = [], run.joint.step

    def stepping(now_s: float) -> None:
        step(now_s)
        held = {r.owner: r.resources.cpu_cores for r in run.plane.ledger.reservations if r.node == "near-0"}
        seen.append((now_s, {owner: cores for owner, cores in held.items() if cores}))

    run.joint.step = stepping  # type: ignore[method-assign]
    run.run()
    holds = dict(run.use()["holds"])
    last = {time_s: held for time_s, held in seen if time_s < scenario.duration_s}
    assert len(last) > 20
    for time_s, held in last.items():
        found = {owner: cores for owner, cores in at(holds, time_s, "near-0").items() if cores}
        down = found.pop(GONE, None)
        assert found == held and (down is not None) == (10.0 <= time_s < 20.0), time_s


def test_every_kind_of_work_is_in_the_tables_and_no_node_has_more_than_it_has() -> None:
    result = ew.simulate(parse_scenario(five_kinds(JOBS, timeline=[]), "mixed"), seeds=(0, 1))
    holds = result.use["holds"].to_pylist()
    assert {row["work"] for row in holds} == {TOTAL, "streams", "services", "graphs", "pipelines", "jobs"}
    assert {row["seed"] for row in holds} == {0, 1}
    used = result.used()
    assert {one.what for one in used} >= {"cores", "memory", "streams", "services", "graphs"}
    assert all(0.0 <= one.mean <= 1.0 + 1e-9 for one in used)
    assert all(one.peak is None or one.mean <= one.peak + 1e-9 <= 1.0 + 1e-6 for one in used)
    assert set(result.delays()) == {"streams", "services", "graphs", "pipelines", "jobs"}
    assert all(result.delays().values())


def test_use_of_a_node_by_hand() -> None:
    """3 of 4 cores for half of the time, then 1 more: 3/8 + 1/4."""
    rows = [
        ("n", "", TOTAL, 0.0, 8.0, 4.0), ("n", "a", "jobs", 0.0, 4.0, 3.0), ("n", "b", "jobs", 2.0, 8.0, 1.0),
        ("n", "", GONE, 7.0, 8.0, 4.0),
    ]  # fmt: skip
    names = ("place", "owner", "work", "start_s", "end_s", "cores")
    made = [
        {
            "seed": 0,
            "policy": "p",
            "memory_bytes": 0.0,
            "bps": 0.0,
            "accelerator_memory_bytes": 0.0,
            **dict(zip(names, row, strict=True)),
        }
        for row in rows
    ]
    (cores,) = use_of({"holds": pa.Table.from_pylist(made, USE["holds"])}, "p")
    assert (cores.name, cores.what, cores.has) == ("n", "cores", "4 cores")
    assert cores.mean == pytest.approx((12 + 6) / 32) and cores.peak == 1.0


def test_delays_of_streams_are_those_of_their_queries_within_a_cell() -> None:
    """Alone on its worker each query takes the same time, but for noise of the way."""
    result = ew.simulate("tiny", "closest", seeds=(0,))
    by_name = {row["of"]: row for row in delays_of("streams", result.items, result.use["delays"])}
    items = result.items.to_pylist()
    for name, row in by_name.items():
        mine = [item for item in items if item["application"] == name and item["delay_max_s"] is not None]
        answered = sum(item["ok"] + item["failed"] for item in mine)
        assert 0 < row["count"] <= answered
        most = max(item["delay_max_s"] for item in mine)
        assert row["p50_s"] <= row["p95_s"] <= row["p99_s"] <= 1.04 * most
        mean = sum(item["delay_mean_s"] * item["ok"] for item in mine) / sum(item["ok"] for item in mine)
        assert 0.5 * mean < row["p50_s"] < 2.0 * mean


@pytest.mark.parametrize("delay_s", [1e-6, 1.1e-5, 3e-4, 0.0299, 0.15, 1.0, 47.0, 5e4])
def test_cells_of_delays_are_three_percent_wide(delay_s: float) -> None:
    cell = delay_cell(delay_s)
    low, high = CELL_ENDS_S[cell], CELL_ENDS_S[cell + 1]
    assert high / low <= 1.0 + 1 / 32 + 1e-12
    if 1e-5 <= delay_s <= 1e3:
        assert low <= delay_s < high


def test_workers_of_streams_are_busy_as_long_as_they_serve() -> None:
    """One batch of one query at a time: busy for the service time of each query."""
    result = ew.simulate("tiny", "closest", seeds=(0,))
    workers = result.use["workers"].to_pylist()
    assert {row["work"] for row in workers} == {"streams"}
    served = {row["worker"]: 0 for row in workers}
    for item in result.items.to_pylist():
        if item["worker"] is not None:
            served[item["worker"]] += item["ok"] + item["failed"]
    for row in workers:
        assert (row["busy_s"] > 0.0) == (served[row["worker"]] > 0)
        assert row["busy_s"] <= row["there_s"] * 1.01


def test_shared_links_say_what_they_sent() -> None:
    """All payloads of what was answered went over the links of their site."""
    data = mixed(nodes=2) | {"sharing": "fifo"}
    result = ew.simulate(parse_scenario(data, "mixed"), {"dispatch": "closest"}, (0,))
    links = result.use["links"].to_pylist()
    sent = sum(row["sent_bits"] for row in links if row["link"].endswith(":up"))
    items = result.items.to_pylist()
    wanted = sum(8 * item["size_bytes"] * (item["ok"] + item["failed"]) for item in items)
    assert sent == pytest.approx(wanted, rel=0.02) and wanted > 0
    assert sum(row["dropped"] for row in links) == 0
    spans = sorted({(row["start_s"], row["end_s"]) for row in links})
    assert spans[0][0] == 0.0 and spans[-1][1] == 60.0
    assert all(a[1] == b[0] for a, b in pairwise(spans))


ALONE = {
    "services in slots": (
        "edge-cloud-published", {"duration_s": 100, "policies.orchestrate": "autoscaler"}, "services"
    ),
    "services": (
        "edge-cloud",
        {
            "duration_s": 50, "policies.requests": "deadline-queue",
            "services.cores_held": "life", "services.initial_share": 0.2,
            "policies.orchestrate": "autoscaler",
        },
        "services",
    ),
    "pipelines": ("recognition", {"pipelines.0.count": 6}, "pipelines"),
    "jobs": ("deferrable", {}, "jobs"),
    "jobs in a pool": ("deferrable-published", {}, "jobs"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_each_kind_of_work_alone_says_who_held_what_and_the_page_shows_it(name: str, tmp_path: Path) -> None:
    scenario, settings, work = ALONE[name]
    made = ew.load_scenario(scenario, settings)
    result = ew.simulate(made, seeds=(0, 1))
    rows = result.use["holds"].to_pylist()
    assert {row["work"] for row in rows} == {TOTAL, work, *({"other"} if work == "jobs" else set())}
    assert {row["seed"] for row in rows} == {0, 1}
    pool = name == "jobs in a pool"
    assert {row["place"] for row in rows if row["cores"]} <= (
        {"all nodes"} if pool else {node.name for node in made.topology.nodes}
    )
    over = 1.0 if pool else 0.0  # on a pool more than is left over is a violation
    assert all(0.0 <= one.mean <= one.peak <= 1.0 + 1e-6 + over for one in result.used() if one.peak)
    policy = result.policies[0]
    tracks, edges = timeline.tracks_of(result.use, policy, 1)
    assert {"pipelines": {"memory", "links"}, "services": {"cores", "memory"}, "jobs": {"cores"}}[
        work
    ] <= set(tracks)
    end_s = result.windows.filter(pa.compute.equal(result.windows["seed"], 1))["end_s"].to_pylist()[-1]
    assert edges[-1] == pytest.approx(end_s)
    folder = result.save(tmp_path / "run")
    drawn = {path.stem.rpartition("-")[2] for path in (folder / "figures").glob("time-line-of-*.png")}
    assert drawn == ({"nodes", "links"} if work == "pipelines" else {"nodes"})
    assert "<h3>Nodes, the busiest first</h3>" in (folder / "report.html").read_text()


def test_servers_of_a_split_model_alone_hold_what_they_say_of_each_node() -> None:
    data = only(five_kinds([], timeline=[]), "graphs")
    data["graphs"][0] |= {"cpu_cores": 1.5, "memory_bytes": "100MB"}
    result = ew.simulate(parse_scenario(data, "graphs"), seeds=(0,))
    tracks, edges = timeline.tracks_of(result.use, result.policies[0], 0)
    near = next(track for track in tracks["cores"] if track.name == "near-0")
    assert near.bands["graphs"].max() == pytest.approx(1.5 / 7.2) and edges[-1] == 120.0
    assert {row["work"] for row in result.use["workers"].to_pylist()} == {"graphs"}


def test_what_each_engine_does_alone_is_what_a_run_of_its_work_does() -> None:
    """Pipelines, split models and jobs on nodes: to the last digit, and one plan for all seeds."""
    scenario = ew.load_scenario("recognition", {"pipelines.0.count": 6})
    rows = ew.simulate(scenario, "otfa", (3,)).items.to_pylist()
    run = simulate_streaming(network_of(scenario), pipelines_of(scenario, 3), load("place", "otfa"), 3)
    columns = ("arrival_s", "start_s", "finish_s", "frames", "migrations")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        tuple(getattr(each, name) for name in columns) for each in run.pipelines
    ]
    scenario = ew.load_scenario("split-inception", {"duration_s": 20})
    found = ew.simulate(scenario, seeds=(1, 2)).items
    program, queries, telemetry = graphs_to_run(scenario)
    wanted = [
        simulate_split(load("split", "nona-queues"), program, queries, seed, telemetry) for seed in (1, 2)
    ]
    assert found["time_s"].to_pylist() == [*wanted[0].time_s.tolist(), *wanted[1].time_s.tolist()]
    scenario = ew.load_scenario("deferrable")
    jobs = jobs_of(scenario)
    slot_s, ledger = jobs.pattern.slot_s, NodeLedger(scenario.topology.nodes)
    core = DeferCore(Slots(slot_s), ledger, load("defer", "tetris"), key=Key(4))
    outcome = run_jobs(jobs_apart(jobs, 4), left_over_cores(jobs.pattern, 4), slot_s, core)
    items = ew.simulate(scenario, "tetris", (4,)).items.to_pydict()
    assert [node or "" for node in items["node"]] == list(outcome.node)
    assert items["started_s"] == [s * jobs.pattern.slot_s if s >= 0 else None for s in outcome.start.tolist()]


@pytest.mark.parametrize("works", [("services",), ("graphs", "services"), ("streams", "services")])
def test_links_are_looked_at_whatever_work_uses_them(works: tuple[str, ...]) -> None:
    """All payloads of requests went over the cable, in some hundred spans that fill the run."""
    data = only(over_cables("90Mbps", "90Mbps"), *works) | {"sharing": "fifo"}
    result = ew.simulate(parse_scenario(data, "mixed"), seeds=(0,))
    links = result.use["links"].to_pylist()
    spans = sorted({(row["start_s"], row["end_s"]) for row in links})
    assert spans[0][0] == 0.0 and spans[-1][1] == 120.0 and len(spans) == LOOKS
    assert all(a[1] == b[0] for a, b in pairwise(spans))
    requests = (result if result.work == "services" else result.beside["services"]).items
    sent = sum(row["sent_bits"] for row in links if row["link"].endswith(":up"))
    payload_bits = 8.0 * 10e3 * requests.num_rows
    assert sent > 0.99 * payload_bits and (works != ("services",) or sent < 1.01 * payload_bits)


def test_means_in_steps_add_up_to_the_whole() -> None:
    rng = np.random.default_rng(1)
    start_s = rng.uniform(0.0, 50.0, 200)
    end_s = start_s + rng.uniform(0.0, 50.0, 200)
    amount, edges = rng.uniform(0.0, 2.0, 200), np.linspace(0.0, 100.0, timeline.STEPS + 1)
    found = timeline.mean_in_steps(start_s, end_s, amount, edges)
    assert (found * np.diff(edges)).sum() == pytest.approx((amount * (end_s - start_s)).sum())
    exact = [amount[(start_s <= t) & (t < end_s)].sum() for t in (edges[:-1] + edges[1:]) / 2]
    assert np.abs(found - exact).max() < amount.sum() / 10
    assert np.corrcoef(found, exact)[0, 1] > 0.999


def test_a_run_folder_holds_the_tables_and_the_page_shows_them(tmp_path: Path) -> None:
    scenario = parse_scenario(mixed(jobs=[{}], nodes=2, timeline=[(12.0, False), (23.0, True)]), "mixed")
    folder = ew.simulate(scenario, {"dispatch": "closest"}, (3, 4)).save(tmp_path / "run")
    run = records.read_run(folder)
    assert set(run.use) == {"holds", "workers", "delays"}
    assert all(table.schema.equals(USE[name]) for name, table in run.use.items())
    page = (folder / "report.html").read_text()
    for said in (
        "<h3>Nodes, the busiest first</h3>",
        "<h3>Workers, the busiest first</h3>",
        "<h3>Delays against the deadline, the tightest first</h3>",
        "turnaround",
        "near-1",
        "small-cpu",
    ):
        assert said in page, said
    assert (folder / "figures" / "time-line-of-nodes.png").stat().st_size > 10_000
    tracks, edges = timeline.tracks_of(run.use, "closest", 3)
    near = next(track for track in tracks["cores"] if track.name == "near-0")
    down = (edges[:-1] >= 12.5) & (edges[1:] <= 22.5)
    assert near.bands[GONE][down].min() == 1.0 and near.share[down].max() == 0.0
    assert near.bands["streams"].max() == pytest.approx(2 / 6)
    for name in USE:
        (folder / f"{name}.parquet").unlink(missing_ok=True)
    assert "<h2>Nodes</h2>" not in result.report(folder).read_text()  # of an earlier edgewise


def test_many_tracks_of_a_day_are_drawn_quickly() -> None:
    """20 nodes, 20,000 spans over a day."""
    rng = np.random.default_rng(2)
    start_s = rng.uniform(0.0, 80_000.0, 20_000)
    columns = {
        "place": [f"node-{k % 20}" for k in range(20_000)] + [f"node-{k}" for k in range(20)],
        "owner": [f"o{k}" for k in range(20_000)] + [""] * 20,
        "work": [("streams", "jobs", "services")[k % 3] for k in range(20_000)] + [TOTAL] * 20,
        "start_s": [*start_s, *np.zeros(20)],
        "end_s": [*(start_s + 300.0), *np.full(20, 86_400.0)],
        "cores": [0.2] * 20_000 + [8.0] * 20,
        "memory_bytes": [1e8] * 20_000 + [8e9] * 20,
        "bps": [0.0] * 20_020,
        "accelerator_memory_bytes": [0.0] * 20_020,
        "seed": [0] * 20_020,
        "policy": ["p"] * 20_020,
    }
    table = pa.table({name: columns[name] for name in USE["holds"].names}, schema=USE["holds"])
    (figure,) = timeline.timelines({"holds": table}, "p", 0).values()
    cores, memory = figure.axes
    assert cores.get_xlabel() == memory.get_xlabel() == "time (h)"
    assert [text.get_text() for text in cores.get_yticklabels()][:2] == ["node-0", "node-1"]
    assert len(cores.patches) == 20 * 4  # one band for each kind, however many spans


def test_a_resource_of_which_nothing_is_held_has_no_column() -> None:
    """Pipelines hold memory alone: cores would be a column of empty bands."""
    columns = {
        "place": ["n", "n"], "owner": ["p", ""], "work": ["pipelines", TOTAL], "start_s": [2.0, 0.0],
        "end_s": [6.0, 10.0], "cores": [0.0, 8.0], "memory_bytes": [1e9, 8e9], "bps": [0.0, 0.0],
        "accelerator_memory_bytes": [0.0, 0.0],
        "seed": [0, 0], "policy": ["otfa", "otfa"],
    }  # fmt: skip
    table = pa.table({name: columns[name] for name in USE["holds"].names}, schema=USE["holds"])
    (axes,) = timeline.timelines({"holds": table}, "otfa", 0)["nodes"].axes
    assert any("of 8 GB" in text.get_text() for text in axes.texts)


def test_summaries_as_json_hold_use_delays_and_refusals(tmp_path: Path) -> None:
    done = edgewise("simulate", "tiny", "--seeds", "0:1", "--json", "--out", "run", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert {row["of"] for row in found["delays"]["streams"]}
    assert found["use"] and isinstance(found["refusals"], list)


def test_rates_of_flows_that_share_no_link_with_messages_are_shown() -> None:
    """The link between two nodes that only the pipeline uses: its tasks fit no node together."""
    data = mixed(nodes=2) | {"sharing": "fifo"}
    for task in data["pipelines"][0]["tasks"]:
        task["memory_bytes"] = "2.5GB"
    result = ew.simulate(parse_scenario(data, "mixed"), {"dispatch": "closest"}, (0,))
    whole, *flows = [row for row in result.use["holds"].to_pylist() if row["bps"]]
    assert (whole["place"], whole["work"], whole["bps"]) == ("near-0 – near-1", TOTAL, 10e6)
    assert flows and {(row["place"], row["work"]) for row in flows} == {(whole["place"], "pipelines")}
    assert all(row["bps"] <= whole["bps"] * (1 + 1e-6) for row in flows)
    (use,) = [one for one in result.used() if one.what == "reserved"]
    assert 0.0 < use.mean < 1.0
