"""What the page on pipelines shows, as its reader runs it, and the example of an own policy, live."""

import json
import re
from contextlib import chdir
from pathlib import Path

import pytest

from in_process import edgewise
from up_and_loaded import loading, measured, running

pytestmark = pytest.mark.live
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "pipelines.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.S)
SIMULATE = [code for code in PYTHON if "simulate_" in code]
(PROFILE,) = (code for code in PYTHON if "profile_pipeline" in code)
(CODE,) = (code for code in PYTHON if "job = [" in code)
(TOWN,) = (text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S) if "pipelines:" in text)
TOY = (DOCS.parent / "examples/03-every-decision/pipelines.py").read_text(encoding="utf-8")


@pytest.fixture
def town(tmp_path):
    """The page's own pipeline, as it is to be saved."""
    (tmp_path / "town.yaml").write_text(TOWN)
    (tmp_path / "count.py").write_text(CODE)
    (tmp_path / "frame.bmp").write_bytes(bytes(600_000))
    return tmp_path


def test_its_python_runs_from_top_to_bottom(town, capsys):
    names = {}
    with chdir(town):
        for code in (*SIMULATE, PROFILE):
            exec(compile(code, "pipelines.md", "exec"), names)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[:4]] == ["tp", "otfs", "otfa", "joint"]
    figures = [float(figure) for figure in re.findall(r"[\d.]+", " ".join(said[4:]))]
    judged, measured = figures[: len(figures) // 2], figures[len(figures) // 2 :]
    assert len(judged) > 1 and measured == pytest.approx(judged, rel=0.02)
    assert [task.work_ops > 0 for task in names["pipeline"].graph.tasks] == [True, True]


def test_its_pipeline_runs_live_under_a_policy_of_ones_own(town):
    (town / "pipelines.py").write_text(TOY)
    # A policy that stays at the source finds room there.
    camera = ("--set", "clusters.0.nodes.0.resources.memory_bytes=2GB")
    mine = ("--policy", "place=pipelines.py:AtSource")
    with running(town / "state", "town.yaml", *mine, *camera, cwd=town):
        assert edgewise("shadow", "set", "place=tp", "--state", "state", cwd=town).returncode == 0
        with loading(town / "state", town):
            found = measured(town / "state", town, least=1)
            assert edgewise("pipelines", "--end", 1, "--state", "state", cwd=town).returncode == 0
            (row,) = json.loads(
                edgewise("shadow", "show", "place", "--state", "state", "--json", cwd=town).stdout
            )
    assert found["rates"]["planned_fps"] > 0
    assert row["report"]["policy"] == "tp" and "planned_fps" in str(row)
    assert found["rates"]["nodes"] == {"detect": "camera", "track": "camera"}


def test_that_nothing_runs_because_the_policy_fails_is_said(town):
    (town / "mine.py").write_text(TOY.replace("free, placed, none =", "view.nothing; free, placed, none ="))
    done = edgewise(
        "up", "town.yaml", "--policy", "place=mine.py:AtSource", "--port", 0, "--state", "state", cwd=town
    )
    assert done.returncode != 0 and "has no attribute 'nothing'" in " ".join(done.stderr.split())


def test_its_commands_run(tmp_path):
    found = re.findall(r"^edgewise ((?:simulate|compare) .*)$", PAGE, re.M)
    commands = [command for command in found if "town.yaml" not in command]  # of another simulator's file
    assert len(commands) == 3
    for command in commands:
        few = [] if "count" in command else ["--set", "pipelines.0.count=10"]
        seeds = [] if "--seeds" in command else ["--seeds", "0:1"]
        done = edgewise(*command.replace("0:5", "0:2").split(), *seeds, *few, cwd=tmp_path)
        assert done.returncode == 0 and "frames/s" in done.stdout, done.stdout + done.stderr
