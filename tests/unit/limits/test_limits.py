"""What limits a run, planted: a full link, full boxes, workers that no node raises, nothing that serves."""

import json
from dataclasses import replace

import pyarrow.compute as pc
import pytest

import edgewise as ew
from edgewise import sweeps
from edgewise.limits.checked import Checked
from edgewise.limits.words import Limit, in_words
from edgewise.model.parsing import parse_scenario
from edgewise.sweeps.limited import deciding
from in_process import edgewise
from limits_worlds import FEW_WORKERS, FULL_BOXES, FULL_LINK, NO_TIME, NO_VARIANT, scenario, world, written

FAIR = {"dispatch": "least-loaded-feasible"}
TARGET = "streams.ok=90%"


def limits_of(**given):
    """Limits of three runs, and the result."""
    result = ew.simulate(scenario(**given), seeds=range(3))
    ((_, found),) = result.limits.items()
    return found, result


@pytest.mark.parametrize(
    ("given", "kind", "name", "words"),
    [
        (FULL_LINK, "link", "wan:up", "the link wan (up) is full"),
        (FULL_BOXES, "node", "box", "box has no room for another (0 of 2 cores free, it takes 2)"),
        (FEW_WORKERS, "worker", "small-cpu at box", "there is room for 3 more"),
        (NO_VARIANT, "variant", "camera", "it wants an accuracy of 60, the best worker has 50"),
        (NO_TIME, "deadline", "camera", "takes 56 ms, 16 ms too long"),
    ],
)
def test_what_was_planted_is_named_first(given, kind, name, words):
    found, result = limits_of(**given)
    first = found[0]
    assert (first.kind, first.name) == (kind, name) and words in first.text
    assert in_words(found)[0] == f"first to break: {first.text}"
    lost = [1.0 - row["success"] for row in result.summary()]
    assert first.lost == pytest.approx(sum(lost) / 3, abs=0.08) and first.when_s is not None
    assert len(first.cures) >= 1 and first.cures[0].changes


def test_every_query_that_was_lost_is_put_down_to_one_thing():
    for name in ("three-tier", "tiny"):
        loaded = ew.load_scenario(name)
        loud = replace(
            loaded, streams=replace(loaded.streams, arrivals=type(loaded.streams.arrivals)(((0.0, 90.0),)))
        )
        result = ew.simulate(loud, seeds=(0, 1))
        table = result.items
        lost = pc.sum(table["failed"]).as_py() + pc.sum(table["rejected"]).as_py()
        (found,) = result.limits.values()
        assert lost > 0
        assert sum(each.lost for each in found) == pytest.approx(
            lost / pc.sum(table["queries"]).as_py(), rel=1e-9
        )


def test_what_a_link_was_asked_for_counts_the_refused():
    """12 streams of 2 Mbit/s are there in the mean: 24 of 20 Mbit/s over the run, more at the busiest."""
    found, result = limits_of(**FULL_LINK)
    items = result.items.to_pylist()
    assert any(row["reason"] for row in items)
    bits = sum(8.0 * row["rate_qps"] * row["size_bytes"] * (row["close_s"] - row["open_s"]) for row in items)
    mean = bits / 60.0 / 3 / 20e6
    assert 1.0 < mean < found[0].share < 2.0 * mean
    (path, bps), *_ = found[0].cures[0].changes
    assert path == "links.wan.bandwidth_bps" and bps == pytest.approx(found[0].share * 20e6 / 0.8, rel=0.05)


def test_a_node_that_went_down_is_named():
    data = world(deadline="40ms", per_min=30, workers=1)
    data["timeline"] = [{"at_s": 30, "node": "box", "up": False}]
    result = ew.simulate(parse_scenario(data, "planted"), seeds=range(3))
    (found,) = result.limits.values()
    assert (found[0].kind, found[0].name) == ("node", "box") and "down from second 3" in found[0].text


