"""The rows that a live system wrote down, as the tables of a run."""

import json
import math
from types import SimpleNamespace

import pytest

pytest.importorskip("httptools", reason="the extra `live` is not installed")

from edgewise.config import load_scenario
from edgewise.core.dispatch.policing import Bucket
from edgewise.core.holders import Held
from edgewise.core.place import PipelineEnded, PipelineSubmitted, PlacementDue, arrays_of
from edgewise.core.place.core import PlaceCore
from edgewise.core.world import World
from edgewise.errors import RunError
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import network_of
from edgewise.model.work import Stream
from edgewise.report.records import read_run
from edgewise.run.live import live_run, saved
from edgewise.runtime.controller.holds import LiveHolds
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.gateway.served import Served
from edgewise.runtime.gateway.tally import KEPT, MOST, OTHERS, UNWRITTEN, StreamTally, cell_of
from edgewise.runtime.store import RUN
from edgewise.runtime.store.records import COUNTS, Request, Window
from edgewise.sim.links.wires import LOOKS
from edgewise.sim.streams.telemetry import CELL_ENDS_S, FIRST_FINE, delay_cell
from edgewise.workloads.pipelines import pipelines_of
from joint_scenarios import FLOW_BPS, Across, held, laid, run_of

BEGAN_S = 1_000_000.0


@pytest.fixture
def store(tmp_path):
    made = prepare(tmp_path / "state", load_scenario("tiny", {"sharing": "fifo"}))
    began = {name: BEGAN_S for name in made.get("policies since")}
    made.put("policies since", began)
    made.put(RUN, {"began_s": BEGAN_S, "ended_s": BEGAN_S + 100.0})
    yield made
    made.close()


def stream(store, number, opened_s, **outcome):
    needs = {"task": "object-detection", "rate_qps": 2.0, "size_bytes": 100.0, "deadline_s": 1.0}
    store.run(
        "INSERT INTO stream (id, gateway, needs, opened_s, closed_s, worker, outcome)"
        " VALUES (?, 'gateway-0', ?, ?, ?, ?, ?)",
        (number, json.dumps(needs), BEGAN_S + opened_s, BEGAN_S + opened_s + 10, outcome.pop("worker", None),
         json.dumps(outcome)),
    )  # fmt: skip


def test_streams_windows_delays_and_holds_are_those_of_the_store(store, tmp_path):
    scenario = load_scenario("tiny")
    worker, task = scenario.topology.workers[0].name, "object-detection"
    stream(store, 7, 20.0, worker=worker, ok=3, failed=1, rejected=0, delay_mean_s=0.25, answered=4)
    stream(store, 9, 30.0, rejected=5, reason="full")
    for life, ok in ((1.0, 2), (2.0, 1)):  # the gateway died in between
        counts = {task: [1, 1, 0, ok, 1, 0]}
        cells = {task: {"camera": {str(cell_of(0.25)): ok}}}
        store.records.note_windows(
            [Window(BEGAN_S + 20.0, "gateway-0", life, "closest", counts, cells, (), {})]
        )
    store.records.note_windows(
        [Window(BEGAN_S + 20.0, "gateway-0", 2.0, "closest", {task: [1, 1, 0, 2, 1, 0]}, {}, (), {})]
    )
    node = scenario.topology.nodes[0].name
    store.records.note_spans(
        [(BEGAN_S, BEGAN_S + 50.0, Held(node, "gone by then", "streams", 1.0))],
        [(BEGAN_S + 60.0, Held(node, worker, "streams", 2.0, 1e9))],
    )
    found = live_run(tmp_path / "state")
    assert found.work == "streams" and found.seeds == (0,)
    first, second = found.items.sort_by("stream").to_pylist()
    assert (first["open_s"], first["close_s"], first["worker"]) == (0.0, 10.0, worker)
    assert (first["queries"], first["ok"], first["failed"], first["delay_mean_s"]) == (4, 3, 1, 0.25)
    assert (first["reason"], second["reason"], second["rejected"]) == (None, "full", 5)
    (window,) = found.windows.to_pylist()
    assert (window["ok"], window["failed"], window["queries"], window["streams_opened"]) == (4, 2, 6, 2)
    assert window["active"] == "closest"
    (delay,) = found.use["delays"].to_pylist()
    assert (
        delay["above_s"] <= 0.25 < delay["up_to_s"] and delay["answers"] == 2
    )  # the last row of a life counts
    held = {row["owner"]: row for row in found.use["holds"].to_pylist()}
    assert (held["gone by then"]["start_s"], held["gone by then"]["end_s"]) == (0.0, 30.0)
    assert (held[worker]["start_s"], held[worker]["end_s"], held[worker]["cores"]) == (40.0, 80.0, 2.0)
    (row,) = found.summary()
    assert row["success"] == pytest.approx(3 / 9)


