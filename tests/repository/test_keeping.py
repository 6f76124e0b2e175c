"""What the bench of records compares: a tree that keeps none, and ratios of pairs."""

import math
import re
from pathlib import Path

import pytest

pytest.importorskip("uvloop", reason="the extra `live` is not installed")

from edgewise.runtime.gateway import tally
from edgewise.runtime.store import records

ROOT, RUNTIME = Path(__file__).resolve().parents[2], Path(tally.__file__).parents[1]


@pytest.fixture
def keeping(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import keeping

    return keeping


def silent(keeping, module):
    """A module as it is in the tree that keeps no records."""
    file = Path(module.__file__)
    text = file.read_text() + keeping.SILENT[str(file.relative_to(RUNTIME))]
    names = {"__name__": module.__name__}
    exec(compile(text, file.name, "exec"), names)
    return names


def test_gateways_of_the_silent_tree_count_nothing(keeping):
    counts = silent(keeping, tally)["StreamTally"](10.0)
    counts.opened(1.0, "a", True)
    counts.query(1.0, "a", "ok")
    counts.answered(1.0, "a", "camera", 0.1)
    counts.worked(1.0, "w", 0.0, 1.0)
    counts.sent(1.0, "here", "there", 1, 1)
    assert counts.changed(100.0, "g", 5.0, "closest") == []
    real = tally.StreamTally(10.0)
    real.query(1.0, "a", "ok")
    assert real.changed(100.0, "g", 5.0, "closest")


def test_gateways_of_the_silent_tree_write_nothing(keeping):
    table = silent(keeping, records)["RecordTable"](None)
    for write in (table.note_requests, table.note_outcomes, table.note_windows):
        assert write([None]) is None  # there is no store


def test_a_ratio_is_as_large_one_way_as_the_other(keeping):
    """Twice and half are no difference: a busy machine lengthens now the one, now the other."""
    line = keeping.line(
        "a query", "CPU, µs", 1e6, [[1.0, 2.0], [2.0, 1.0], [1.0, 1.0], [1.0, 1.0]], most_is_best=False
    )
    mean, low, high = map(float, re.search(r"([+-]\S+) % \[(\S+) … (\S+)\]", line).groups())
    assert mean == 0.0 and low < 0.0 < high
    half = math.log(2.0) * math.sqrt(2.0 / 3.0) / 2.0 * 3.1824463
    assert line.endswith("; 1000000.0, 1000000.0: +0.0 %")
    assert high == pytest.approx(100.0 * math.expm1(half), abs=0.1)


def test_the_best_tenth_is_the_best_one_of_a_few_and_a_mean_of_many(keeping):
    assert keeping.best_tenth([3.0, 1.0, 2.0], most_is_best=False) == 1.0
    assert keeping.best_tenth(range(20), most_is_best=True) == 18.5


def test_what_counts_and_writes_is_timed_by_itself(keeping, monkeypatch):
    """One turn of each; how long it takes is not judged."""
    monkeypatch.setattr(keeping, "least_s", lambda does: does() or 1.0)
    assert list(keeping.alone().values()) == [1 / 500, 1 / 350, 1.0, 1.0]
