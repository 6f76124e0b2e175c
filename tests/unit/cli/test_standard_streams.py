"""Commands with standard streams that are closed, full, or read by somebody who leaves."""

import subprocess
import sys
from pathlib import Path

import pytest

EDGEWISE = f"{sys.executable} -m edgewise"
# Help of a verb of each module: what a verb imports may need streams. A child of one interpreter for each, as
# it finds descriptors that are closed.
ALL_MODULES = """
import io, os, sys
import typer.rich_utils  # shows help: half of the time of each child
from typer.main import get_command
from edgewise import cli

def verbs(command, before):
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        each = command.get_command(None, name)
        yield getattr(each.callback, "__module__", None), [*before, name]
        yield from verbs(each, [*before, name])

found = dict(verbs(get_command(cli.app), []))
assert len(found) > 10, found
for verb in found.values():
    child = os.fork()
    if not child:
        sys.argv = ["edgewise", *verb, "--help"]
        cli.main()
        os._exit(99)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        open("failed", "a").write(f"{verb}: {code}\\n")
"""


def shell(line, folder):
    """Exit statuses of a pipe, and what it wrote to streams that are open."""
    line = f'{line}; codes=("${{PIPESTATUS[@]}}"); echo "${{codes[@]}}" > codes'
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300)
    codes = [int(code) for code in (folder / "codes").read_text().split()]
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return codes, done


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_nothing_else(closed, tmp_path):
    (code,), done = shell(
        f"{EDGEWISE} simulate tiny --policy closest --seeds 0 --out here {closed}", tmp_path
    )
    assert code == 0, done.stderr
    assert (tmp_path / "here" / "items.parquet").stat().st_size  # not what would have been printed
    assert b"records, figures" not in (tmp_path / "here" / "items.parquet").read_bytes()
    (code,), _ = shell(f"{EDGEWISE} simulate nope {closed}", tmp_path)
    assert code == 2


def test_verbs_of_every_module_help_with_all_streams_closed(tmp_path):
    (tmp_path / "all.py").write_text(ALL_MODULES)
    (code,), _ = shell(f"{sys.executable} all.py >&- 2>&- <&-", tmp_path)
    assert code == 0 and not (tmp_path / "failed").exists(), (tmp_path / "failed").read_text()


def test_a_reader_that_leaves_ends_the_command(tmp_path):
    for line in ("openapi gateway", "policies --help"):
        codes, done = shell(f"{EDGEWISE} {line} | true", tmp_path)
        assert codes == [141, 0] and not done.stderr
    codes, _ = shell(
        f"{EDGEWISE} simulate tiny --policy closest --seeds 0 --out here --json | true", tmp_path
    )
    assert codes == [141, 0] and (tmp_path / "here" / "summary.json").exists()  # it was written before
    codes, _ = shell(f"{EDGEWISE} simulate nope 2>&1 | true", tmp_path)
    assert codes == [141, 0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_what_cannot_be_written_is_said(tmp_path):
    (code,), done = shell(f"{EDGEWISE} policies > /dev/full", tmp_path)
    assert code == 2 and done.stderr == "error: No space left on device\n"


def test_a_connection_that_broke_is_no_reader_that_left(tmp_path):
    program = """
import sys
from unittest.mock import patch
from edgewise import cli
sys.argv = ["edgewise", "status"]
with patch("edgewise.cli.state.call", side_effect=BrokenPipeError(32, "Broken pipe")):
    cli.main()
"""
    (tmp_path / "broken.py").write_text(program)
    (code,), done = shell(f"{sys.executable} broken.py", tmp_path)
    assert code == 2 and "Broken pipe: the other side did not answer, or hung up" in done.stderr