def test_a_run_that_is_shorter_than_a_window_has_the_end_of_the_one_that_it_began_in(store, tmp_path):
    window_s = load_scenario("tiny").window_s
    store.put(RUN, {"began_s": BEGAN_S, "ended_s": BEGAN_S + window_s})
    store.put("policies since", dict.fromkeys(store.get("policies since"), BEGAN_S + 0.7 * window_s))
    stream(store, 7, 0.75 * window_s, ok=1, answered=1)
    counts = {"object-detection": [1, 1, 0, 1, 0, 0]}
    store.records.note_windows([Window(BEGAN_S, "gateway-0", 1.0, "closest", counts, {}, (), {})])
    (window,) = live_run(tmp_path / "state").windows.to_pylist()
    assert (window["start_s"], window["end_s"]) == pytest.approx((0.0, 0.25 * window_s))


def test_a_run_folder_is_written_that_reports_read_and_only_its_owner_may(store, tmp_path):
    stream(store, 7, 20.0, ok=3, worker=load_scenario("tiny").topology.workers[0].name)
    place = saved(tmp_path / "state")
    assert place == tmp_path / "state" / "records" and (place / "report.html").is_file()
    run = read_run(place)
    assert run.kind == "streams" and run.manifest["live"]["since_s"] == BEGAN_S + 20.0
    assert "nothing is simulated" in (place / "report.html").read_text()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert load_scenario(place / "scenario.yaml").duration_s == pytest.approx(80.0)
    assert saved(tmp_path / "state", tmp_path / "other") == tmp_path / "other"


def test_a_run_begins_when_a_policy_was_switched_or_with_the_last_seconds_asked_for(store, tmp_path):
    for number, opened_s in ((1, 10.0), (2, 50.0), (3, 90.0)):
        stream(store, number, opened_s, ok=1)

    def numbers(**given):
        return sorted(live_run(tmp_path / "state", **given).items["stream"].to_pylist())

    assert numbers() == [1, 2, 3]
    assert numbers(last_s=20.0) == [3]
    store.put("policies since", {"dispatch": BEGAN_S + 40.0})
    assert numbers() == [2, 3]
    assert live_run(tmp_path / "state").live["why"] == "dispatch is decided as now"
    store.put(RUN, {"began_s": BEGAN_S + 95.0, "ended_s": None})
    with pytest.raises(RunError, match="no work came since the system was started"):
        live_run(tmp_path / "state")


def test_what_was_forgotten_is_in_no_table(store, tmp_path, monkeypatch):
    from edgewise.runtime.clients import lived

    monkeypatch.setattr(lived, "BOUNDED", (("request", "at_s", 2),))
    stream(store, 1, 10.0, ok=1)
    stream(store, 2, 50.0, ok=1)
    made = [Request(BEGAN_S + at_s, "s", "none", 1.0, 1.0, None, BEGAN_S + at_s, "late") for at_s in (30, 40)]
    store.records.note_requests(made)
    assert live_run(tmp_path / "state").items["stream"].to_pylist() == [2]


@pytest.mark.parametrize("delay_s", [1e-4, 0.0123, 0.25, 1.0, 33.3])
def test_cells_are_those_of_simulation(delay_s):
    k = delay_cell(delay_s)
    assert cell_of(delay_s) - FIRST_FINE == k
    assert CELL_ENDS_S[k] <= delay_s < CELL_ENDS_S[k + 1]


def drained(tally):
    rows = tally.changed(100.0, "g", 5.0, "closest")
    tally.written()
    return rows


def test_queries_count_in_the_window_of_their_sending_and_what_is_handed_out_is_all_so_far():
    tally = StreamTally(10.0)
    tally.opened(1.0, "a", bound=True)
    tally.query(1.0, "a", "ok")
    (first,) = drained(tally)
    assert (first.start_s, first.life) == (100.0, 5.0)
    assert dict(zip(COUNTS, first.counts["a"], strict=True))["ok"] == 1
    assert drained(tally) == []
    tally.query(9.9, "a", "failed")
    tally.query(10.0, "a", "ok")
    rows = tally.changed(100.0, "g", 5.0, "closest")
    assert [row.counts["a"] for row in rows] == [[1, 1, 0, 1, 1, 0], [0, 0, 0, 1, 0, 0]]
    assert drained(tally) == rows  # which were not written yet


