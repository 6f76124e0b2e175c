"""Sweeps and sizes: what is varied, the knee, the cheapest, and that nothing is run twice."""

import json
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import edgewise as ew
from edgewise import sweeps
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.model.ranges import seeds_of
from edgewise.report.intervals import Interval, mean_interval
from edgewise.sweeps.points import price
from edgewise.sweeps.size import hinge, said
from edgewise.sweeps.vary import parse_target
from edgewise.sweeps.verdicts import best_first
from in_process import edgewise
from waiting import wait_until

LOAD = "streams.arrivals.clients_per_min"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=2..5", (2, 3, 4, 5)),
        ("a.b=2:5", (2, 3, 4)),
        ("a.b=20..200", tuple(range(20, 201, 20))),
        ("a.b=20:200", tuple(range(20, 200, 18))),
        ("a.b=0..1..0.25", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("a.b=0:1:0.25", (0.0, 0.25, 0.5, 0.75)),
        ("a.b=5..60..5", tuple(range(5, 61, 5))),
        ("a.b=5:60:5", tuple(range(5, 60, 5))),
        ("a.b=2..9..3", (2, 5, 8)),
        ("a.b=2:9:3", (2, 5, 8)),
        ("a.b=0.1:0.4:0.1", (0.1, 0.2, 0.3)),
        ("a.b=-2..2..2", (-2, 0, 2)),
        ("a.b=4..4", (4,)),
        ("a.b=10ms..50ms/3", ("10ms", "30ms", "50ms")),
        ("a.b=10..50ms/2", ("10ms", "50ms")),
        ("a.b=10:50ms/2", ("10ms", "30ms")),
        ("a.b=1e-5", ("1e-5",)),
        ("a.b=one,per_site", ("one", "per_site")),
        ("a.b=[1, 2],[3, 4]", ([1, 2], [3, 4])),
        ("a.b=7", (7,)),
    ],
)
def test_what_is_varied_is_read_as_it_is_written(text, values):
    assert sweeps.parse_vary(text) == sweeps.Vary("a.b", values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.b", r"write PATH=RANGE or PATH=a,b,c; a range is A\.\.B"),
        ("a.b=", "write PATH=RANGE"),
        ("a.b=5..2", "lower end first"),
        ("a.b=5:5", r"is empty, since its end does not belong to it; write 5\.\.5"),
        ("a.b=1..5..0", "a step above 0"),
        ("a.b=1..5/0", "lower end first"),
        ("a.b=1..5:2", r"is no range; write A\.\.B \(both ends\), A:B \(without B\)"),
        ("a.b=1-5", "is no range"),
        ("a.b=1..x", "is no range"),
        ("a.b=1ms..5GB", "has the units GB, ms; use one, known, in all"),
        ("a.b=1x..5x", "has the unit x; use one, known, in all"),
        ("a.b=1,2,1", "there twice"),
    ],
)
def test_what_cannot_be_varied_is_said(text, message):
    with pytest.raises(EdgewiseError, match=message):
        sweeps.parse_vary(text)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0:10", range(10)),
        ("0..9", range(10)),
        ("7", range(7, 8)),
        ("3..3", range(3, 4)),
        ("5:60", range(5, 60)),
    ],
)
def test_ranges_mean_their_ends_alike_for_seeds_and_for_what_is_varied(text, seeds):
    assert seeds_of(text) == seeds
    assert sweeps.parse_vary(f"a.b={text}", sweeps.FINE).values == tuple(seeds)


@pytest.mark.parametrize(("text", "said"), [("30:300:90", "30..300..90"), ("30..300..90", "")])
def test_who_leaves_an_end_out_that_may_be_wanted_is_told(text, said, tmp_path):
    vary = sweeps.parse_vary(f"{LOAD}={text}")
    assert (vary.with_its_end, vary.values) == (said, (30, 120, 210) if said else (30, 120, 210, 300))
    assert not sweeps.parse_vary(f"{LOAD}=30:200:90").with_its_end  # 210 is beyond both
    if said:
        done = edgewise("sweep", "tiny", "--vary", f"{LOAD}=200:400:200", "--seeds=0..1", cwd=tmp_path)
        assert f"--vary {LOAD}: A:B leaves B out, as in --seeds; 200..400..200 has it" in done.stderr
        assert "means over 2 seeds" in done.stdout and done.returncode == 0


