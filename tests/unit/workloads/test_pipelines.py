"""The section `pipelines` of a scenario, the network under it, and the profiler that completes it."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from edgewise import policies
from edgewise.cli import app
from edgewise.config import dump_scenario, load_scenario
from edgewise.core.place import arrays_of
from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.parsing import parse_scenario
from edgewise.model.pipelines import Pipeline, network_of, pipeline_of
from edgewise.model.work import Task, TaskGraph
from edgewise.sim.parts.pipelines import simulate_streaming
from edgewise.workloads.pipeline_profiler import TaskProfile, profile_pipeline, profiled
from edgewise.workloads.pipelines import pipelines_of
from edgewise.workloads.task_code import task_functions
from streaming_example import edge_scenario


def task(i: int, *downstream: str) -> dict[str, Any]:
    return {"name": f"task{i}", "downstream": list(downstream), "memory_bytes": "2GB"}


DIAMOND = {
    "name": "test", "image": "me/app", "source": "pi0", "input_bytes": "10MB", "length_s": 5,
    "code": "app.py", "tasks": [task(0, "task1", "task2"), task(1, "task3"), task(2, "task3"), task(3)],
}  # fmt: skip
TOWN: dict[str, Any] = {
    "name": "town",
    "duration_s": 60,
    "clusters": [{"name": "town", "tier": 0, "nodes": [
        {"name": "pi0", "speed_ops": 1e9, "resources": {"cpu_cores": 1, "memory_bytes": "1GB"}},
        {"name": "hub", "speed_ops": "2e9", "resources": {"cpu_cores": 1, "memory_bytes": 5e8}},
    ]}],
    "links": [{"between": ["pi0", "hub"], "bandwidth_bps": "8Mbps", "shared": "both"}],
    "pipelines": [DIAMOND],
}  # fmt: skip


def town() -> dict[str, Any]:
    return copy.deepcopy(TOWN)


def diamond(**changes: Any) -> PipelineSpec:
    scenario = parse_scenario({**town(), "pipelines": [{**DIAMOND, **changes}]}, "town.yaml")
    (spec,) = scenario.pipelines or ()
    assert isinstance(spec, PipelineSpec)
    return spec


def profile_of(*names: str) -> tuple[TaskProfile, ...]:
    return tuple(TaskProfile(name, 1.0, 5.0) for name in names)


def test_nodes_and_links_become_a_network() -> None:
    network = network_of(parse_scenario(town(), "town.yaml"))
    assert network.names == ("pi0", "hub") and network.memory_bytes.tolist() == [1e9, 5e8]
    assert network.speed_ops.tolist() == [1e9, 2e9]
    assert network.ends.tolist() == [[0, 1]] and network.bandwidth_bps.tolist() == [8e6]


def test_nodes_without_speed_and_links_between_clusters_are_for_other_work() -> None:
    data = town()
    data["clusters"].append({"name": "far", "tier": 1, "nodes": [{"name": "cloud"}]})
    data["links"].append({"between": ["town", "far"]})
    assert network_of(parse_scenario(data, "town.yaml")).names == ("pi0", "hub")


def test_workers_hold_their_memory_for_life() -> None:
    data = yaml.safe_load(dump_scenario(load_scenario("tiny")))
    (node,) = (node for c in data["clusters"] for node in c["nodes"] if node["name"] == "near-node")
    node["speed_ops"] = 1e9
    data["pipelines"] = [{**DIAMOND, "source": "near-node"}]
    scenario = parse_scenario(data, "both.yaml")
    workers = [w for w in scenario.topology.workers if w.node == "near-node"]
    held = sum(scenario.catalog.variant(w.variant).resources.memory_bytes for w in workers)
    (whole,) = (n for n in scenario.topology.nodes if n.name == "near-node")
    assert held > 0 and network_of(scenario).memory_bytes.tolist() == [whole.resources.memory_bytes - held]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.pop("clusters"),
            r"town.yaml: top level: clusters: missing; add them, or a 'topology', for pipelines",
        ),
        (
            lambda d: d["clusters"][0]["nodes"][0].pop("resources"),
            r"clusters: node 'pi0' has speed_ops and no memory for tasks; add resources: \{memory_bytes",
        ),
        (
            lambda d: d["clusters"][0]["nodes"][0].update(sped_ops=1),
            r"clusters\[0\]\.nodes\[0\]\.sped_ops: unknown key 'sped_ops'; did you mean 'speed_ops'",
        ),
        (
            lambda d: d["clusters"][0]["nodes"][1].update(speed_ops="fast"),
            r"clusters\[0\]\.nodes\[1\]\.speed_ops: 'fast' is not a number; write a number",
        ),
        (
            lambda d: d["clusters"][0]["nodes"][1].pop("speed_ops"),
            r"links: between \[pi0, hub\]: node 'hub' has no speed_ops; add it",
        ),
        (
            lambda d: [node.pop("speed_ops") for node in d["clusters"][0]["nodes"]],
            r"clusters: no node has speed_ops, in which work of pipelines is counted; add it",
        ),
        (
            lambda d: d["links"][0].update(between=["pi0", "hubb"]),
            r"links\[0\]\.between: unknown node 'hubb'; did you mean 'hub'\?",
        ),
        (
            lambda d: d["links"][0].update(between="pi0-hub"),
            r"links\[0\]\.between: 'pi0-hub' is not a pair; write \[one, oth",
        ),
        (
            lambda d: d["links"][0].update(between=["a", "b", "c"]),
            r"\.between: \['a', 'b', 'c'\] is not a pair",
        ),
        (lambda d: d["clusters"][0]["nodes"].append(7), r"nodes\[2\]: 7 is not a mapping; its keys are name"),
        (
            lambda d: d["links"][0].update(over="lan"),
            r"links\[0\].over: unknown cable 'lan'",
        ),
        (
            lambda d: d["links"][0].pop("shared"),
            r"links: between \[pi0, hub\]: shared is 'each', flows .*; write shared: both",
        ),
        (
            lambda d: d.update(topology={"kind": "edge-network"}),
            "'topology' makes the clusters, links; remove one or the other",
        ),
    ],
)
def test_mistakes_in_the_network_are_named(change: Any, message: str) -> None:
    data = town()
    change(data)
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(data, "town.yaml")


def test_a_generated_network_has_no_sites_for_streams() -> None:
    data = yaml.safe_load(dump_scenario(load_scenario("tiny")))
    for key in ("clusters", "sites", "links", "workers"):
        del data[key]
    with pytest.raises(ScenarioError, match="sites, workers: missing; use another topology for streams"):
        parse_scenario(data | {"topology": {"kind": "edge-network"}}, "x.yaml")


def test_the_diamond_of_the_paper_is_read_and_profiled() -> None:
    spec = diamond()
    assert (spec.name, spec.source, spec.input_bytes) == ("test", "pi0", 10e6)
    assert [(task.name, task.downstream) for task in spec.tasks] == [
        ("task0", ("task1", "task2")),
        ("task1", ("task3",)),
        ("task2", ("task3",)),
        ("task3", ()),
    ]
    made = pipeline_of(profiled(spec, profile_of("task0", "task1", "task2", "task3"), 1e9))
    arrays = arrays_of(made, 0, network_of(parse_scenario(town(), "town.yaml")))
    assert arrays.tail.tolist() == [-1, 0, 0, 1, 2] and arrays.head.tolist() == [0, 1, 2, 3, 3]
    assert arrays.volume_bits.tolist() == [8e7, 40.0, 40.0, 40.0, 40.0]
    assert arrays.work_ops.tolist() == [1e9] * 4 and made.memory_bytes == 8e9
    assert (made.duration_s, made.frames, made.arrival_s) == (5.0, None, 0.0)


def test_what_is_written_out_is_not_profiled_over() -> None:
    tasks = [task(i) | {"work_ops": 7, "output_bytes": "1kB"} for i in range(2)]
    tasks[1].pop("output_bytes")
    spec = profiled(diamond(tasks=tasks), profile_of("task0", "task1"), 1e9)
    assert [(t.work_ops, t.output_bytes) for t in spec.tasks] == [(7.0, 1000.0), (7.0, 5.0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda p: p["tasks"][3].update(downstream=["task1"]),
            r"pipelines\[0\]\.tasks: the task graph has a cycle through task1, task3; remove one of its",
        ),
        (
            lambda p: p["tasks"][1].update(downstream=["tsak3"]),
            r"pipelines\[0\]\.tasks\[1\]\.downstream: 'tsak3' is not a task; did you mean 'task",
        ),
        (lambda p: p.pop("source"), r"pipelines\[0\]\.source: is missing; add it \(Node where"),
        (
            lambda p: p.update(source="pi1"),
            r"\.source: 'pi1' is no node with speed_ops; did you mean 'pi0'\?",
        ),
        (lambda p: p.update(sorce=""), r"\.sorce: unknown key 'sorce'; did you mean 'source'\?"),
        (
            lambda p: p["tasks"][0].update(memory_bytes="much"),
            r"tasks\[0\]\.memory_bytes: 'much' is not a number; write a number, or a string with a unit: B",
        ),
        (lambda p: p["tasks"][0].pop("memory_bytes"), r"tasks\[0\]\.memory_bytes: is missing; add it"),
        (lambda p: p["tasks"][0].update(downstream=7), r"tasks\[0\]\.downstream: 7 is not a list"),
        (
            lambda p: p["tasks"][1].update(name="task0"),
            r"\.tasks: the name 'task0' is given twice; rename one",
        ),
        (
            lambda p: p["tasks"][0].update(downstream=["task1", "task1"]),
            r"'task1' is listed twice; list it once",
        ),
        (lambda p: p["tasks"].clear(), r"\.tasks: \[\] is not a list with at least one entry"),
        (
            lambda p: p["tasks"].append("task4"),
            r"tasks\[4\]: 'task4' is not a mapping; its keys are name, down",
        ),
        (lambda p: p.pop("code"), r"tasks\[0\]\.work_ops: is missing; add it, or 'code', which is profiled"),
        (lambda p: p.update(frames=3), "needs either 'frames' or 'length_s'; give exactly one of them"),
        (lambda p: p.pop("length_s"), "needs either 'frames' or 'length_s'; give exactly one of them"),
        (lambda p: p.update(length_s=0), r"\.length_s: 0 is too small; use a number > 0"),
        (lambda p: p.update(arrive_s=60), r"\.arrive_s: 60 is not before the end; use less than 60"),
        (lambda p: p.update(name="a b"), r"\.name: 'a b' is not a name"),
        (
            lambda p: (p.clear(), p.update(generate="video")),
            r"\.generate: 'video' is not allowed; use 'recog",
        ),
        (lambda p: p.update(generate="random"), r"\.source: unknown key 'source'; "),
    ],
)
def test_mistakes_in_a_pipeline_are_named_with_their_place_and_fix(change: Any, message: str) -> None:
    data = town()
    change(data["pipelines"][0])
    with pytest.raises(ScenarioError, match=message):
        parse_scenario(data, "town.yaml")


def test_names_are_unique_over_all_entries() -> None:
    data = town()
    drawn = {"generate": "random", "count": 2, "rate_qps": 1, "length_s": 5, "name": "test"}
    data["pipelines"] += [{**DIAMOND, "name": "test-1"}, drawn, DIAMOND]
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(data, "town.yaml")
    assert "pipelines: the name 'test' is given twice" in str(caught.value)
    assert "pipelines: the name 'test-1' is given twice" in str(caught.value)
    with pytest.raises(ScenarioError, match="pipelines: \\[\\] is not a list with at least one entry"):
        parse_scenario(data | {"pipelines": []}, "town.yaml")


def test_a_profile_is_asked_for_when_it_is_needed() -> None:
    spec = diamond()
    with pytest.raises(
        ScenarioError, match=r"'test': tasks\[0\]\.work_ops of 'task0' is missing; profile the"
    ):
        pipeline_of(spec)
    with pytest.raises(ScenarioError, match="profile the task"):
        pipelines_of(parse_scenario(town(), "town.yaml"), 0)
    with pytest.raises(ScenarioError, match="holds no pipelines"):
        pipelines_of(load_scenario("tiny"), 0)


def test_a_pipeline_has_one_length() -> None:
    graph = TaskGraph("g", (Task("a", 1.0),), ())
    with pytest.raises(ScenarioError, match="either frames or duration_s"):
        Pipeline("g", graph, "pi0", 1.0)
    with pytest.raises(ScenarioError, match="its length is 0"):
        Pipeline("g", graph, "pi0", 1.0, frames=0)


def test_files_are_sought_in_the_scenarios_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "town").mkdir()
    data = town()
    data["pipelines"][0]["inputs"] = ["frames/1.bmp", "/elsewhere/2.bmp"]
    (tmp_path / "town/town.yaml").write_text(yaml.safe_dump(data))
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario("town/town.yaml")
    (spec,) = scenario.pipelines or ()
    assert isinstance(spec, PipelineSpec)
    assert spec.code == str(tmp_path / "town/app.py")
    assert spec.inputs == (str(tmp_path / "town/frames/1.bmp"), "/elsewhere/2.bmp")
    monkeypatch.chdir("/")  # what a run keeps names the same files from anywhere
    assert parse_scenario(yaml.safe_load(dump_scenario(scenario)), "copy") == scenario


def test_no_two_entries_draw_alike_and_none_comes_after_the_end() -> None:
    base = yaml.safe_load(dump_scenario(edge_scenario(0, 10)))
    drawn = {"generate": "random", "rate_qps": 0.5, "frames": 9}
    entries = [{**drawn, "name": name, "count": 5} for name in ("a", "b")]
    both = pipelines_of(parse_scenario(base | {"pipelines": entries}, "x"), 3)
    whole = pipelines_of(parse_scenario(base | {"pipelines": [{**drawn, "count": 10}]}, "x"), 3)
    assert [p.graph for p in both] == [p.graph for p in whole]
    assert [p.name for p in both] == [f"{name}-{i}" for name in "ab" for i in range(5)]
    assert both[0].arrival_s == whole[0].arrival_s and both[5].arrival_s != both[0].arrival_s
    cut = pipelines_of(edge_scenario(0, 10, count=50), 3)
    short = load_scenario("recognition", {"topology.nodes": 10, "duration_s": cut[20].arrival_s})
    assert [p.arrival_s for p in pipelines_of(short, 3)] == [p.arrival_s for p in cut[:20]]


def test_simulate_places_them_and_writes_what_became_of_each(tmp_path: Path) -> None:
    settings = ["--set", "topology.nodes=10", "--set", "pipelines.0.count=4"]
    command = ["simulate", "recognition", "--policy", "place=tp", "--seeds", "2:4", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*command, *settings])
    assert done.exit_code == 0, (done.output, done.exception)
    scenario = load_scenario(tmp_path / "scenario.yaml")
    runs = {
        s: simulate_streaming(
            network_of(scenario), pipelines_of(scenario, s), policies.load("place", "tp"), s
        )
        for s in (2, 3)
    }
    rows = pq.read_table(tmp_path / "items.parquet").to_pylist()
    assert [(row["seed"], row["pipeline"]) for row in rows] == [
        (s, f"pipeline-{i}") for s in (2, 3) for i in range(4)
    ]
    assert [row["finish_s"] for row in rows] == [
        job.finish_s for run in runs.values() for job in run.pipelines
    ]
    summary = json.loads((tmp_path / "summary.json").read_text())
    means = [run.mean_throughput_fps for run in runs.values()]
    assert [(row["policy"], row["seed"]) for row in summary] == [("tp", 2), ("tp", 3)]
    assert [row["mean_throughput_fps"] for row in summary] == pytest.approx(means)
    mean = sum(means) / 2
    assert f"{mean:.3f}" in done.output


CODE = """
def load(input):
    return True, input + b"12345678"

