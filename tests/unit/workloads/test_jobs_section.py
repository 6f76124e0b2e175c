"""The section `jobs` of a scenario, and the worlds that it becomes."""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from edgewise import compare, simulate
from edgewise.cli import app
from edgewise.config import dump_scenario, load_scenario
from edgewise.core.defer import check
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.model.parsing import parse_scenario
from edgewise.workloads.deferrable import PAPER, generate, jobs_of

# By the constants of edgewise 0.1, whose worlds of jobs were no scenario.
RECORDED = {
    "jobs": "b7ea52efdf", "submitted": "c97f7eb228", "earliest": "71e96c1be0", "latest": "cdd2c0736d",
    "duration": "a6fe298a4e", "demand": "dd84cdc1b6", "left_over": "ec01936138", "total": "00754a39f7",
}  # fmt: skip
LISTED = {
    "name": "listed",
    "duration_s": 100,
    "clusters": [
        {"name": "c", "tier": 0, "nodes": [{"name": "n", "resources": {"cpu_cores": 4, "memory_bytes": 8e9}}]}
    ],
    "jobs": {
        "slot_s": 10,
        "submitted": [
            {"name": "late", "cores": 1, "memory_bytes": 1e9, "duration_s": 15, "submitted_s": 25,
             "earliest_s": 31, "latest_s": 59, "when_evicted": "restart", "priority": 3},
            {"name": "first", "cores": 2, "duration_s": 10, "latest_s": 40},
            {"name": "too-long", "cores": 1, "duration_s": 60, "latest_s": 50},
        ],
    },
}  # fmt: skip


def listed(**changes):
    data = json.loads(json.dumps(LISTED))
    data["jobs"] |= changes
    return data


def test_the_shipped_worlds_are_those_of_the_constants_before():
    worlds = generate(jobs_of("deferrable").pattern, [7, 3])._asdict()
    for name, digest in RECORDED.items():
        assert hashlib.sha256(np.ascontiguousarray(worlds[name]).tobytes()).hexdigest()[:10] == digest, name
    assert jobs_of("deferrable").pattern == PAPER


def test_listed_jobs_become_slots_that_break_no_promise():
    jobs = jobs_of(parse_scenario(LISTED, "listed"))
    worlds = generate(jobs.pattern, [0, 1], jobs.submitted)
    check(worlds)
    assert worlds.jobs.tolist() == [3, 3]  # the third might not end in the run, and comes all the same
    rows = zip(worlds.submitted[0], worlds.earliest[0], worlds.latest[0], worlds.duration[0], strict=True)
    assert [tuple(map(int, row)) for row in rows] == [(0, 0, 4, 1), (0, 0, 5, 6), (2, 4, 5, 2)]
    assert worlds.demand[0].tolist() == [[2.0, 0.0], [1.0, 0.0], [1.0, 1e9]]
    assert worlds.total.tolist() == [4.0, 8e9] and (worlds.left_over == worlds.total).all()
    assert [job.when_evicted for job in jobs.submitted] == ["restart", "pause", "pause"]


