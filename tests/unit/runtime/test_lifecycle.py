"""The lifecycle of owned processes, on a backend that is played and on this machine."""

import sys
import time

import pytest

from waiting import wait_until

pytest.importorskip("msgspec", reason="the extra `live` is not installed")

from edgewise.runtime import clock
from edgewise.runtime.process.lifecycle import LONGEST_PAUSE_S, Lifecycle, pause_s
from edgewise.runtime.process.machine import Program, ThisMachine, exit_status

PATIENCE_S = 5.0
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True); signal.pause()"


class Played:
    """Processes that go on until they are stopped, and some that only end by force."""

    def __init__(self, stubborn=()):
        self.lives, self.said, self._stubborn = set(), [], stubborn

    def start(self, process):
        self.lives.add(process)
        return process

    def alive(self, handle):
        return handle in self.lives

    def stop(self, handle, force=False):
        self.said.append((handle, force))
        if force or handle not in self._stubborn:
            self.lives.discard(handle)


@pytest.fixture
def now(monkeypatch):
    """The clock, which stands still unless it is set."""
    at = [100.0]
    monkeypatch.setattr(clock, "monotonic_s", lambda: at[0])
    return at


def test_a_process_is_told_once_and_killed_when_its_patience_is_over(now):
    backend = Played(stubborn=("a",))
    processes = Lifecycle(backend, PATIENCE_S)
    processes.start("a")
    for _ in range(3):
        processes.end("a")
    assert backend.said == [("a", False)] and processes.told("a") and processes.alive("a")
    now[0] += PATIENCE_S + 0.1
    processes.end("a")
    assert backend.said == [("a", False), ("a", True)] and not processes.alive("a")


def test_one_whose_node_failed_has_no_patience_and_was_told_to_end(now):
    backend = Played(stubborn=("a",))
    processes = Lifecycle(backend, PATIENCE_S)
    processes.start("a")
    processes.end("a", at_once=True)
    assert backend.said == [("a", True)] and processes.told("a")


def test_who_is_killed_to_start_anew_was_not_told_to_end(now):
    processes = Lifecycle(Played(), PATIENCE_S)
    processes.kill(processes.start("a"))
    assert not processes.alive("a") and not processes.told("a")


def test_one_that_could_not_be_told_is_told_by_the_next_pass(now):
    class Once(Played):
        def stop(self, handle, force=False):
            super().stop(handle, force)
            if len(self.said) == 1:
                raise OSError("for once")

    backend = Once(stubborn=("a",))
    processes = Lifecycle(backend, PATIENCE_S)
    processes.start("a")
    with pytest.raises(OSError, match="for once"):
        processes.end("a")
    assert not processes.told("a")
    processes.end("a")
    assert backend.said == [("a", False)] * 2


def test_what_is_not_known_any_more_is_forgotten(now):
    processes = Lifecycle(Played(), PATIENCE_S)
    for handle in ("a", "b"):
        processes.end(processes.start(handle))
    processes.forget({"b"})
    assert not processes.told("a") and processes.told("b")


def test_pauses_double_and_have_an_end():
    assert [pause_s(failures) for failures in range(4)] == [0.0, 0.0, 0.2, 0.4]
    assert [pause_s(failures, at_once=0) for failures in range(3)] == [0.0, 0.1, 0.2]
    assert pause_s(60) == LONGEST_PAUSE_S


@pytest.mark.live
def test_real_processes_end_side_by_side_and_the_stubborn_ones_by_force():
    machine = ThisMachine()
    processes = Lifecycle(machine, 0.2)
    started = [machine.execute(Program((sys.executable, "-c", STUBBORN))) for _ in range(2)]
    sleeps = machine.start(Program(("/bin/sleep", "60"), given=b""))
    for _, child in started:
        assert child.stdout.readline() == b"up\n"
    handles = [handle for handle, _ in started]
    began_s = time.monotonic()
    processes.end_and_wait([*handles, sleeps])
    assert time.monotonic() - began_s < 5.0
    assert not any(map(processes.alive, [*handles, sleeps])) and not any(map(processes.told, handles))
    assert [exit_status(child) for _, child in started] == [-9, -9]


@pytest.mark.live
def test_a_machine_made_later_knows_a_process_by_its_handle():
    former, later = ThisMachine(), ThisMachine()
    handle = former.start(Program(("/bin/sleep", "60"), given=b""))
    assert later.alive(handle)
    later.stop(handle, force=True)

    wait_until(lambda: not later.alive(handle), limit_s=10.0)
    assert not former.alive(handle)