def square(input):
    return True, sum(i * i for i in range(len(input) * 20000))

def count(input):
    return True, len(input)

def both(input):
    a, b = input
    return True, (a, b)

job = [load, square, count, both]
"""


def test_the_profiler_runs_each_task_on_each_kind(tmp_path: Path) -> None:
    code = tmp_path / "app.py"
    code.write_text(CODE)
    spec = diamond(code=str(code))
    profiles = profile_pipeline(spec, b"frame678", {"one": 1.0, "half": 0.5}, repeats=3)
    one = {p.task: p for p in profiles["one"]}
    assert list(one) == ["task0", "task1", "task2", "task3"]
    assert one["task0"].output_bytes == 16
    assert one["task1"].time_s > 20 * one["task2"].time_s  # it does some 10^5 times the work
    made = pipeline_of(profiled(spec, profiles["one"], 1e9))
    assert made.graph.tasks[1].work_ops == one["task1"].time_s * 1e9
    assert [edge.size_bytes for edge in made.graph.edges][:2] == [16.0, 16.0]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(input):\n    return True, 1\n", "exports no job; end it with: job = \\[f\\]"),
        (
            "def f(input):\n    return True, 1\njob = [g]\n",
            "names 'g', which is no function; did you mean 'f'|use one",
        ),
        ("def f():\n    return True, 1\njob = [f]\n", "f must take one argument"),
        ("def f(\n", "line 1 is not Python"),
        ("job = 3\n", "job is not a list of functions"),
        ("def f(input):\n    return True, 1\njob = [f]\n", "exports 1 functions for 4 tasks"),
        (CODE.replace("len(input)\n", "1 / 0\n"), "failed on 'one': ZeroDivisionError: division by zero"),
        (
            CODE.replace("return True, len(input)", "return len(input)"),
            "returned .*; a task returns True, output",
        ),
    ],
)
def test_mistakes_in_the_code_are_told(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "app.py").write_text(code)
    with pytest.raises(ScenarioError, match=message):
        profile_pipeline(diamond(code=str(tmp_path / "app.py")), b"x", {"one": 1.0}, repeats=1)


def test_functions_are_found_without_running_the_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit\n" + CODE)
    assert task_functions(tmp_path / "app.py") == ("load", "square", "count", "both")
