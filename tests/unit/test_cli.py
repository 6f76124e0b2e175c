"""The command line as a person meets it: real processes, exit codes, no tracebacks."""

import json
import subprocess
import sys

import pytest


def edgewise(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "edgewise.cli", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_simulate_writes_a_run_folder(tmp_path):
    done = edgewise("simulate", "tiny", "--policy", "closest", "--seeds", "0:2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "runs" / "tiny-closest"
    names = {path.name for path in folder.iterdir()}
    assert names >= {"scenario.yaml", "manifest.json", "streams.parquet", "windows.parquet", "summary.json",
                     "figures", "report.html"}  # fmt: skip
    assert "closest" in done.stdout


def test_compare_then_report(tmp_path):
    done = edgewise("compare", "tiny", "--seeds", "0:3", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "here" / "report.html").unlink()
    assert edgewise("report", "here", cwd=tmp_path).returncode == 0
    assert (tmp_path / "here" / "report.html").exists()


def test_schema_is_json_and_lists_print(tmp_path):
    schema = json.loads(edgewise("schema", cwd=tmp_path).stdout)
    assert "clusters" in schema["properties"]
    assert "three-tier" in edgewise("scenarios", cwd=tmp_path).stdout
    assert "least-impedance" in edgewise("policies", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "three-teir"], "three-tier"),
        (["simulate", "tiny", "--policy", "closet"], "closest"),
        (["simulate", "tiny", "--seeds", "5:1"], "A:B"),
        (["simulate", "tiny", "--seeds", "x"], "A:B"),
        (["report", "nowhere"], "nowhere"),
        (["report", "[bold]nowhere"], "[bold]nowhere"),
        (["compare", "tiny", "--policies", "closest"], "at least two"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(tmp_path, arguments, message):
    done = edgewise(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_key_names_the_nearest(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: mine\nduraton_s: 5\n")
    done = edgewise("simulate", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "duraton_s" in done.stderr and "duration_s" in done.stderr


@pytest.mark.parametrize("command", ["simulate", "compare", "report", "demo", "schema", "profile", "catalog"])
def test_help_has_an_example(tmp_path, command):
    assert f"edgewise {command}" in edgewise(command, "--help", cwd=tmp_path).stdout