def test_a_point_at_which_nothing_comes_cannot_be_run(tmp_path):
    done = edgewise("sweep", "tiny", "--vary", f"{LOAD}=1,90", "--seeds=0..3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "1: cannot be run: with seed " in done.stderr
        and "none of its streams comes; take more" in done.stderr
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("streams.ok=99%", "success ≥ 99.00 %"),
        ("streams.success>=0.99", "success ≥ 99.00 %"),
        ("streams.rejected=1%", "rejected ≤ 1.00 %"),
        ("services.in_time=95%", "in time ≥ 95.00 %"),
        ("graphs.p99_s=50ms", "99 % ≤ 50.00 ms"),
        ("pipelines.mean_throughput_fps=12", "frames/s ≥ 12.000"),
    ],
)
def test_targets_are_read_with_the_side_that_is_better(text, shown):
    assert str(sweeps.parse_target(text)) == shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("streams.ok", "write WORK.MEASURE=VALUE"),
        ("cameras.ok=1", "unknown work 'cameras'"),
        ("streams.okay=1", "streams have no 'okay'"),
        ("streams.ok=99", "write 0.99 or 99%"),
        ("streams.ok=all", "is not a number"),
    ],
)
def test_targets_that_are_wrong_are_said(text, message):
    with pytest.raises(EdgewiseError, match=message):
        sweeps.parse_target(text)


def test_a_target_is_met_by_the_worse_end_of_the_interval():
    target = sweeps.parse_target("streams.ok=90%")
    assert target.met(Interval(0.95, 0.90, 1.0, 5)) and not target.met(Interval(0.95, 0.89, 1.0, 5))
    assert target.missed(Interval(0.8, 0.7, 0.89, 5)) and not target.missed(Interval(0.8, 0.6, 0.9, 5))
    assert not target.met(Interval(1.0, None, None, 1)) and not target.missed(Interval(0.0, None, None, 1))
    late = sweeps.parse_target("graphs.p99_s=50ms")
    assert late.met(Interval(0.04, 0.03, 0.05, 5)) and not late.met(Interval(0.04, 0.03, 0.051, 5))


def test_the_hinge_of_a_bent_line_is_found():
    x = np.arange(0.0, 100.0, 10.0)
    noise = np.random.default_rng(1).normal(0.0, 0.5, x.size)
    for bend in (20.0, 50.0, 80.0):
        assert hinge(x, 3.0 - 2.0 * np.maximum(0.0, x - bend) + noise) == bend


class Curve(sweeps.Points):
    """Points whose measures are a known function of the point, without a run."""

    def __init__(self, success, vary, seeds=range(5)):
        self.success, self.asked = success, []
        super().__init__("tiny", tuple(map(sweeps.parse_vary, vary)), seeds=tuple(seeds))

    def scenario(self, point, more=()):
        return ew.load_scenario("tiny")

    def run(self, points):
        for point in points:
            self.asked.append(point)
            for seed in self.seeds:
                share = self.success(*point) + 0.001 * (seed - 2)
                row = {measure.key: share for measure in self.measures} | {"decided": {}}
                self.rows[point, self.labels[0], seed] = row


TARGET = [sweeps.parse_target("streams.ok=90%")]


def test_the_knee_is_the_last_load_that_is_surely_met():
    """With a half interval of 0.00196: 0.90 is neither surely met nor surely missed."""
    points = Curve(lambda x: 1.02 - x / 1000, [f"{LOAD}=20..200"])
    (knee,) = sweeps.sweep(points, TARGET).found
    assert (knee.kind, knee.value, knee.missed) == ("up to", 100, 140)
    assert "carries clients_per_min up to 100 with success ≥ 90.00 %" in knee.text


def test_the_table_says_of_each_point_whether_it_meets_the_target_and_what_was_left():
    points = Curve(lambda x: 1.02 - x / 1000, [f"{LOAD}=100..140..20"])
    headings, rows = sweeps.sweep(points, TARGET).shown()
    assert headings == ["clients_per_min", "policy", "success %", "verdict", "left over"]
    assert [row[3] for row in rows] == ["meets it", "not surely", "surely not"]  # 0.92, 0.90, 0.88
    assert [row[4] for row in rows] == ["92.0 % refused", "90.0 % refused", "88.0 % refused"]
    two = [*TARGET, sweeps.parse_target("streams.rejected<=95%")]
    _, rows = sweeps.sweep(Curve(lambda x: 1.02 - x / 1000, [f"{LOAD}=100..140..20"]), two).shown()
    assert [row[4] for row in rows] == ["meets all", "not surely", "surely not"]  # a figure of each before


