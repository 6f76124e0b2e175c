"""Split models at the command line: the plan that `check` prints, `simulate`, and how both refuse."""

import json
import re

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from edgewise.cli import app
from edgewise.config import dump_scenario, load_scenario
from edgewise.errors import EdgewiseError, ScenarioError
from edgewise.model.graphs import graph_of
from edgewise.model.parsing import parse_scenario
from edgewise.policies.split import QueryClass, build_program, contract
from edgewise.policies.split.layout import program_of

runner = CliRunner()


def of(network, **values):
    """Arguments: the shipped scenario with another network, and other values of its graph."""
    changes = {"network": network, **values}
    return ["split-inception", *(x for key in changes for x in ("--set", f"graphs.0.{key}={changes[key]}"))]


def test_sizes_forecast_and_gap():
    done = runner.invoke(app, ["check", *of("inception-v1", rate_qps=100), "--policy", "split=nona"])
    text = " ".join(done.output.split())
    assert done.exit_code == 0
    assert "145 tasks, 46 after contraction 1827 probabilities" in text
    assert "forecast 24.01 ms, whole on one server 28.81 ms" in text and "certified gap" in text


def test_policies_are_compared_in_simulation(tmp_path):
    names = ("nona-free", "whole-least-loaded", "earliest-finish")
    chosen = ["--policies", f"split={','.join(names)}", "--seeds", "0:3", "--out", str(tmp_path / "run")]
    changes = ["--set", "duration_s=20", "--json"]
    done = runner.invoke(app, ["compare", *of("resnet50", rate_qps=30), *chosen, *changes])
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    means = {name: [row["mean_s"] for row in found["summary"] if row["policy"] == name] for name in names}
    for row in found["comparison"]:
        base = np.mean(means[row["rival"]])
        assert row["rival"] == "nona-free"
        assert row["difference"] == pytest.approx(np.mean(means[row["policy"]]) / base - 1)
    items = pq.read_table(tmp_path / "run" / "items.parquet").to_pylist()
    times = [row["time_s"] for row in items if (row["seed"], row["policy"]) == (1, "earliest-finish")]
    assert len(times) == 600 and np.mean(times[60:]) == pytest.approx(means["earliest-finish"][1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["tiny"],
            "scenario 'tiny': has no graphs, which edgewise simulate --policy split runs; it has streams",
        ),
        (of("nothing"), "no such file; known by name: gpt2"),
        (
            [*of("vgg19"), "--set", "clusters.0.nodes.0.count=0"],
            "count: 0 is not allowed; use an integer >= 1",
        ),
        ([*of("vgg19"), "--set", "clusters.0.nodes.0.speed_ops=0"], "no node has speed_ops"),
        (of("vgg19", branches=0), "branches: 0 is not allowed"),
        (
            [*of("vgg19"), "--set", "links.0.shared=none"],
            "shared: 'none' is not allowed; use 'each' or 'both'",
        ),
        ([*of("vgg19"), "--set", "links.0.shared=each"], "one rate for both directions; set shared: both"),
        (of("resnet50", rate_qps=1000), "need 82.2 servers and there are 10"),
        (of(__file__), "is no ONNX model"),
        (of("vgg19", shapes="{x: [a]}"), "graphs[0].shapes.x[0]: 'a' is not allowed; use an integer"),
    ],
)
def test_errors_say_what_to_change(arguments, words):
    done = runner.invoke(app, ["simulate", *arguments, "--policy", "split=whole-random"])
    assert isinstance(done.exception, EdgewiseError)
    assert words in str(done.exception)


def test_a_file_with_free_axes_and_too_many_branches_says_what_to_give(tmp_path):
    nodes, ends = [helper.make_node("Relu", ["x"], ["r"], name="r")], []
    for branch in range(14):  # chains of different length: none is interchangeable
        ends.append("r")
        for place in range(branch + 1):
            name = f"b{branch}.{place}"
            nodes.append(helper.make_node("Sigmoid", [ends[-1]], [name], name=name))
            ends[-1] = name
    nodes.append(helper.make_node("Sum", ends, ["y"], name="y"))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "wide", [x], [y]))
    file = tmp_path / "wide.onnx"
    onnx.save(model, file)
    for arguments, words in (
        ([], r"free axes \['n', 8\]; give its shape in graphs.shapes"),
        (["--set", "graphs.0.shapes.x=[4, 8]"], r"14 branches of 14 kinds .* or graphs.branches 7"),
    ):
        done = runner.invoke(app, ["check", *of(file), *arguments])
        assert isinstance(done.exception, EdgewiseError)
        assert re.search(words, str(done.exception))
    few = ["--set", "graphs.0.shapes.x=[4, 8]", "--set", "graphs.0.branches=3"]
    assert runner.invoke(app, ["check", *of(file), *few]).exit_code == 0


