"""How far a command is where nobody looks at a terminal, what Ctrl-C leaves, and how folders are called."""

import io
import shutil
from unittest.mock import patch

import pytest
from rich.console import Console

from edgewise import api, config
from edgewise.cli import progress as progressing
from in_process import edgewise


def lines(counted, steps, total):
    """What is said where each step takes four seconds."""
    seconds = iter(range(0, 1000, 4))
    err = Console(file=io.StringIO(), width=80)
    with patch.object(progressing, "err", err):
        bar = progressing.SaidProgress(counted, lambda: "nothing is kept", lambda: float(next(seconds)))
        with bar:
            task = bar.add_task("closest", total=total)
            for _ in range(steps):
                bar.advance(task)
    return err.file.getvalue().splitlines()


def test_without_a_terminal_a_plain_line_comes_now_and_then():
    assert lines(True, 8, 10) == ["closest: 3 of 10 (12 s)", "closest: 6 of 10 (24 s)"]
    assert lines(False, 4, 8) == ["closest: 38 % (12 s)"]
    assert lines(True, 2, 10) == []  # what is short says nothing


def interrupted(*words, cwd, after):
    """A command that is ended by Ctrl-C when so many runs have ended."""

    def run(*arguments, progress=lambda: None, **more):
        for _ in range(after):
            progress()
        raise KeyboardInterrupt

    with patch.object(api, words[0], run):
        return edgewise(*words, cwd=cwd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("simulate", "tiny", "--policy", "closest", "--seeds", "0:5"), "closest: 2 of 5; nothing is kept"),
        (
            ("compare", "tiny", "--policies", "closest,farthest", "--seeds", "0:5"),
            "runs: 2 of 10; nothing is kept",
        ),
        (("compare", "tiny", "--policies", "closest,farthest", "--quiet"), "runs: 2 of 20; nothing is kept"),
    ],
)
def test_who_ends_a_command_hears_what_is_kept(words, said, tmp_path):
    done = interrupted(*words, cwd=tmp_path, after=2)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"stopped: {said}\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert interrupted(*words, cwd=tmp_path, after=2).stderr == done.stderr  # and so does the next one


def test_who_ends_a_command_while_it_writes_hears_that_records_are_not_whole(tmp_path):
    with patch("edgewise.run.result.Result.save", side_effect=KeyboardInterrupt):
        done = edgewise(
            "simulate", "tiny", "--policy", "closest", "--seeds", "0", "--out", "it", cwd=tmp_path
        )
    said = "stopped: the records in it are not whole; nothing else is kept\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", said)


def test_whatever_else_is_ended_says_so(tmp_path):
    with patch.object(config, "scenario_schema", side_effect=KeyboardInterrupt):
        done = edgewise("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


def test_folders_are_named_after_the_file(tmp_path):
    shutil.copy(config._SHIPPED / "tiny.yaml", tmp_path / "hall.yaml")
    edgewise("simulate", "hall.yaml", "--policy", "closest", "--seeds", "0", cwd=tmp_path)
    edgewise("compare", "hall.yaml", "--policies", "closest,farthest", "--seeds", "0", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["hall-closest", "hall-compare"]