def test_listed_and_drawn_jobs_mix():
    data = listed(drawn={"per_slot": 2, "cores": [1], "core_shares": [1], "durations": [1],
                         "duration_shares": [1], "memory_bytes_per_core": 2e9})  # fmt: skip
    jobs = jobs_of(parse_scenario(data, "mixed"))
    worlds = generate(jobs.pattern, range(5), jobs.submitted)
    check(worlds)
    drawn = generate(jobs.pattern, range(5))
    assert (worlds.jobs == drawn.jobs + 3).all() and (worlds.left_over == drawn.left_over).all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"submitted": []}, "jobs: has no jobs; add 'drawn' or 'submitted'"),
        ({"slot_s": 200}, "jobs.slot_s: 200 is longer than duration_s; lower it"),
        ({"slots": 3}, "jobs.slots: unknown key 'slots'; did you mean 'slot_s'?"),
        (
            {"submitted": [{"name": "big", "cores": 8, "duration_s": 1, "latest_s": 1}]},
            "jobs.submitted[0]: no node has 8 cores and 0 bytes of memory; lower them",
        ),
        (
            {"submitted": [{"name": "x", "cores": 1, "duration_s": 1, "earliest_s": 5, "latest_s": 1}]},
            "jobs.submitted[0]: needs submitted_s <= earliest_s <= latest_s, got 0, 5 and 1",
        ),
        (
            {"drawn": {"per_slot": 1, "cores": [1, 2], "core_shares": [1], "durations": [1],
                       "duration_shares": [1], "memory_bytes_per_core": 2e9}},
            "jobs.drawn: core_shares (1.0,): needs 2 shares >= 0 that add up to 1",
        ),
        (
            {"drawn": {"per_slot": 1, "cores": [1], "core_shares": [1], "durations": [1],
                       "duration_shares": [1]}},
            "jobs.drawn.memory_bytes_per_core: is 0, and jobs of 'submitted' need memory",
        ),
    ],
)  # fmt: skip
def test_errors_name_path_value_and_fix(changes, expected):
    with pytest.raises(ScenarioError) as error:
        parse_scenario(listed(**changes), "test.yaml")
    assert expected in str(error.value)


def test_nodes_of_two_kinds_have_jobs_that_need_memory_by_cores():
    data = listed(drawn={"per_slot": 5, "cores": [1, 2], "core_shares": [0.5, 0.5], "durations": [1],
                         "duration_shares": [1], "memory_bytes_per_core": 1.5e9}, submitted=[])  # fmt: skip
    small = {"name": "small", "count": 3, "resources": {"cpu_cores": 2, "memory_bytes": 3.1e9}}
    data["clusters"][0]["nodes"].append(small)
    result = simulate(parse_scenario(data, "two kinds"), seeds=(0,))
    assert {row["node"] for row in result.items.to_pylist() if row["started_s"] is not None} > {"n"}


@pytest.mark.parametrize("room", ["nodes", "pooled"])
def test_a_fleet_of_two_kinds_of_nodes_has_the_memory_that_its_nodes_have(room):
    data = listed(room=room, drawn={
        "per_slot": 0.5, "cores": [1], "core_shares": [1], "durations": [1], "duration_shares": [1],
        "memory_bytes_per_core": 1.5e9,
    }, submitted=[])  # fmt: skip
    large = {"name": "large", "count": 7, "resources": {"cpu_cores": 54, "memory_bytes": 200e9}}
    data["clusters"][0]["nodes"].append(large)
    pattern = jobs_of(parse_scenario(data, "382 cores")).pattern
    assert generate(pattern, [0]).total == pytest.approx([382.0, 1408e9])
    for node in data["clusters"][0]["nodes"]:
        del node["resources"]["memory_bytes"]
    with pytest.raises(ScenarioError, match="memory_bytes_per_core: no node has memory; give them"):
        parse_scenario(data, "no memory")


def test_a_scenario_of_jobs_is_written_and_read_again(tmp_path):
    scenario = parse_scenario(LISTED, "listed")
    (tmp_path / "again.yaml").write_text(dump_scenario(scenario))
    again = load_scenario(tmp_path / "again.yaml")
    assert again.jobs == scenario.jobs and again.spec.holds == ("jobs",)


def test_simulate_runs_jobs_and_writes_records(tmp_path):
    arguments = ["simulate", "deferrable", "--policy", "defer=sjf", "--seeds", "0:2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*arguments, "--set", "jobs.drawn.per_slot=3"])
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "summary.json").read_text())
    items = pq.read_table(tmp_path / "items.parquet").to_pylist()
    assert [row["policy"] for row in rows] == ["sjf"] * 2 and len(items) == sum(row["jobs"] for row in rows)
    started = [item for item in items if item["started_s"] is not None]
    assert len(started) == sum(row["started"] for row in rows)
    assert all(item["earliest_s"] <= item["started_s"] <= item["latest_s"] for item in started)
    assert load_scenario(tmp_path / "scenario.yaml").jobs.pattern.jobs_per_slot == 3


