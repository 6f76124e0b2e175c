"""Two runs side by side: what differs, how both fared, and who is paired with whom."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from report_example import MANIFEST, stream_row, table, window_row

from edgewise.report import beside
from edgewise.report.records import RecordedRun, read_run, write_run
from edgewise.report.schema import STREAMS, WINDOWS
from in_process import edgewise


def made(folder: Path, oks: dict[int, int], scenario: str, policy: str = "closest") -> RecordedRun:
    rows = [stream_row(policy=policy, seed=s, ok=ok, failed=50 - ok) for s, ok in oks.items()]
    windows = [window_row(policy=policy, seed=s, queries=50, ok=ok, failed=50 - ok) for s, ok in oks.items()]
    write_run(
        folder, scenario_yaml=scenario, manifest=MANIFEST | {"seeds": list(oks), "policies": [policy]},
        items=table(rows, STREAMS), windows=table(windows, WINDOWS),
    )  # fmt: skip
    return read_run(folder)


def test_two_runs_are_paired_by_seed_and_differences_said(tmp_path: Path) -> None:
    before = made(tmp_path / "before", {1: 30, 2: 40, 3: 35}, "nodes:\n- {name: box, cores: 4}\nkept: 1\n")
    after = made(tmp_path / "after", {1: 35, 2: 45, 3: 41}, "nodes:\n- {name: box, cores: 8}\nkept: 1\n")
    page = unescape(beside.render(before, after))
    difference = 100 * (5 + 5 + 6) / 3 / 50
    assert f"the second is better by {difference:.2f} in success % under closest, surely" in page
    assert f"<strong>+{difference:.2f}</strong>" in page
    assert re.search(r'nodes.box.cores</td><td class="names">4</td><td class="names">8</td>', page)
    assert "kept</td>" not in page


def test_other_seeds_are_not_called_sure_and_other_policies_are_set_against_each_other(
    tmp_path: Path,
) -> None:
    first = made(tmp_path / "one", {1: 30, 2: 40}, "a: 1\n")
    second = made(tmp_path / "two", {7: 25, 8: 30}, "a: 1\n", policy="random")
    assert beside.paired(first, second) == [("closest", "random")]
    page = unescape(beside.render(first, second))
    assert "the second is worse by 15.00 in success % under closest, random, over different seeds" in page
    assert "Nothing: both ran the same scenario." in page


def test_the_command_writes_the_page_and_refuses_three_runs(tmp_path: Path) -> None:
    for name, ok in (("one", 30), ("two", 40)):
        made(tmp_path / name, {1: ok, 2: ok}, "a: 1\n")
    done = edgewise("report", "one", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "one-beside-two.html").read_text(encoding="utf-8")
    assert "one beside two" in page and "+20.00" in page
    assert json.loads((tmp_path / "one" / "manifest.json").read_text())["policies"] == ["closest"]
    assert edgewise("report", "one", "two", "one", cwd=tmp_path).returncode != 0
    assert "name one, or two" in edgewise("report", "one", "two", "one", cwd=tmp_path).stderr


@pytest.mark.parametrize("text", ["", "a: 1\n"])
def test_a_run_beside_itself_differs_in_nothing(tmp_path: Path, text: str) -> None:
    run = made(tmp_path / "run", {1: 30, 2: 40}, text)
    page = unescape(beside.render(run, run))
    assert "Streams: both have the same success % under closest." in page