def test_at_each_point_the_best_policy_is_named_first():
    points = Curve(lambda x: 0.0, [f"{LOAD}=1..2"])
    means = {((1,), "a"): 0.5, ((1,), "b"): 0.7, ((2,), "a"): 0.9, ((2,), "b"): 0.8, ((2,), "c"): None}
    points.rows = {
        (*each, seed): {"success": x, "rejected": x} for each, x in means.items() for seed in points.seeds
    }
    tried = list(means)
    assert best_first(points, tried, "success") == [tried[k] for k in (1, 0, 2, 3, 4)]
    assert best_first(points, tried, "rejected") == [tried[k] for k in (0, 1, 3, 2, 4)]


def test_hardware_is_needed_from_a_value_on():
    points = Curve(lambda x: 0.8 + x / 100, ["clusters.far.nodes.count=1..20..1"])
    (knee,) = sweeps.sweep(points, TARGET).found
    assert (knee.kind, knee.value, knee.missed) == ("from", 11, 9)


def test_a_target_that_is_always_or_never_met_is_said():
    always, never = (
        sweeps.sweep(Curve(lambda x, y=share: y, [f"{LOAD}=1..3"]), TARGET).found[0] for share in (0.95, 0.5)
    )
    assert always.kind == "all" and "at every" in always.text
    assert never.kind == "none" and "the best is success 50.00 % [49.80 … 50.20]" in never.text


def test_bisection_finds_the_least_that_meets_in_few_points():
    points = Curve(lambda x: 1.0 - 0.5 / x, ["clusters.far.nodes.count=1..1000"])
    points.vary = (sweeps.parse_vary("clusters.far.nodes.count=1..1000", sweeps.FINE),)
    found = sweeps.size(points, TARGET)
    assert found.found[0].point == (6,)  # 1 - 0.5 / 6 = 0.917; at 5 it is 0.9, whose lower end is below
    assert {(5,), (6,)} <= set(points.asked) and len(points.asked) <= 12
    assert "count = 5 does not surely (success 90.00 %" in found.sentences[1]


def test_the_frontier_of_two_keys_is_that_of_all_points():
    def success(x, y):
        return 1.0 - 1.0 / (x + 2 * y)

    keys = ["clusters.near.nodes.count=1..9", "clusters.far.nodes.count=1..8"]
    points = Curve(success, keys)
    found = {choice.point for choice in sweeps.size(points, TARGET).found}
    meets = {point for point in product(range(1, 10), range(1, 9)) if success(*point) > 0.902}
    least = {p for p in meets if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in meets)}
    assert found == least and len(set(points.asked)) <= 17


def test_hardware_costs_what_its_nodes_say_or_their_cores():
    plain = ew.load_scenario("tiny")
    assert price(plain) == (10.0, "cores")
    path = {"clusters.near.nodes.cost": 300, "clusters.far.nodes.cost": 4000, "clusters.far.nodes.count": 3}
    from edgewise.config import load_scenario

    dear = load_scenario("tiny", path)  # the only entry of a list needs no name
    assert price(dear) == (12300.0, "cost")
    with pytest.raises(ScenarioError, match="did you mean 'count'"):
        load_scenario("tiny", {"clusters.near.nodes.near-node.cout": 3})


def sweep(folder, *more):
    return edgewise("sweep", "tiny", "--vary", f"{LOAD}=30..300..90", "--seeds", "0:3", *more, cwd=folder)


FILES = {
    "scenario.yaml",
    "points.parquet",
    "points.csv",
    "summary.json",
    "figure.png",
    "report.html",
    "runs.jsonl",
}