THREE = """
name: three
duration_s: 60
clusters:
  - {name: edge, tier: 0, nodes: [{name: e, speed_ops: 2.0e10}]}
  - {name: metro, tier: 1, nodes: [{name: m, speed_ops: 5.0e10}]}
  - {name: cloud, tier: 2, nodes: [{name: c, count: 2, speed_ops: 1.0e11}]}
links:
  - {between: [edge, metro], bandwidth_bps: 1Gbps, shared: both}
  - {between: [metro, cloud], bandwidth_bps: 1Gbps, shared: both}
graphs: [{name: g, network: vgg19, rate_qps: 4}]
"""


def test_unequal_servers_on_two_links(tmp_path):
    (tmp_path / "three.yaml").write_text(THREE)
    file = str(tmp_path / "three.yaml")
    done = runner.invoke(app, ["check", file])
    assert done.exit_code == 0, (done.output, done.exception)
    for words in ("edge-metro", "metro-cloud", "certified gap"):
        assert words in done.output
    done = runner.invoke(app, ["simulate", file, "--seeds", "0:2", "--json", "--out", str(tmp_path / "run")])
    rows = json.loads(done.stdout)["summary"]
    assert [row["seed"] for row in rows] == [0, 1] and all(row["predicted_s"] > 0 for row in rows)
    other = runner.invoke(app, ["simulate", file, "--policy", "split=nona"])
    assert "nona splits over equal servers; for groups of servers: nona-layout" in str(other.exception)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "nodes: [{name: m,",
            "nodes: [{name: slow, speed_ops: 1}, {name: m,",
            "need equal servers in a cluster",
        ),
        (
            "[metro, cloud]",
            "[metro, clout]",
            "links[1].between: unknown cluster 'clout'; did you mean 'cloud'?",
        ),
        ("[metro, cloud]", "[metro]", "links[1].between"),
        ("[metro, cloud]", "[metro, edge]", "links[1]: a second link between metro and edge; remove one"),
        ("[metro, cloud]", "[metro, metro]", "no link joins 'edge' and 'cloud'"),
        ("graphs: [{", "graphs: [{operators: [{name: a, work_ops: 1}], ", "either 'network' or 'operators'"),
    ],
)
def test_errors_of_clusters_say_what_to_change(tmp_path, old, new, words):
    (tmp_path / "three.yaml").write_text(THREE.replace(old, new))
    done = runner.invoke(app, ["simulate", str(tmp_path / "three.yaml")])
    assert isinstance(done.exception, EdgewiseError)
    assert words in str(done.exception)


def test_graphs_written_out_and_two_at_once(tmp_path):
    scenario = parse_scenario(
        {
            "name": "own",
            "duration_s": 1,
            "clusters": [{"name": "s", "tier": 0, "nodes": [{"name": "n", "count": 3, "speed_ops": 1e9}]}],
            "links": [{"between": ["s", "s"], "bandwidth_bps": 1e9, "shared": "both"}],
            "graphs": [
                {
                    "name": f"fan{k}",
                    "rate_qps": 1.0 + k,
                    "operators": [{"name": name, "work_ops": 1e7} for name in "abcd"],
                    "tensors": [
                        {"source": a, "target": b, "size_bytes": 1e4, "tensor": a}
                        for a, b in ("ab", "ac", "bd", "cd")
                    ],
                }
                for k in range(2)
            ],
        },
        "own",
    )
    (tmp_path / "own.yaml").write_text(dump_scenario(scenario))
    assert load_scenario(tmp_path / "own.yaml").graphs == scenario.graphs
    made = ["--seeds", "0", "--set", "duration_s=30", "--out", str(tmp_path / "run")]
    done = runner.invoke(app, ["simulate", str(tmp_path / "own.yaml"), *made])
    assert done.exit_code == 0, (done.output, done.exception)
    assert set(pq.read_table(tmp_path / "run" / "items.parquet")["graph"].to_pylist()) == {"fan0", "fan1"}
    classes = [QueryClass(contract(graph_of(each)).graph, each.rate_qps) for each in scenario.graphs]
    program = program_of(scenario.topology, classes)
    same = build_program(classes, 3, 1e9, 1e9)
    assert all(np.array_equal(a, b) for a, b in zip(program.arrays, same.arrays, strict=True))


def test_a_cycle_of_operators_is_named():
    data = load_scenario("split-inception").spec.model_dump(mode="json", exclude_none=True)
    operators = [{"name": name, "work_ops": 1} for name in "ab"]
    tensors = [{"source": a, "target": b, "size_bytes": 1} for a, b in ("ab", "ba")]
    data["graphs"] = [{"name": "round", "rate_qps": 1, "operators": operators, "tensors": tensors}]
    with pytest.raises(ScenarioError, match=r"graphs\[0\]: task graph 'round' has a cycle through a, b"):
        parse_scenario(data, "x")