def test_how_long_workers_worked_is_counted_from_look_to_look():
    tally = StreamTally(10.0)
    tally.worked(1.0, "w", 50.0, 4.0)  # what it did before nobody here saw
    assert drained(tally) == []
    tally.worked(2.0, "w", 50.0, 4.5)
    tally.worked(3.0, "w", 50.0, 5.0)
    tally.worked(4.0, "idle", 50.0, 0.0)  # in a window that there is, it is known to be there
    (row,) = drained(tally)
    assert row.worked == [("w", 50.0, 4.0, 5.0), ("idle", 50.0, 0.0, 0.0)]
    tally.worked(11.0, "w", 50.0, 5.0)
    assert drained(tally) == []
    tally.worked(12.0, "w", 60.0, 0.25)  # it began anew
    (row,) = drained(tally)
    assert (row.start_s, row.worked) == (110.0, [("w", 60.0, 0.0, 0.25)])


def test_busy_workers_and_links_are_tables_of_a_live_run(store, tmp_path):
    scenario = load_scenario("tiny", {"sharing": "fifo"})
    small, large = (worker.name for worker in scenario.topology.workers)
    stream(store, 7, 20.0, worker=small, ok=3)
    spans = [(BEGAN_S, BEGAN_S + 60.0, Held("near-node", small, "streams", 1.0))]
    spans += [
        (BEGAN_S + 40.0, BEGAN_S + 90.0, Held("near-node", f"s@near-node#{k}", "services", 1.0))
        for k in (0, 1)
    ]
    store.records.note_spans(spans, [(BEGAN_S, Held("far-node", large, "streams", 1.0))])
    seen = [(small, 1.0, 2.0, 3.5), ("s@near-node#0", 2.0, 0.0, 4.0), ("s@near-node#1", 2.0, 0.0, 2.0)]
    sent = {"site": {"near": (1000, 10), "far": (500, 0)}, "closed since": {"near": (7, 7)}}
    store.records.note_windows(
        [
            Window(BEGAN_S + 20.0, "gateway-0", 1.0, "closest", {}, {}, seen, sent),
            Window(BEGAN_S + 20.0, "gateway-1", 1.0, "closest", {}, {}, [(small, 1.0, 2.5, 4.0)], sent),
            Window(BEGAN_S + 95.0, "gateway-0", 1.0, "closest", {}, {}, [(small, 9.0, 0.0, 0.5)], {}),
        ]
    )
    found = live_run(tmp_path / "state").use
    rows = {row["worker"]: row for row in found["workers"].to_pylist()}
    assert rows.keys() == {small, "s on near-node"}  # the other one did not say what it did
    assert (rows[small]["busy_s"], rows[small]["there_s"]) == (2.0 + 0.5, 40.0)  # two gateways saw the same
    both = rows["s on near-node"]
    assert (both["work"], both["node"], both["busy_s"], both["there_s"]) == (
        "services",
        "near-node",
        6.0,
        100.0,
    )
    links = found["links"].to_pylist()
    assert {row["link"] for row in links} == {
        "site-near:up",
        "site-near:down",
        "site-far:up",
        "site-far:down",
    }
    bits = {row["link"]: row["sent_bits"] for row in links if row["start_s"] == 0.0}
    assert bits == {
        "site-near:up": 16000.0,
        "site-near:down": 160.0,
        "site-far:up": 8000.0,
        "site-far:down": 0.0,
    }
    spans_s = sorted({(row["start_s"], row["end_s"]) for row in links})
    assert spans_s == [(5.0 * k, 5.0 * k + 5.0) for k in range(16)]  # all of the run, also where nothing went
    assert sum(row["sent_bits"] for row in links) == sum(bits.values())


