"""What is wanted comes about whatever a hostile backend does, and gateways are told where it answers."""

import asyncio
import random
from contextlib import contextmanager

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

from hostile_backend import LONGEST, Cluster, HostileBackend

from edgewise.runtime import clock
from edgewise.runtime.backends import conformance
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.rolling import (
    TRIES,
    UNDER_WAY,
    UNDOING,
    ScenarioChange,
    read_change,
    write_change,
)
from edgewise.runtime.states import DONE, FAILED
from edgewise.runtime.store import Process, Store, StoreError
from edgewise.runtime.store.steady import SteadyStore

NAMES = ("a", "b", "c")
TURN_S, SETTLED = 1.0, 60  # turns after which nothing is under way any more
DO = st.sampled_from(("look", "look", "look", "want", "not want", "begin anew"))


class Alone(Controller):
    """A controller whose gateways do not answer: nobody is at the addresses that a cluster says."""

    async def ask_gateways(self, method, path):
        return []


class Live:
    """A controller on a hostile backend, on a clock of its own."""

    def __init__(self, folder, draws):
        self.file, self.cluster, self.now_s = folder / "state.sqlite", Cluster(draws), 1000.0
        self.store = SteadyStore(self.file)
        self.begin()

    def begin(self):
        self.controller = Alone(self.store, HostileBackend(self.cluster))

    def again(self):
        """The controller is killed, and another one begins."""
        self.store.close()
        self.store = SteadyStore(self.file)
        self.begin()

    def look(self):
        self.now_s += TURN_S
        self.controller.reconcile()
        asyncio.run(self.controller.check())

    def do(self, what, name):
        match what:
            case "want" | "not want":
                self.store.set_wanted(name, what == "want")
            case "begin anew":
                self.again()
        self.look()


@contextmanager
def live(folder, draws):
    system = Live(folder, draws)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clock, "unix_s", lambda: system.now_s)
        patched.setattr(clock, "monotonic_s", lambda: system.now_s)
        try:
            yield system
        finally:
            system.store.close()


def told(file):
    """Where gateways, which open the store themselves, go to; by the handle of who should be there."""
    store = Store(file)
    rows = {r.handle: r.process.url for r in store.processes() if r.process.wanted}
    store.close()
    return rows


def test_a_hostile_backend_keeps_the_contract_while_nobody_deletes_anything(tmp_path):
    cluster = Cluster(random.Random(3))
    cluster.calm = True
    conformance.check_backend(lambda folder: HostileBackend(cluster), tmp_path, 10.0, cluster.answers)


@pytest.mark.parametrize("wrong", ["ready when it is not", "an address where nothing is"])
def test_a_backend_that_says_what_is_not_so_is_found_out(tmp_path, wrong):
    class Lying(HostileBackend):
        def look(self, process, handle):
            seen = super().look(process, handle)
            if wrong.startswith("ready"):
                return type(seen)(seen.url, True)
            return type(seen)(process.url, seen.ready)

    cluster = Cluster(random.Random(3))
    cluster.calm = True
    with pytest.raises(AssertionError, match="look: "):
        conformance.check_backend(lambda folder: Lying(cluster), tmp_path, 0.5, cluster.answers)


@settings(max_examples=60)
@given(
    draws=st.randoms(use_true_random=False),
    history=st.lists(st.tuples(DO, st.sampled_from(NAMES)), max_size=25),
)
def test_what_is_wanted_comes_about_once_and_where_gateways_are_told(tmp_path_factory, draws, history):
    with live(tmp_path_factory.mktemp("hostile"), draws) as system:
        cluster = system.cluster
        system.store.want([Process(name, "worker", 1000 + k) for k, name in enumerate(NAMES)])
        for what, name in history:
            system.do(what, name)
        cluster.calm = True
        for _ in range(SETTLED):
            system.look()
        wanted = {r.process.name: r.handle for r in system.store.processes() if r.process.wanted}
        assert sorted(cluster.running()) == sorted(wanted.values())
        assert all(cluster.processes[handle].name == name for name, handle in wanted.items())
        assert all(cluster.processes[handle].ready for handle in wanted.values())
        assert told(system.file) == {handle: cluster.processes[handle].url for handle in wanted.values()}
        assert system.controller.health.served == set(wanted.values())
        assert not cluster.twice


