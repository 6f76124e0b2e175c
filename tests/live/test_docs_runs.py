"""What the pages on pipelines and on split models run on real processes, as it stands there."""

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec

import onnx
import pytest
from test_docs_live import LONG_S, commands_of, system

from bench import split_live
from command_line import edgewise
from docs_commands import ROOT
from edgewise.runtime.testbeds import kernel
from edgewise.runtime.testbeds.spaces import left_behind
from split_models import branching
from waiting import wait_until

pytestmark = pytest.mark.live
PIPELINES, SPLIT = commands_of("pipelines.md"), commands_of("split.md")
(FAN,) = (text for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/split.md").read_text(), re.S)
          if "name: fan" in text)  # fmt: skip


@contextmanager
def beside(command, folder):
    """A command in another terminal."""
    said = subprocess.Popen(
        [sys.executable, "-m", "edgewise", *shlex.split(command)], cwd=folder, stdout=subprocess.PIPE
    )
    try:
        yield said
    finally:
        said.communicate(timeout=2 * LONG_S)


@pytest.mark.skipif(
    not (find_spec("rapidocr") or find_spec("rapidocr_onnxruntime")),
    reason="the extra `demo` is not installed",
)
def test_pipelines_run_and_are_seen(tmp_path):
    shaped, paced, load, one, nodes, _ = PIPELINES[:6]
    assert (shaped, paced) == ("up read-text.yaml --on namespaces", "up read-text.yaml")
    edgewise(*shlex.split("init --read-text --out read-text.yaml"), folder=tmp_path)
    up = shaped if kernel.unavailable() is None else paced  # no root here
    with system(tmp_path, up), beside(load, tmp_path):

        def goes():
            said = edgewise(*shlex.split(one), folder=tmp_path, code=None)
            return said if re.search(r"recognise +\w+ +[1-9]", said) else None

        said = wait_until(goes, limit_s=2 * LONG_S)
        assert "throughput: planned" in said and "source->detect" in said, said
        links = edgewise(*shlex.split(nodes), folder=tmp_path)
        assert "camera-roof" in links and "flows carry" in links
        for command in PIPELINES[6:]:  # cut and mended, and a second policy that watches
            edgewise(*shlex.split(command), folder=tmp_path)
        edgewise("pipelines", "--end", "1", folder=tmp_path)
    assert tmp_path / "runs/live" not in left_behind()


def test_a_network_of_ones_own_is_split_over_servers(tmp_path):
    onnx.save(branching(size=12, width=8), tmp_path / "my.onnx")
    (tmp_path / "fan.yaml").write_text(FAN.replace("duration_s: 30", "duration_s: 5"))
    up, load, _, report = SPLIT
    with system(tmp_path, up):
        figures = edgewise(*shlex.split(load), folder=tmp_path)
        came, ok = map(int, re.search(r"graphs\s+(\d+)\s+(\d+)", figures).groups())
        assert came >= ok > 0, figures
    assert "report.html" in edgewise(*shlex.split(report), folder=tmp_path)


def test_a_split_model_is_tried_beside_its_forecast(tmp_path, capsys):
    onnx.save(branching(size=12, width=8), tmp_path / "my.onnx")
    (tmp_path / "fan.yaml").write_text(FAN.replace("my.onnx", str(tmp_path / "my.onnx")))
    split_live.main([str(tmp_path / "fan.yaml"), "--queries", "20", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["servers"] == 3 and found["queries"] == 20
    assert [row["policy"] for row in found["policies"]] == list(split_live.SPLIT)
    for row in found["policies"]:
        assert row["error"] < 1e-4 and 0.0 < row["mean_s"] <= row["p99_s"]
    assert set(os.listdir(tmp_path)) == {"fan.yaml", "my.onnx"}