@pytest.mark.parametrize("source", ["near-0", "near-1"])
def test_flows_over_cables_that_messages_share_are_of_those_as_in_a_simulation(tmp_path, source):
    """A pipeline over `lan` for ten seconds; who looks at both runs finds the same of the same links."""
    data = held(laid("fifo", 100e6, source=source, pipeline_at_s=5.0, frames=100), "streams", "pipelines")
    simulated, _ = run_of(data, place=Across, check=True)
    scenario = parse_scenario(data, "laid")
    store = prepare(tmp_path / "state", scenario)
    store.put("policies since", dict.fromkeys(store.get("policies since"), BEGAN_S))
    store.put(RUN, {"began_s": BEGAN_S, "ended_s": BEGAN_S + scenario.duration_s})
    plane = LivePlane(store)
    plane.listen(BEGAN_S)
    core = PlaceCore(network_of(scenario), Across(), ledger=plane.ledger)
    holds = LiveHolds(plane, SimpleNamespace(core=core))
    (pipeline,) = pipelines_of(scenario, 0)
    record = simulated.parts["pipelines"].world.outcome().pipelines[0]
    holds.step(BEGAN_S)
    core.handle(PipelineSubmitted(arrays_of(pipeline, 0, core.network)))
    core.handle(PlacementDue(record.start_s))
    holds.step(BEGAN_S + record.start_s)
    core.handle(PipelineEnded(0))
    holds.step(BEGAN_S + record.finish_s)
    holds.end(BEGAN_S + scenario.duration_s)
    stream(store, 7, 0.0, ok=1)
    found = live_run(tmp_path / "state").use

    beside, live = simulated.use(), {name: each.to_pydict() for name, each in found.items()}
    assert set(live["links"]["link"]) == set(beside["links"]["link"])
    sums = {}
    for who, links in (("live", live["links"]), ("simulated", beside["links"])):
        for link, start_s, end_s, bps in zip(
            *(links[name] for name in ("link", "start_s", "end_s", "reserved_bps")), strict=True
        ):
            sums[who, link] = sums.get((who, link), 0.0) + (end_s - start_s) * bps
    spent = FLOW_BPS * (record.finish_s - record.start_s)
    (used,) = {link for (_, link), bits in sums.items() if bits}
    assert used == ("lan:up" if source == "near-0" else "lan:down")
    assert sums["live", used] == pytest.approx(spent)
    step_s = scenario.duration_s / LOOKS  # a simulation notes what is reserved at moments
    assert sums["simulated", used] == pytest.approx(spent, abs=2 * step_s * FLOW_BPS)
    for rows in (live["holds"], beside["holds"]):
        assert set(rows["place"]) == {node.name for node in scenario.topology.nodes} and not any(rows["bps"])
    store.close()


def test_a_gateway_that_runs_for_long_keeps_few_windows_and_few_names():
    tally, unread = StreamTally(1.0), StreamTally(1.0)
    for second in range(100):
        tally.query(float(second), "a", "ok")
        drained(tally)
        unread.query(float(second), "a", "ok")
    assert len(unread.changed(0.0, "g", 0.0, "p")) == UNWRITTEN
    tally.query(0.0, "a", "ok")  # an answer that comes very late
    (row,) = drained(tally)
    assert row.start_s == 200 - KEPT and row.counts["a"][3] == 2
    for name in range(3 * MOST):
        tally.answered(100.0, "a", f"application {name}", 0.1)
    (row,) = drained(tally)
    assert len(row.delays["a"]) == MOST + 1 and sum(row.delays["a"][OTHERS].values()) == 2 * MOST


def test_who_holds_what_goes_on_over_the_death_of_a_controller(store):
    scenario = load_scenario("tiny")
    node = scenario.topology.workers[0].node

    def controller(now_s):
        plane = LivePlane(store)
        holds = LiveHolds(plane, SimpleNamespace(core=None))
        plane.listen(now_s)
        holds.step(now_s)
        return plane, holds

    controller(1.0)
    held = store.records.held()
    assert {what.owner for _, what in held} == {worker.name for worker in scenario.topology.workers}
    assert {since_s for since_s, _ in held} == {1.0} and {what.work for _, what in held} == {"streams"}
    assert {what.place for what in store.records.totals()} == {each.name for each in scenario.topology.nodes}
    plane, holds = controller(5.0)  # another one
    assert store.records.held() == held and store.records.spans() == []
    store.change_node(node, up=False)
    plane.listen(9.0)
    holds.step(9.0)
    assert (9.0, "gone") in {
        (since_s, what.work) for since_s, what in store.records.held() if what.place == node
    }
    holds.end(20.0)
    assert store.records.held() == []
    assert {end_s for _, end_s, what in store.records.spans() if what.work == "gone"} == {20.0}
    assert all(start_s in (1.0, 9.0) for start_s, *_ in store.records.spans())


def test_a_stream_counts_on_in_its_gateways_next_life():
    world = World.build(*(getattr(load_scenario("tiny"), name) for name in ("catalog", "topology")))
    needs = Stream(4, 0, "camera", "object-detection", 0.0, math.inf, 2.0, 100.0, 1.0, 0.0)
    first, second = Served(needs, Bucket(1.0, 1.0, 0.0)), Served(needs, Bucket(1.0, 1.0, 0.0))
    first.counts.update(ok=5, failed=1, excess=2)
    first.answered, first.delay_sum_s, first.delay_max_s = 6, 3.0, 0.75
    second.go_on(json.loads(json.dumps(first.outcome(first.row(world, 9.0)))))
    assert second.row(world, 9.0) == first.row(world, 9.0)
    second.go_on({})
    assert (second.answered, second.counts["ok"]) == (0, 5)