def test_where_nothing_is_lost_the_fullest_is_next():
    quiet, _ = limits_of(per_min=1)
    assert in_words(quiet) == [
        "nothing is near its limit: no link, node or worker is half full at its busiest"
    ]
    next_ = [Limit("link", "wan", 0.7, 0.0, None, "the link wan is 70 % full")]
    assert in_words(next_) == ["first to break with more work: the link wan is 70 % full"]


def test_queries_that_wait_for_each_other_are_put_down_to_their_worker():
    """Two thirds busy, 25 ms a query, of which 10 ms may be spent in line."""
    found, result = limits_of(deadline="40ms", per_min=60, box_cores=8)
    assert 0.1 < found[0].lost < 0.6 and (found[0].kind, found[0].name) == ("worker", "small-cpu at box")
    assert "queries wait for each other longer than their deadlines leave" in found[0].text


def test_jobs_that_find_no_room_name_the_nodes():
    data = world(per_min=1, box_cores=4)
    data["jobs"] = {"slot_s": 5, "submitted": [
        {"name": f"j{k}", "cores": 40, "duration_s": 50, "latest_s": 5} for k in range(3)]}  # fmt: skip
    result = ew.simulate(parse_scenario(data, "planted"), seeds=(0,))
    (found,) = result.limits.values()
    assert (found[0].kind, found[0].name) == ("node", "all nodes") and found[0].lost == pytest.approx(2 / 3)


def size(file, vary, **more):
    points = sweeps.Points(file, (sweeps.parse_vary(vary, sweeps.FINE),), seeds=tuple(range(4)), **more)
    return sweeps.size(points, [sweeps.parse_target(TARGET)])


def test_size_says_that_servers_do_not_cure_a_full_link_and_tries_what_does(tmp_path):
    found = size(written(tmp_path, **FULL_LINK), "workers.1.count=8..10")
    text = "\n".join(found.sentences)
    assert not found.found and "no value meets success ≥ 90.00 %" in text
    assert "first to break: the link wan (up) is full" in text
    assert "more of workers.1.count does not cure it: what limits is the link wan:up" in text
    (limited,) = found.limited
    assert limited.tried[-1].met and limited.tried[-1].found[0] > 0.9
    assert limited.tried[0].changes["links.wan.bandwidth_bps"] > 20e6
    assert "tried with 3 seeds: links.wan.bandwidth_bps = " in text and "meets success ≥ 90.00 %" in text
    assert json.loads(json.dumps(found.summary()))["limited"][0]["limits"][0]["name"] == "wan:up"


def test_size_says_that_nodes_do_not_raise_a_fixed_count_of_workers(tmp_path):
    file = written(tmp_path, **FEW_WORKERS)
    data = "clusters.0.nodes.0.resources.cpu_cores=8..10"
    found = size(file, data)
    text = "\n".join(found.sentences)
    assert not found.found and found.limited[0].limits[0].kind == "worker"
    assert (
        "more of clusters.0.nodes.0.resources.cpu_cores does not cure it: what limits is the worker" in text
    )
    assert "workers.0.count" in found.limited[0].tried[0].changes


def test_size_says_how_many_workers_a_node_holds(tmp_path):
    """A box of 4 cores holds two workers; three and more cannot be, and two are tried."""
    found = size(written(tmp_path, **FULL_BOXES | {"box_cores": 4}), "workers.0.count=1..6")
    text = "\n".join(found.sentences)
    assert "with workers.0.count = 2, the most" in text
    assert "workers.0.count = 3 cannot be:" in text and "2 of 3 workers of 'small-cpu' fit" in text
    assert (found.limited[0].limits[0].kind, found.limited[0].limits[0].name) == ("node", "box")


def test_a_size_that_fits_among_those_that_cannot_be_is_found(tmp_path):
    found = size(written(tmp_path, **FEW_WORKERS | {"per_min": 20}), "workers.0.count=1..9", fixed=FAIR)
    assert found.found and found.found[0].point[0] <= 4


