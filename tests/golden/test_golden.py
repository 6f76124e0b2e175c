"""Records stay as they are: those of the golden runs are compared with records.json."""

import json
from copy import deepcopy

import pytest
from golden_records import RECORDS, arithmetic, described, differences
from golden_runs import RUNS

WRITTEN = json.loads(RECORDS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", RUNS)
def test_records_of_a_golden_run_are_as_they_were(name):
    if name == "isp":
        pytest.importorskip("topohub", reason="the extra `graphs` is not installed")
    before = WRITTEN["runs"][name]
    found = differences(
        before["tables"], described(RUNS[name].tables()), WRITTEN["arithmetic"] == arithmetic()
    )
    assert not found, (
        f"{name} ({before['what']}) has other records:\n  "
        + "\n  ".join(found)
        + "\nIs that a defect that had to be"
        " mended? Say so in tests/golden/CHANGES.md, then run python tests/golden/golden_records.py"
    )


def test_every_golden_run_is_written_and_nothing_else():
    assert list(WRITTEN["runs"]) == list(RUNS)
    assert {name: run["what"] for name, run in WRITTEN["runs"].items()} == {
        n: r.what for n, r in RUNS.items()
    }


def test_a_difference_is_placed():
    tables = {"t": {"x": [1.0, 2.0, 3.0], "n": [1, 2, 3], "s": ["a", None, "b"]}}
    before, changed = described(tables), deepcopy(tables)
    assert differences(before, described(changed), True) == []
    changed["t"]["x"][1] += 4e-16  # one unit of the last digit
    assert differences(before, described(changed), False) == []
    assert [what.split(":")[:2] for what in differences(before, described(changed), True)] == [
        ["t", " column x"]
    ]
    changed["t"]["n"][2] = 4
    found = differences(before, described(changed), False)
    assert found == ["t: column n: int of sum 6, now int of sum 7", "t: the first row that differs is 2"]
    del changed["t"]["s"]
    assert "t: column s is missing" in differences(before, described(changed), True)
    assert differences(before, {}, True) == ["table t is missing"]
    assert (
        differences(before, described({"t": {"x": [1], "n": [1], "s": ["a"]}}), True)[-2]
        == "t: 3 rows, now 1"
    )
