"""`edgewise split`: what it prints and how it refuses."""

import re

import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from edgewise.cli import app
from edgewise.errors import EdgewiseError

runner = CliRunner()


def test_sizes_forecast_and_gap():
    done = runner.invoke(app, ["split", "inception-v1", "--rate", "100"])
    text = " ".join(done.output.split())
    assert done.exit_code == 0
    assert "145 tasks, 46 after contraction; 1827 probabilities" in text
    assert "forecast 24.01 ms, whole on one server 28.81 ms" in text and "certified gap" in text


def test_simulation_lists_policies():
    done = runner.invoke(app, ["split", "resnet50", "--rate", "30", "--simulate"])
    assert done.exit_code == 0
    for name in ("nona-free", "whole-least-loaded", "earliest-finish"):
        assert name in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no such file; known by name: gpt2"),
        (["vgg19", "--servers", "0"], "servers must be at least 1"),
        (["vgg19", "--branches", "0"], "--branches must be at least 1"),
        (["resnet50", "--rate", "1000", "--simulate"], "needs 82.2 servers and there are 10"),
        ([__file__], "is no ONNX model"),
        ([__file__, "--shape", "x=a"], "write NAME=N,N"),
    ],
)
def test_errors_say_what_to_change(arguments, words):
    done = runner.invoke(app, ["split", *arguments])
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
        ([], r"free axes \['n', 8\]; give its shape: --shape NAME=N,N"),
        (["--shape", "x=4,8"], r"14 branches of 14 kinds .* or --branches 7"),
    ):
        done = runner.invoke(app, ["split", str(file), *arguments])
        assert isinstance(done.exception, EdgewiseError)
        assert re.search(words, str(done.exception))
    assert runner.invoke(app, ["split", str(file), "--shape", "x=4,8", "--branches", "3"]).exit_code == 0


def test_unequal_servers_on_two_links():
    three = ["--group", "edge=1x2e10", "--group", "metro=1x5e10", "--group", "cloud=2x1e11"]
    links = ["--between", "edge,metro=1e9", "--between", "metro,cloud=1e9"]
    done = runner.invoke(app, ["split", "vgg19", "--rate", "4", *three, *links, "--simulate"])
    assert done.exit_code == 0
    for words in ("edge-metro", "metro-cloud", "certified gap", "simulated", "±"):
        assert words in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--group", "edge=two"], "write NAME=COUNTxPOWER"),
        (["--group", "a=1x1e9", "--between", "a,b=1e9"], "no --group is called 'b'"),
        (["--group", "a=1x1e9", "--between", "a,a"], "write NAME,NAME=BPS"),
        (["--group", "a=1x1e11", "--group", "b=1x1e11"], "no link joins 'a' and 'b'"),
    ],
)
def test_errors_of_groups_say_what_to_change(arguments, words):
    done = runner.invoke(app, ["split", "vgg19", *arguments])
    assert isinstance(done.exception, EdgewiseError)
    assert words in str(done.exception)