def test_the_work_that_a_scenario_does_not_hold_is_said():
    for arguments, expected in (
        (
            ["deferrable", "--policy", "dispatch=closest"],
            "has no streams, which edgewise simulate --policy dispatch runs; it has jobs",
        ),
        (
            ["tiny", "--policy", "defer=fifo"],
            "has no jobs, which edgewise simulate --policy defer runs; it has streams",
        ),
        (["tiny", "--policy", "deffer=fifo"], "unknown decision 'deffer'"),
        (["deferrable", "--policy", "defer=fofo"], "fofo"),
    ):
        done = CliRunner().invoke(app, ["simulate", *arguments])
        assert isinstance(done.exception, EdgewiseError) and expected in str(done.exception)


FIGURES = ("jobs", "started", "ended", "lost", "finished_core_s")


def figures(room, submitted, names=FIGURES):
    """What became of listed jobs, and their items."""
    result = simulate(parse_scenario(listed(room=room, submitted=submitted), "listed"), "fifo", (0,))
    (row,) = result.summary()
    return tuple(row[name] for name in names), {row["job"]: row for row in result.items.to_pylist()}


@pytest.mark.parametrize("room", ["pooled", "nodes"])
def test_a_job_that_may_outlast_the_run_is_recorded(room):
    """They were left out without a word: 60 s from 50 on in a run of 100, and one of 200 s."""
    long = [
        {"name": name, "cores": 1, "duration_s": duration_s, "earliest_s": at_s, "latest_s": at_s}
        for name, duration_s, at_s in (("ends", 40, 50), ("beyond", 60, 50), ("longer", 200, 0))
    ]
    found, items = figures(room, long)
    assert found == (3, 3, 1, 0, 40.0)
    assert sorted((row["duration_s"], row["ended_s"]) for row in items.values()) == [
        (40.0, 90.0), (60.0, None), (200.0, None),
    ]  # fmt: skip


def test_a_job_that_comes_after_the_run_has_not_started():
    late = [
        {"name": "late", "cores": 1, "duration_s": 10, "submitted_s": 150, "earliest_s": 150, "latest_s": 200}
    ]
    for room in ("pooled", "nodes"):
        assert figures(room, late)[0] == (1, 0, 0, 0, 0.0)


def test_what_was_finished_counts_not_what_was_started():
    """Each takes all four cores, so the second one waits for the first one's end."""
    first, second = (
        {"name": name, "cores": 4, "duration_s": 50, "latest_s": latest_s}
        for name, latest_s in (("first", 0), ("second", 60))
    )
    for room in ("pooled", "nodes"):
        found, items = figures(room, [first, second])
        assert found == (2, 2, 2, 0, 400.0)
        assert [items[job]["ended_s"] for job in (0, 1)] == [50.0, 100.0]


def test_osdecs_reward_is_that_of_its_setting_alone():
    """It counts what started; jobs on nodes are compared by what they finished."""
    names = ("reward", "revenue", "violation")
    pooled = simulate(parse_scenario(listed(room="pooled"), "listed"), "fifo", (0,))
    (row,) = pooled.summary()
    assert (row["reward"], row["revenue"], row["violation"]) == (2.0 + 2.0 + 6.0 - 0.0, 10.0, 0.0)
    assert (pooled.measures[0].heading, pooled.measures[0].key) == ("OSDEC's reward", "reward")
    nodes = simulate(parse_scenario(listed(room="nodes"), "listed"), "fifo", (0,))
    assert [nodes.summary()[0][name] for name in names] == [None] * 3
    assert nodes.measures[0].key == "finished_core_s" and not {each.key for each in nodes.measures} & {*names}
    compared = compare(parse_scenario(listed(room="nodes"), "listed"), {"defer": ["fifo", "sjf"]}, range(2))
    assert "finished core-s 95" in str(compared) and "OSDEC" not in str(compared)
