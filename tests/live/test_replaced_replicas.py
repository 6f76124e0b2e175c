"""A change of the scenario meets replicas that come and go: none comes back, none runs as before."""

import asyncio
import subprocess

import pytest

from edgewise.runtime.backends.local import LocalBackend
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.rolling import UNDER_WAY, ScenarioChange, read_change, write_change
from edgewise.runtime.states import DONE
from edgewise.runtime.store import Process, Store
from edgewise.runtime.store.steady import SteadyStore

pytestmark = pytest.mark.live
NAME = "camera@hall#0"


def replica(settings, port=1):
    return Process(NAME, "replica", port, {"service": "camera", "node": "hall", "of": settings})


@pytest.fixture
def started(tmp_path):
    """A function: a store with a change under way, a controller whose processes sleep, and what began."""
    made, begun = [], []

    def make(meanwhile=lambda: None):
        def fork(process):
            meanwhile()
            made.append(subprocess.Popen(["sleep", "60"]))
            begun.append(process.settings["of"])
            return made[-1].pid

        store = SteadyStore(tmp_path / "state.sqlite")
        controller = Controller(store, LocalBackend(tmp_path, fork))
        write_change(store, ScenarioChange(UNDER_WAY, "", None, 0.0))
        return store, controller, begun

    yield make
    for each in made:
        each.kill()
        each.wait()


def carry_out(controller):
    """As its loop does."""
    asyncio.run(controller.rolling.bring_about(read_change(controller.store)))
    assert read_change(controller.store).state == DONE


def outdated(store, controller):
    """A replica that runs, and is to get a successor."""
    store.add(replica("former"))
    controller.reconcile()
    store.want([replica("new", port=2)])
    assert store.process(NAME).outdated


def test_one_that_has_gone_before_its_turn_does_not_come_back(started):
    store, controller, begun = started()
    outdated(store, controller)
    store.set_wanted(NAME, False)
    store.started(NAME, None, 0)  # it has ended
    store.forget(NAME)
    carry_out(controller)
    controller.reconcile()
    assert store.processes() == [] and begun == ["former"]
    store.add(replica("added later"))
    controller.reconcile()
    (row,) = store.processes()
    assert row.handle and not row.outdated  # else the next change, or a test, waits for it for ever


def test_one_that_ends_while_its_successor_starts_takes_that_one_along(started):
    store, controller, begun = started()
    outdated(store, controller)

    async def forgotten(of, handle, path):
        store.set_wanted(NAME, False)
        store.started(NAME, None, 0)
        store.forget(NAME)
        return True

    controller.health.ready = forgotten
    carry_out(controller)
    controller.reconcile()
    assert store.processes() == [] and begun == ["former", "new"]
    assert [since_s for _, _, since_s in store.retired()] == [0.0]  # which ends it


def test_one_that_drains_meanwhile_is_replaced_and_stays_unwanted(started):
    store, controller, begun = started()
    outdated(store, controller)

    async def ready(of, handle, path):
        store.set_wanted(NAME, False)
        return True

    controller.health.ready = ready
    carry_out(controller)
    (row,) = store.processes()
    assert row.process.settings["of"] == "new" and not row.process.wanted and row.handle


def test_one_that_has_drained_starts_with_the_new_settings_when_it_is_wanted_again(started):
    store, controller, begun = started()
    outdated(store, controller)
    store.set_wanted(NAME, False)
    store.started(NAME, None, 0)
    carry_out(controller)
    (row,) = store.processes()
    assert not row.process.wanted and row.handle is None
    store.set_wanted(NAME, True)
    controller.reconcile()
    assert begun == ["former", "new"]


def test_one_whose_settings_change_while_it_is_started_is_started_anew(started, tmp_path):
    def change():
        if other.processes("replica")[0].process.settings["of"] != "new":
            other.want([replica("new", port=2)])  # as `prepare` does, in a process of its own

    store, controller, begun = started(change)
    other = Store(tmp_path / "state.sqlite")
    store.add(replica("former"))
    controller.reconcile()
    controller.reconcile()
    (row,) = store.processes()
    assert begun == ["former", "new"] and row.handle and not row.outdated and row.process.port == 2
    other.close()


def test_a_transaction_within_another_is_a_part_of_it(tmp_path):
    store = Store(tmp_path / "state.sqlite")
    with pytest.raises(ZeroDivisionError), store.at_once():
        store.want([replica("new")])
        raise ZeroDivisionError
    assert store.processes() == []
    store.close()
