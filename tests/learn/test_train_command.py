"""`edgewise train` with what users get wrong: one message before any work."""

import pytest
from typer.testing import CliRunner

from edgewise.cli import app
from edgewise.errors import EdgewiseError


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train chooser --scenario nope", "no such file"),
        ("train aset --scenario nope", "no such file"),
        ("train chooser --improve doubel", "doubel"),
        ("train chooser --state nope", "--state 'nope': use one of history, pooled"),
        ("train defer nope", "nope"),
        ("train kais --method nope", "nope"),
        ("train kais --scenario nope", "nope"),
    ],
)
def test_a_mistake_is_one_message_before_any_work(tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, line.split())
    said = str(found.exception) + found.output
    assert isinstance(found.exception, (EdgewiseError, OSError)) or found.exit_code == 2, said
    assert message in said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
