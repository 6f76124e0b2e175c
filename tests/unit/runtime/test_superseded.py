"""A change that nobody brings about any more gives way to the next, which goes back behind both."""

import os
import string
import subprocess

import pytest
from hypothesis import given, strategies as st

from command_line import edgewise
from edgewise.config import load_scenario
from edgewise.errors import RunError
from edgewise.runtime.controller.plan import SCENARIO, prepare
from edgewise.runtime.controller.rolling import read_change, renamed_twice, undo, write_change
from edgewise.runtime.process.machine import handle_of
from edgewise.runtime.states import DONE


def slower(lag_s):
    return load_scenario("tiny", {"telemetry.period_s": lag_s})


def running(folder):
    """A system that runs `tiny`: this process stands for all of its own."""
    store = prepare(folder, slower(1))
    for each in store.processes():
        store.started(each.process.name, handle_of(os.getpid()), 0)
    return store


def wanted(store):
    return {each.process.name: each.process for each in store.processes() if each.process.wanted}


def test_it_goes_back_to_what_was_there_before_both(tmp_path):
    store = running(tmp_path)
    write_change(store, read_change(store).in_state(DONE))
    first, text = wanted(store), (tmp_path / SCENARIO).read_text()
    prepare(tmp_path, slower(2)).close()
    with pytest.raises(RunError, match="an earlier change is under way"):
        prepare(tmp_path, slower(3))
    prepare(tmp_path, slower(3), superseding=True).close()
    change = read_change(store)
    assert change.open and change.before["scenario"] == text
    fields = [field for each in change.difference for field in each["fields"]]
    assert {"name": "telemetry_period_s", "before": 1.0, "after": 3.0} in fields
    undo(store, change.before)
    assert (tmp_path / SCENARIO).read_text() == text and wanted(store) == first
    assert not any(each.outdated for each in store.processes())


def test_a_dry_run_says_what_up_would_do_where_nobody_brings_the_earlier_change_about(tmp_path):
    """Its controller is an orphan: `up` would end it and take its change's place."""
    folder = tmp_path / "live"
    store = running(folder)
    write_change(store, read_change(store).in_state(DONE))
    prepare(folder, slower(2)).close()
    before, text = store.get("change"), (folder / SCENARIO).read_text()
    with subprocess.Popen(["sleep", "600"]) as orphan:
        store.put("controller_handle", handle_of(orphan.pid))
        up = ("up", "tiny", "--set", "telemetry.period_s=3", "--state", "live", "--port", "0", "--dry-run")
        said = edgewise(*up, folder=tmp_path)
        assert orphan.poll() is None
        orphan.kill()
    assert "telemetry_period_s 1.0 → 3.0" in said and "under way" not in said
    assert store.get("change") == before and (folder / SCENARIO).read_text() == text


def test_after_a_first_start_there_is_nothing_to_go_back_to(tmp_path):
    store = running(tmp_path)
    prepare(tmp_path, slower(2), superseding=True).close()
    change = read_change(store)
    assert change.open and change.before is None


def test_a_node_that_is_down_is_to_be_repaired_before_any_change(tmp_path):
    store = running(tmp_path)
    store.put("nodes down", ["near-node"])
    with pytest.raises(RunError, match="edgewise repair near-node first"):
        prepare(tmp_path, slower(2), superseding=True)


NEW = st.permutations(string.ascii_lowercase[:6])


@given(first=NEW, then=NEW)
def test_names_that_were_given_twice_lead_from_the_first_to_the_last(first, then):
    """The first names may go on being names: what counts is where each process that had one ends."""
    old = list(string.ascii_lowercase[:6])
    once, again = (
        dict(zip(old, map(str.upper, first), strict=True)),
        dict(zip(map(str.upper, old), then, strict=True)),
    )
    assert renamed_twice(once, again) == {each: again[once[each]] for each in old}
    assert renamed_twice({}, once) == renamed_twice(once, {}) == once