def test_a_cure_that_does_not_suffice_says_by_how_much(tmp_path):
    found = size(written(tmp_path, **NO_TIME | {"per_min": 6000}), "workers.1.count=1..2")
    tries = found.limited[0].tried
    assert tries and all("tried" in each.text for each in tries)
    short = [each for each in tries if not each.met]
    assert short and "fails success ≥ 90.00 % by " in short[0].text


def test_cures_of_a_kind_of_boxes_count_for_each_node():
    """A node more in each box brings its workers along; a worker more is one on each box that has room."""
    eight = {"streams.sources.till.count": 8}
    for cores, text in (
        (9.0, "one more node like box-0.node"),
        (20.0, "workers.1.count = 2 (yolov3-cpu8 at box)"),
    ):
        settings = eight | {"clusters.box.nodes.node.resources.cpu_cores": cores}
        result = ew.simulate(ew.load_scenario("cameras", settings), "least-impedance", seeds=[0])
        (cure,) = result.limits["least-impedance"][0].cures
        assert text in cure.text
        better = ew.load_scenario("cameras", settings | dict(cure.changes))
        (success,) = ew.simulate(better, "least-impedance", seeds=[0]).values()["least-impedance"]
        assert success > 0.95 > result.values()["least-impedance"][0] + 0.1


def test_size_says_when_more_seeds_would_decide():
    class Known(sweeps.Points):
        def __init__(self, shares):
            super().__init__(
                "tiny", (sweeps.parse_vary("duration_s=20,21"),), seeds=tuple(range(len(shares)))
            )
            for seed, share in enumerate(shares):
                row = {measure.key: share for measure in self.measures} | {"decided": {}}
                self.rows[(20,), self.labels[0], seed] = row

    target = [sweeps.parse_target("streams.ok=50%")]
    far, near, met = Known([0.3, 0.7, 0.5, 0.58]), Known([0.5, 0.5, 0.4, 0.6]), Known([0.7, 0.71, 0.72, 0.7])
    said = deciding(far, target, (20,), far.labels[0])
    # The interval must shrink from half of 0.27 to the 0.02 above the target.
    assert said.startswith("is open: about ") and "more seeds would decide (--seeds 0:" in said
    more = int(said.split("about ")[1].split()[0])
    assert 400 < more < 1200
    assert "10,000 seeds would not decide" in deciding(near, target, (20,), near.labels[0])
    assert deciding(met, target, (20,), met.labels[0]) is None


def test_a_point_that_cannot_be_is_said_and_what_limits_is_that_of_the_nearest_that_can(tmp_path):
    """A box of two cores has room for one worker; of two there is no verdict, and nothing was refused."""
    file = written(tmp_path, **FULL_BOXES)
    points = sweeps.Points(file, (sweeps.parse_vary("workers.0.count=1..3"),), seeds=(0, 1))
    found = sweeps.sweep(points, [sweeps.parse_target(TARGET)])
    headings, rows = found.shown()
    cells = [dict(zip(headings, row, strict=True)) for row in rows]
    assert [row["verdict"] for row in cells] == ["surely not", "cannot be", "cannot be"]
    assert "refused" in cells[0]["left over"] and [row["left over"] for row in cells[1:]] == ["", ""]
    text = "\n".join(found.sentences)
    assert "count = 2 cannot be:" in text and "1 of 2 workers of 'small-cpu' fit" in text
    assert "least-harm, at 1: first to break: " in text and "box has no room for another" in text


def test_sweep_names_what_breaks_where_it_is_too_much(tmp_path):
    file = written(tmp_path, **FULL_LINK)
    points = sweeps.Points(
        file, (sweeps.parse_vary("streams.arrivals.clients_per_min=60,240"),), seeds=(0, 1, 2)
    )
    found = sweeps.sweep(points, [sweeps.parse_target(TARGET)], cure=True)
    text = "\n".join(found.sentences)
    assert "carries clients_per_min up to 60" in text
    assert "least-harm, at 240: first to break: the link wan (up) is full" in text
    assert "least-harm, at 240: tried with 3 seeds: links.wan.bandwidth_bps" in text


