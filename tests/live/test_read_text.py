"""Reading text on frames: the three networks in this process, and as a pipeline of a live system."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

pytest.importorskip("onnxruntime")
reading = pytest.importorskip("edgewise.demo.reading")
from edgewise.config import load_scenario  # noqa: E402
from edgewise.demo.reading import model_file  # noqa: E402
from edgewise.errors import EdgewiseError  # noqa: E402
from edgewise.workloads.pipeline_profiler import with_figures  # noqa: E402
from in_process import edgewise  # noqa: E402
from up_and_loaded import loading, measured, running  # noqa: E402
from waiting import wait_until  # noqa: E402

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


def test_it_is_written_run_and_measured(tmp_path):
    state = tmp_path / "state"
    done = edgewise("init", "--read-text", "--out", "read-text.yaml", cwd=tmp_path)
    assert done.returncode == 0 and "first frame reads: " in done.stdout, done
    with running(state, "read-text.yaml", cwd=tmp_path):
        with loading(state, tmp_path) as load:
            found = measured(state, tmp_path, least=2)
            said = edgewise("pipelines", 1, "--state", state, cwd=tmp_path).stdout
            assert "throughput: planned" in said and "source->detect" in said, said
            assert "recognise" in said and "measured" in said  # its headings are broken in a narrow terminal
            rates = found["rates"]
            assert {row["edge"] for row in rates["flows"]} >= {"source->detect"}
            assert set(rates["nodes"]) == {"detect", "classify", "recognise"}

            def as_planned():  # the networks share this machine's processors
                now = measured(state, tmp_path, least=2)["rates"]
                return now["measured_fps"] == pytest.approx(now["planned_fps"], rel=0.3)

            wait_until(as_planned)
            assert edgewise("pipelines", "--end", 1, "--state", state, cwd=tmp_path).returncode == 0
        assert load.returncode == 0
        rows = json.loads(edgewise("pipelines", "--state", state, "--json", cwd=tmp_path).stdout)
        assert [(row["name"], row["state"]) for row in rows] == [("read-text", "cancelled")]
        assert rows[0]["frames"] >= 2 and rows[0]["ran_s"] > 0.0
    done = edgewise("report", state, cwd=tmp_path)  # it has ended: its records are there
    assert done.returncode == 0, done


def test_what_it_wrote_runs_again_as_a_scenario_from_another_folder(tmp_path):
    frame = tmp_path / "frame0.bmp"
    frame.write_bytes(reading.frame(reading.SIGNS[0]))
    data = reading.scenario([frame])
    for task in data["pipelines"][0]["tasks"]:
        task |= {"work_ops": 1e7, "output_bytes": 140_000}  # known: nothing is profiled, and flows have that
    (tmp_path / "town.yaml").write_text(yaml.safe_dump(data))
    (there := tmp_path / "elsewhere").mkdir()
    state = tmp_path / "state"
    with running(state, "../town.yaml", "--policy", "place=tp", cwd=there):
        done = edgewise("shadow", "set", "place=otfa", "--state", state, cwd=there)
        assert done.returncode == 0, done
        with loading(state, there):
            found = measured(state, there)
            assert edgewise("pipelines", "--end", 1, "--state", state, cwd=there).returncode == 0
            (row,) = json.loads(
                edgewise("shadow", "show", "place", "--state", state, "--json", cwd=there).stdout
            )
    assert found["rates"]["measured_fps"] > 0.0 and found["rates"]["flows"]
    assert row["report"]["policy"] == "otfa"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(inputs=[]), "pipeline 'read-text': inputs: is missing; name a file"),
        (lambda p: p.update(inputs=["none.bmp"]), "none.bmp: cannot be read: No such file"),
        (lambda p: p.update(code="none.py"), "none.py: cannot be read"),
    ],
)
def test_code_and_frames_that_do_not_exist_are_named(tmp_path, change, message):
    (tmp_path / "frame0.bmp").write_bytes(b"frame")
    data = reading.scenario([tmp_path / "frame0.bmp"])
    change(data["pipelines"][0])
    (tmp_path / "town.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(EdgewiseError, match=message.replace("[", r"\[").replace("]", r"\]")):
        with_figures(load_scenario(tmp_path / "town.yaml"), print)


def test_a_frame_of_another_size_than_the_pipeline_says_is_told(tmp_path):
    (tmp_path / "frame0.bmp").write_bytes(b"frame")
    data = reading.scenario([tmp_path / "frame0.bmp"])
    data["pipelines"][0]["input_bytes"] = 600
    for task in data["pipelines"][0]["tasks"]:
        task |= {"work_ops": 1e7, "output_bytes": 1000}
    (tmp_path / "town.yaml").write_text(yaml.safe_dump(data))
    said = []
    with_figures(load_scenario(tmp_path / "town.yaml"), said.append)
    assert len(said) == 1 and "has 5 bytes, input_bytes of the pipeline says 600" in said[0]