def test_gateways_are_told_at_each_look_where_a_process_has_gone(tmp_path):
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        system.store.want([Process("a", "worker", 1000)])
        for number in range(3):
            system.look()
            system.look()
            (handle,) = system.cluster.running()
            system.cluster.processes[handle].url = f"http://10.1.0.{number + 1}:8000"
            system.look()
            assert told(system.file) == {handle: f"http://10.1.0.{number + 1}:8000"}


def test_one_that_ended_is_not_looked_for_where_it_was(tmp_path):
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        system.store.want([Process("a", "worker", 1000)])
        system.look()
        system.look()
        (handle,) = system.cluster.running()
        was = told(system.file)[handle]
        system.cluster.processes[handle].alive = False
        system.look()
        assert was not in told(system.file).values()


def test_one_that_was_never_ready_has_failed_when_it_ends(tmp_path):
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        system.store.want([Process("a", "worker", 1000)])
        system.cluster.late = 1000
        system.look()
        system.look()
        (handle,) = system.cluster.running()
        assert not system.controller.health.served
        system.cluster.processes[handle].alive = False
        system.look()
        assert system.store.process("a").failures == 1


def test_where_one_answers_is_known_while_it_cannot_be_written_down(tmp_path, monkeypatch):
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        system.store.want([Process("a", "worker", 1000)])
        system.look()
        with monkeypatch.context() as full:

            def fail(*_):
                raise StoreError("no room")

            full.setattr(Store, "write_answers_at", fail)
            system.look()
            (handle,) = system.cluster.running()
            assert system.store.process("a").process.url == system.cluster.processes[handle].url
            assert told(system.file) == {handle: "http://127.0.0.1:1000"}
        system.look()
        assert told(system.file) == {handle: system.cluster.processes[handle].url}


def test_a_successor_takes_over_once_its_backend_says_that_it_is_ready(tmp_path, monkeypatch):
    """Nobody is there who could be asked over HTTP."""
    seen = []

    async def pause(seconds):
        system.now_s += seconds
        seen.append((set(told(system.file)), system.cluster.processes["a-1"].ready))
        system.controller.reconcile()

    monkeypatch.setattr(clock, "sleep", pause)
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        system.store.want([Process("a", "worker", 1000)])
        system.look()
        for _ in range(LONGEST):
            system.look()
        system.cluster.late = 20
        system.store.want([Process("a", "worker", 1000, {"model": "other"})])
        write_change(system.store, ScenarioChange(UNDER_WAY, "", None, clock.unix_s()))
        asyncio.run(system.controller.rolling.go_on())
        assert read_change(system.store).state == DONE
        assert any(not ready for _, ready in seen)
        assert all(handles == {"a-0"} for handles, ready in seen if not ready)
        system.look()
        assert told(system.file) == {"a-1": system.cluster.processes["a-1"].url}


def test_who_gave_its_place_away_ends_when_a_change_cannot_be_undone_either(tmp_path):
    with live(tmp_path, random.Random(1)) as system:
        system.cluster.calm = True
        store = system.store
        store.want([Process("a", "worker", 1000)])
        system.look()
        store.want([Process("a", "worker", 1000, {"model": "other"})])
        store.successor_started("a", system.cluster.put("a"))
        store.succeed("a")
        assert [handle for handle, *_ in store.retired()] == ["a-0"]
        store.started("a", None, TRIES)  # it does not get ready
        write_change(store, ScenarioChange(UNDOING, "", None, clock.unix_s()))
        asyncio.run(system.controller.rolling.go_on())
        assert read_change(store).state == FAILED
        system.controller.ending.clear()
        for _ in range(2 * LONGEST):
            system.look()
        assert not store.retired() and "a-0" not in system.cluster.running()
