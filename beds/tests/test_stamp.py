"""What the tests of the Kubernetes bed are about is in the digests that say whether they have passed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from beds.kubernetes import stamp
from beds.processes import REPOSITORY


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of all that counts, noted as passed."""
    for name in stamp.PARTS:
        for file in stamp.sources(name):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / file, tmp_path / file)
    for name in stamp.PARTS:
        stamp.note(name, tmp_path)
    assert stamp.stale(tmp_path) == []
    return tmp_path


def test_every_test_is_of_one_part_and_every_source_of_some():
    tests = [file for part in stamp.PARTS.values() for file in part.files()]
    assert sorted(tests) == sorted(
        str(each.relative_to(REPOSITORY)) for each in (REPOSITORY / stamp.HERE / "tests").glob("test_*.py")
    )
    counted = {file for name in stamp.PARTS for file in stamp.sources(name)}
    there = {str(each.relative_to(REPOSITORY)) for each in (REPOSITORY / stamp.HERE).rglob("*.py")}
    assert there - counted == stamp.NOWHERE


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("picker-conformance/src/picker_conformance/cases/health.py", ["picker"]),
        ("beds/kubernetes/reference_picker.py", ["picker"]),
        ("beds/kubernetes/tests/test_reference_picker.py", ["picker"]),
        ("pyproject.toml", ["image"]),
        (
            "src/edgewise/precompile.py",
            [name for name, part in stamp.PARTS.items() if set(stamp.POD) <= set(part.about)],
        ),
        ("charts/edgewise/templates/tests/answer.yaml", ["chart", "faults", "tutorial"]),
        ("beds/kubernetes/commands.py", ["commands"]),
        ("beds/kubernetes/kwok.py", ["cluster", "commands", "scale"]),
        ("beds/conftest.py", list(stamp.PARTS)),
        ("beds/kubernetes/images.py", list(stamp.PARTS)),
        ("beds/go.py", list(stamp.PARTS)),
    ],
)
def test_a_change_makes_those_tests_run_that_are_about_it(copy, file, parts):
    with (copy / file).open("a") as to:
        to.write("\n")
    assert stamp.stale(copy) == parts
    stamp.note(parts[0], copy)
    assert stamp.stale(copy) == parts[1:]


def test_a_file_that_is_new_or_gone_counts(copy):
    (copy / "beds/kubernetes/storage.py").write_text("")
    assert stamp.stale(copy) == list(stamp.PARTS)
    (copy / "beds/kubernetes/storage.py").unlink()
    (copy / "picker-conformance/src/picker_conformance/cases/health.py").unlink()
    assert stamp.stale(copy) == ["picker"]


def test_the_old_form_of_the_file_says_that_nothing_has_passed(copy):
    (copy / stamp.FILE).write_text(f"{'0' * 64}  beds/kubernetes as its tests last passed\n")
    assert stamp.stale(copy) == list(stamp.PARTS)


def test_what_cannot_begin_in_time_is_left_out_and_said(monkeypatch, capsys):
    monkeypatch.setenv(stamp.WITHIN, "-1")
    assert stamp.run("chart")
    assert capsys.readouterr().out.startswith("chart: left out")
