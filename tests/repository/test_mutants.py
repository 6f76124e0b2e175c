"""The table of mutants fits the source: each breaks a rule that stands there, and names tests there are."""

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

import edgewise

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "mutants"))
import breaking  # noqa: E402

SOURCE = Path(edgewise.__file__).parent
MUTANTS = breaking.mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.lie)
def test_a_mutant_breaks_a_rule_that_there_is_and_names_tests_that_there_are(mutant):
    broken = mutant.broken((SOURCE / mutant.file).read_text())
    compile(broken, mutant.file, "exec")
    assert mutant.part in ("driver", "core") and mutant.seen_by
    for test in mutant.seen_by:
        file, *name = test.split("::")
        tree = ast.parse((TESTS.parent / file).read_text())
        there = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert not name or name[0].partition("[")[0] in there, test


def test_the_page_of_mutants_has_a_row_for_each_as_it_is_and_all_are_seen():
    rows = breaking.written()
    said = {mutant.lie: f"| {mutant.part} | {mutant.lie} | `{mutant.file}` | " for mutant in MUTANTS}
    assert list(rows) == list(said), "run `make mutants`"
    for lie, row in rows.items():
        assert row.startswith(said[lie]) and breaking.NOBODY not in row, row


def test_no_lie_is_told_twice():
    assert max(Counter(mutant.lie for mutant in MUTANTS).values()) == 1
    with pytest.raises(ValueError, match="0 times"):
        MUTANTS[0].broken("")