def test_a_sweep_leaves_a_table_a_figure_and_a_knee(tmp_path):
    done = sweep(tmp_path, "--policies", "closest,least-impedance", "--target", "streams.ok=80%", "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "tiny-sweep"
    assert {path.name for path in folder.iterdir()} == FILES
    found = json.loads(done.stdout)
    assert found["vary"] == {LOAD: [30, 120, 210, 300]} and found["policies"] == [
        "closest",
        "least-impedance",
    ]
    assert len(found["found"]) == 2 and len(found["points"]) == 8
    table = pq.read_table(folder / "points.parquet")
    assert table.num_rows == 24 and table.column_names[:3] == [LOAD, "policy", "seed"]
    one = ew.simulate(ew.load_scenario("tiny"), "closest", (1,))  # the same as a run of its own
    asked = ["--set", f"{LOAD}=120", "--policy", "closest", "--seeds", "1", "--out", "own", "--json"]
    own = edgewise("simulate", "tiny", *asked, cwd=tmp_path)
    row = next(r for r in table.to_pylist() if (r[LOAD], r["policy"], r["seed"]) == (120, "closest", 1))
    assert row["success"] == json.loads(own.stdout)["summary"][0]["success"] != one.summary()[0]["success"]
    page = (folder / "report.html").read_text()
    assert all(line.split(":")[0] in page for line in found["sentences"])
    written = folder / "report.html"
    assert f"its report is {written}" in " ".join(
        edgewise("report", str(folder), cwd=tmp_path).stderr.split()
    )


def test_any_number_of_processes_gives_the_same_bytes(tmp_path):
    for jobs in "12":
        done = sweep(tmp_path, "--jobs", jobs, "--out", jobs)
        assert done.returncode == 0, done.stderr
    for name in ("points.parquet", "points.csv", "figure.png"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name
    runs = [sorted((tmp_path / jobs / "runs.jsonl").read_text().splitlines()) for jobs in "12"]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("scenario", "policies"),
    [
        ("tiny", "closest,least-impedance"),
        ("deferrable", "defer=fifo,sjf"),
        ("kais-live", "orchestrate=none,autoscaler"),
    ],
)
def test_comparisons_on_several_processes_leave_the_same_records(tmp_path, scenario, policies):
    short = ["--set", "duration_s=6"] if scenario == "kais-live" else []
    for jobs in "12":
        asked = ["--policies", policies, "--seeds", "0:3", "--jobs", jobs, "--out", jobs, *short]
        done = edgewise("compare", scenario, *asked, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for name in ("items.parquet", "windows.parquet", "summary.json", "scenario.yaml"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_errors_of_other_processes_are_one_message(tmp_path):
    (tmp_path / "bad.py").write_text(
        "from edgewise.core.dispatch.policy import ScorePolicy\nclass Bad(ScorePolicy):\n"
        "    def __init__(self):\n        raise ValueError('not today')\n"
    )
    done = sweep(tmp_path, "--policy", "bad.py:Bad", "--jobs", "2")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "not today" in done.stderr


def test_runs_that_ended_are_not_done_again(tmp_path):
    assert sweep(tmp_path).returncode == 0
    kept = tmp_path / "runs" / "tiny-sweep" / "runs.jsonl"
    lines = kept.read_text().splitlines(keepends=True)
    marked = [line.replace('"queries": ', '"queries": 1000000') for line in lines[:5]]
    kept.write_text("".join(marked) + lines[5][:40])  # the sixth was being written
    assert sweep(tmp_path, "--resume").returncode == 0
    table = pq.read_table(tmp_path / "runs" / "tiny-sweep" / "points.parquet")
    assert sum(count > 1_000_000 for count in table["queries"].to_pylist()) == 5
    assert len(kept.read_text().splitlines()) == 12
    more = ["--vary", "streams.applications.quick.deadline_s=50ms,60ms", "--resume"]
    assert sweep(tmp_path, *more).returncode == 0  # as before at 50 ms
    table = pq.read_table(tmp_path / "runs" / "tiny-sweep" / "points.parquet")
    assert sum(count > 1_000_000 for count in table["queries"].to_pylist()) == 5
    assert sweep(tmp_path).returncode == 0
    table = pq.read_table(tmp_path / "runs" / "tiny-sweep" / "points.parquet")
    assert max(table["queries"].to_pylist()) < 1_000_000


def test_a_policy_whose_file_changed_is_run_anew(tmp_path):
    text = (
        "from edgewise.core.dispatch.policy import ScorePolicy\nclass Mine(ScorePolicy):\n"
        "    def score(self, view, item):\n        return SIGN * view.impedance_s\n"
    )
    kept = tmp_path / "runs" / "tiny-sweep" / "runs.jsonl"
    for sign, ran in (("1", 12), ("1", 12), ("-1", 24)):
        (tmp_path / "mine.py").write_text(text.replace("SIGN", sign))
        assert sweep(tmp_path, "--policy", "mine.py:Mine", "--resume").returncode == 0
        assert len(kept.read_text().splitlines()) == ran


def test_control_c_keeps_what_ended(tmp_path):
    """As a terminal does it: every process of the group is told."""
    line = [
        "sweep",
        "tiny",
        "--vary",
        f"{LOAD}=30..300..90",
        "--seeds",
        "0:900",
        "--jobs",
        "2",
        "--out",
        "here",
    ]
    run = subprocess.Popen(
        [sys.executable, "-m", "edgewise", *line],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    kept = tmp_path / "here" / "runs.jsonl"
    wait_until(lambda: kept.exists() and kept.read_text().count("\n") >= 5)
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=30)
    assert run.returncode == 130 and "--resume" in said and "Traceback" not in said, said
    rows = [json.loads(row) for row in kept.read_text().splitlines()]
    assert len(rows) >= 5 and f"{len(rows)} runs ended" in said


def test_points_that_cannot_be_run_meet_no_target(tmp_path):
    asked = [
        "size",
        "three-tier",
        "--vary",
        "clusters.cloud.nodes.count=1..2",
        "--seeds",
        "0:2",
        "--set",
        "duration_s=10",
    ]
    done = edgewise(*asked, "--target", "streams.ok>=1%", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["point"] for each in found["found"]] == [[2]] and "yolov3-cpu" in found["impossible"][0][
        "why"
    ]
    assert found["found"][0]["cost"] == 256 and found["found"][0]["unit"] == "cores"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "tiny", "--vary", "streams.arrivals.clients=1..3"], "did you mean 'clients_per_min'"),
        (["sweep", "tiny", "--vary", f"{LOAD}=1..3", "--vary", f"{LOAD}=2..4"], "given twice"),
        (["sweep", "tiny", "--vary", f"{LOAD}=1..3", "--target", "services.in_time=9%"], "is of services"),
        (["size", "tiny", "--vary", f"{LOAD}=1..3"], "--target: none given"),
        (["size", "tiny", "--vary", f"{LOAD}=1..3", "--target", "streams.ok=9%", "--seeds=3"], "no interval"),
        (["sweep", "deferrable", "--vary", "jobs.drawn.per_slot=8,10", "--seeds", "0:2"], "four numbers"),
        (["sweep", "tiny", "--vary", f"{LOAD}=1..3", "--out", "other"], "holds mine.txt, no part of a sweep"),
        (["sweep", "tiny", "--vary", f"{LOAD}=-3:-1"], "is too small"),
    ],
)  # fmt: skip
def test_what_cannot_be_swept_is_said(tmp_path, arguments, message):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    done = edgewise(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_sweeps_are_reached_from_python(tmp_path):
    points = sweeps.Points("tiny", (sweeps.parse_vary(f"{LOAD}=30,60"),), seeds=(0, 1))
    found = sweeps.sweep(points, [sweeps.parse_target("streams.ok=10%")])
    assert found.found[0].kind == "all" and found.table.num_rows == 4
    assert found.save(tmp_path / "mine") == Path(tmp_path / "mine")


def test_targets_of_all_work_that_runs_on_the_same_nodes_are_judged(tmp_path):
    """Jobs take what streams leave; under fifo a job that needs more than that holds up all others."""
    text = Path(sweeps.__file__).parents[1].joinpath("data", "scenarios", "tiny.yaml").read_text()
    job = (
        "{name: J, cores: 2, memory_bytes: 100MB, duration_s: 4, submitted_s: 0, earliest_s: 0, latest_s: 8}"
    )
    listed = ", ".join(job.replace("J", f"job-{k}") for k in range(4))
    (tmp_path / "mixed.yaml").write_text(f"{text}\njobs: {{slot_s: 1, room: nodes, submitted: [{listed}]}}\n")
    asked = ["--vary", "jobs.submitted.job-0.cores=1,2,8", "--seeds", "0:2", "--target", "streams.ok>=1%"]
    done = edgewise("sweep", "mixed.yaml", *asked, "--target", "jobs.lost<=0", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    # Jobs that nodes have no room for are passed over by `tetris`, the usual policy: others start.
    assert [point["jobs.lost"]["mean"] for point in found["points"]] == [0.0, 0.0, 1.0]
    assert (found["found"][0]["kind"], found["found"][0]["value"]) == ("up to", 2)


def test_a_share_is_not_said_to_be_more_than_all():
    target = parse_target("streams.ok=90%")
    assert mean_interval([1.0, 1.0, 0.98]).high > 1.0
    found = mean_interval([1.0, 1.0, 0.98], possible=target.measure.possible)
    assert found.mean < found.high < 1.0
    assert said(target, found) == "success 99.33 % [66.20 … 99.99]"