@pytest.mark.parametrize(
    ("given", "vary", "says"),
    [
        (FULL_LINK, "workers.1.count=8..9", "the link wan (up) is full"),
        (FULL_BOXES, "links.wan.bandwidth_bps=10Mbps,30Mbps", "box has no room for another"),
        (FEW_WORKERS, "clusters.0.nodes.0.resources.cpu_cores=8..9", "there is room for 3 more"),
        (NO_VARIANT, "workers.0.count=1..2", "it wants an accuracy of 60, the best worker has 50"),
    ],
)
def test_every_command_and_its_report_name_what_was_planted(tmp_path, given, vary, says):
    """Whatever is varied, if it is not what limits, what limits is named."""
    file = written(tmp_path, **given)
    seeds = ("--seeds", "0:2", "--target", TARGET)
    for command in (
        ("simulate", file, "--seeds", "0:2"), ("sweep", file, "--vary", vary, *seeds),
        ("size", file, "--vary", vary, *seeds),
    ):  # fmt: skip
        out = tmp_path / command[0]
        done = edgewise(*command, "--out", str(out), cwd=tmp_path)
        said = " ".join(done.stdout.split())
        assert "first to break" in said and says in said, (command, done.stdout, done.stderr)
        page = (out / "report.html").read_text()
        assert "first to break" in page.lower() and says in page, command
        top = page[: page.index("<h2>Picture")]  # who did what on what stands above all pictures
        assert all(f"<dt>{name}</dt>" in top for name in ("Scenario", "Hardware", "Policies")), command
        assert '<span class="ci">0.00 … 0.00' not in page  # an interval without a width says nothing
        assert "1 × (64 cores" in top and "least-harm decides which worker answers a stream" in top
        if command[0] != "simulate":
            assert says in (out / "summary.json").read_text(), command


def test_simulate_and_its_report_say_what_limits(tmp_path):
    file = written(tmp_path, **FULL_LINK)
    done = edgewise("simulate", file, "--cure", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "first to break: the link wan (up) is full" in done.stdout
    assert "tried with 3 seeds: links.wan.bandwidth_bps = " in done.stdout and " instead of " in done.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What limits" in page and "the link wan (up) is full" in page
    again = edgewise("report", "run", cwd=tmp_path)
    assert again.returncode == 0 and (tmp_path / "run" / "report.html").read_text() == page
    done = edgewise("simulate", file, "--json", "--out", "run", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["limits"]["least-harm"][0]["kind"] == "link" and found["tried"] == []


def test_sources_are_limited_by_their_names():
    """Six cameras of 2 Mbit/s each send 12 of 10 Mbit/s; a seventh asks for what nothing can."""
    data = world(wan="10Mbps")
    camera = {
        "task": "detection",
        "rate_qps": 5,
        "size_bytes": 50e3,
        "deadline_s": "200ms",
        "min_accuracy": 40,
    }
    data["streams"] = {"sources": [{"name": "yard", "count": 6, **camera},
                                   {"name": "odd", **camera, "min_accuracy": 60}]}  # fmt: skip
    built = parse_scenario(data, "planted")
    found = Checked(built)
    assert not found.servable and [each.name for each in found.unserved] == ["odd"]
    assert found.unserved[0].cures[-1].changes == (("streams.sources.odd.min_accuracy", 50.0),)
    link = next(each for each in found.limits if each.kind == "link")
    assert link.name == "wan:up" and link.share == pytest.approx(1.2)
    result = ew.simulate(built, seeds=(0, 1))
    (limits,) = result.limits.values()
    by = {each.kind: each for each in limits}
    assert by["variant"].name == "odd" and by["variant"].lost == pytest.approx(1 / 7, rel=0.01)
    assert by["link"].name == "wan:up" and by["link"].share == pytest.approx(1.2, rel=0.01)
