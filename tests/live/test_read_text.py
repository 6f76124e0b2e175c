"""Reading text on frames: the three networks in this process, and as a pipeline by one command."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime")
reading = pytest.importorskip("edgewise.demo.reading")
from edgewise.cli import app  # noqa: E402
from edgewise.demo.reading import model_file  # noqa: E402
from edgewise.errors import EdgewiseError  # noqa: E402

try:
    model_file()
except EdgewiseError as error:
    pytest.skip(str(error), allow_module_level=True)

pytestmark = pytest.mark.live


def letters(lines):
    return [text.replace(" ", "").lower() for text in lines]


def test_detect_classify_recognise_read_what_was_drawn():
    right = total = 0
    for signs in reading.SIGNS:
        found, lines = reading.detect(reading.frame(signs))
        assert found and lines["lines"].shape == (len(signs), 48, 320, 3)
        _, upright = reading.classify(lines)
        _, text = reading.recognise(upright)
        right += sum(a == b for a, b in zip(letters(text), letters(signs), strict=True))
        total += len(signs)
    assert right >= total - 2


def test_what_stands_on_its_head_is_turned():
    _, lines = reading.detect(reading.frame(("boarding now", "to Harbour", "delayed 12 min")))
    upside_down = {"lines": np.ascontiguousarray(lines["lines"][:, ::-1, ::-1])}
    _, turned = reading.classify(upside_down)
    same = (turned["lines"] == lines["lines"]).all(axis=(1, 2, 3))
    assert same.sum() >= 2


def test_an_empty_picture_drops_the_frame(tmp_path):
    Image.new("RGB", (640, 384), "white").save(tmp_path / "empty.bmp")
    found, _ = reading.detect((tmp_path / "empty.bmp").read_bytes())
    assert found is False


def test_one_command_runs_and_measures_it(tmp_path):
    state = ["--state", str(tmp_path / "state")]
    done = CliRunner().invoke(app, ["run", "read-text", "--backend", "local", "--seconds", "8", *state])
    assert done.exit_code == 0, done.output
    assert "throughput: planned" in done.output and "source->detect" in done.output
    planned, measured = _figures(done.output)
    assert measured == pytest.approx(planned, rel=0.3)  # the networks share this machine's processors
    kept = CliRunner().invoke(app, ["status", *state])
    assert "read-text: ended" in kept.output and "recognise on " in kept.output, kept.output
    again = CliRunner().invoke(app, ["run", "--resume", "--backend", "local", *state])
    assert "no pipeline is left to take up" in " ".join(again.output.split()), again.output


def _figures(text):
    words = text.split("throughput: planned")[1].replace(",", " ").split()
    return float(words[0]), float(words[2])


def test_what_it_wrote_runs_again_as_a_scenario_from_another_folder(tmp_path, monkeypatch):
    frame = tmp_path / "frame0.bmp"
    frame.write_bytes(reading.frame(reading.SIGNS[0]))
    data = reading.scenario([frame])
    for task in data["pipelines"][0]["tasks"]:
        task |= {"work_ops": 1e7, "output_bytes": 1000}  # known: nothing is profiled
    (tmp_path / "town.yaml").write_text(yaml.safe_dump(data))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command = ["run", "../town.yaml", "--backend", "local", "--seconds", "1", "--policy", "place=tp"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "throughput: planned" in done.output and "(tp on local" in done.output.replace(": tp", "(tp")
    longer = [
        *command,
        "--seconds",
        "10",
        "--shadow",
        "otfa",
        "--json",
    ]
    done = CliRunner().invoke(app, longer)
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    (pipeline,) = found["pipelines"]
    assert pipeline["measured_fps"] > 0.0 and pipeline["flows"] and found["waiting"] == []
    assert found["shadow"]["policy"] == "otfa"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(inputs=[]), "pipelines[0].inputs: is missing; a test bed needs it"),
        (lambda p: p.update(inputs=["none.bmp"]), "none.bmp: cannot be read: No such file"),
        (lambda p: p.update(code="none.py"), "none.py: cannot be read"),
    ],
)
def test_code_and_frames_that_do_not_exist_are_named(tmp_path, change, message):
    (tmp_path / "frame0.bmp").write_bytes(b"frame")
    data = reading.scenario([tmp_path / "frame0.bmp"])
    change(data["pipelines"][0])
    (tmp_path / "town.yaml").write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "town.yaml"), "--backend", "local"])
    assert isinstance(done.exception, EdgewiseError) and message in str(done.exception)
