"""Health checks on a virtual clock: who is slow lives, who is stuck is killed; who checks may be held up."""

import asyncio

import pytest
from virtual import played

from alone import Alone
from edgewise.runtime import http
from edgewise.runtime.backends.contract import Answering
from edgewise.runtime.controller import controller as module
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.store import Process
from edgewise.runtime.store.steady import SteadyStore

NAMES = ("asked", "other")
NEVER_S = 1e9


class PlayedProcess:
    """Answers after some seconds; who asks gives up when its time is over, answered or not."""

    def __init__(self, takes_s):
        self.takes_s, self.asked, self.stands_still_s = takes_s, 0, 0.0

    async def request(self, method, path, body=b"", timeout_s=30.0):
        self.asked += 1
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        await asyncio.sleep(min(self.takes_s, timeout_s))
        loop.now_s += self.stands_still_s  # the machine, with all that is on it
        if loop.time() >= until_s:
            raise TimeoutError
        return http.Response(200, b"{}")

    def close(self):
        pass


class PlayedBackend(Alone):
    """Notes when what is killed."""

    def __init__(self):
        self.killed_s = {}

    def look(self, process, handle):
        """Whether one is ready, it says at its port."""
        return Answering(process.url, None)

    def stop(self, handle, force=False):
        assert force
        self.killed_s.setdefault(handle, asyncio.get_running_loop().time())


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Plays checks of two processes, of which the second one answers at once: who is killed, and when."""

    def play(takes_s, for_s, stands_still_s=0.0):
        processes = dict(zip(NAMES, (PlayedProcess(0.0), PlayedProcess(0.0)), strict=True))
        monkeypatch.setattr(module, "client_to", lambda of, store, token: processes[of.name])

        async def work():
            store, backend = SteadyStore(tmp_path / "state.sqlite"), PlayedBackend()
            store.want([Process(name, "worker", 1000 + k) for k, name in enumerate(NAMES)])
            for name in NAMES:
                store.started(name, name, 0)
            checking = asyncio.create_task(Controller(store, backend).passes()["health"].keep())
            await asyncio.sleep(2.5)  # both have served
            processes["asked"].takes_s = takes_s
            processes["asked"].stands_still_s = stands_still_s
            await asyncio.sleep(for_s)
            checking.cancel()
            store.close()
            return backend.killed_s

        return played(work()), processes

    return play


@pytest.mark.parametrize("takes_s", [1.5, 4.0])
def test_who_answers_slowly_each_time_is_not_killed(checked, takes_s):
    killed_s, processes = checked(takes_s, 300.0)
    assert not killed_s and processes["asked"].asked > 40


def test_who_does_not_answer_is_killed_and_holds_up_no_other_for_long(checked):
    killed_s, processes = checked(NEVER_S, 30.0)
    assert killed_s.keys() == {"asked"} and 10.0 < killed_s["asked"] < 2.5 + 15.0
    assert processes["other"].asked >= 6


def test_who_checks_and_was_held_up_kills_nobody(checked):
    """As where the whole machine stands still: answers are read after the time-out is over."""
    killed_s, processes = checked(0.5, 300.0, stands_still_s=12.0)
    assert not killed_s and processes["asked"].asked > 20
