"""Task graphs of real networks, and what is left of them after contraction."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper

from edgewise.errors import ProfileError
from edgewise.policies.split import QueryClass, build_program, contract, optimise
from edgewise.profiling.dags import LIGHT, compose, light_file, measure, task_graph
from edgewise.profiling.gpt2 import gpt2

# Operations of one picture: twice the multiply-accumulates of the publications (alexnet: grouped).
PUBLISHED = {"alexnet": (1, 1.3e9), "densenet121": (1, 5.7e9), "resnet50": (13, 8.2e9), "vgg19": (1, 39.3e9)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_after_contraction_and_operations(name: str) -> None:
    graph = task_graph(light_file(name), name)
    after, operations = PUBLISHED[name]
    assert sum(task.work_ops for task in graph.tasks) == pytest.approx(operations, rel=0.02)
    assert contract(graph).after == after


@pytest.mark.parametrize("name", LIGHT)
def test_tensors_of_the_edges(name: str) -> None:
    graph = task_graph(light_file(name), name)
    assert graph.tasks[0].name == "input" and graph.tasks[-1].name == "output"
    first = next(edge for edge in graph.edges if edge.source == "input")
    assert first.size_bytes in (224 * 224 * 3 * 4, 227 * 227 * 3 * 4)
    assert min(edge.size_bytes for edge in graph.edges) > 0


def test_branches_of_inception_and_heads_of_gpt2() -> None:
    inception = contract(task_graph(light_file("inception-v1"), "inception-v1"))
    assert inception.after == 9 * 5 + 1
    small = contract(task_graph(gpt2(tokens=16, layers=2, heads=4, width=64), "gpt2"))
    assert small.after == 2 * 4 + 3
    program = build_program([QueryClass(small.graph, 1.0)], 8, 1e9, 1e10)
    assert [group.subgraphs for group in program.groups] == [(0, 1)]  # both layers at once


def test_gpt2_counts_as_published() -> None:
    """2 operations per weight and token for 85 M weights in layers, attention, and one row of scores."""
    graph = task_graph(gpt2(tokens=128), "gpt2")
    layers = 2 * 128 * 12 * 12 * 768**2
    attention = 2 * 2 * 128**2 * 768 * 12
    scores = 2 * 768 * 50_257
    total = sum(task.work_ops for task in graph.tasks)
    assert layers + attention + scores < total < 1.03 * (layers + attention + scores)


def test_ensemble_and_cascade() -> None:
    light = task_graph(light_file("resnet50"), "resnet50")
    both = contract(compose("both", [[light, light]]))
    assert both.after == 4  # input, two networks, output
    plan = optimise(build_program([QueryClass(both.graph, 1.0)], 4, 1e11, 1e9))
    alone = sum(task.work_ops for task in light.tasks) / 1e11
    assert alone < plan.forecast.mean_s < 1.2 * alone
    after = contract(compose("cascade", [[light], [light, light]]))
    assert sum(task.work_ops for task in after.graph.tasks) == pytest.approx(3 * alone * 1e11)


def test_measured_costs(tmp_path: Path) -> None:
    file = tmp_path / "tiny.onnx"
    onnx.save(gpt2(tokens=8, layers=1, heads=2, width=16), file)
    seconds = measure(file, runs=2)
    graph = task_graph(file, seconds=seconds, power_ops=1e9)
    counted = task_graph(file)
    assert [task.name for task in graph.tasks] == [task.name for task in counted.tasks]
    assert all(
        task.work_ops == 1e9 * seconds[task.name]
        for task in graph.tasks
        if task.name not in ("input", "output")
    )
    with pytest.raises(ProfileError, match="was not measured"):
        task_graph(file, seconds={})


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="known: alexnet"):
        light_file("lenet")
    free = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    with pytest.raises(ProfileError, match=r"'x' has free axes \['n', 3\]; give its shape"):
        task_graph(helper.make_model(free))
    assert task_graph(helper.make_model(free), shapes={"x": [2, 3]}).edges[0].size_bytes == 24
