"""`edgewise split`: what it prints and how it refuses."""

import pytest
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
