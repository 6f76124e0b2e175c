"""The controller's one loop: what is due is done in its order, and who hangs holds up nothing else."""

import ast
import asyncio
import re
from itertools import pairwise
from pathlib import Path

import pytest

import edgewise
from edgewise.runtime import clock
from edgewise.runtime.controller.controller import Controller
from edgewise.runtime.controller.reconcile import Pass, reconcile

RUNTIME = Path(edgewise.__file__).parent / "runtime"
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "runtime.md"
PAUSING = {"sleep", "next_period", "wait", "select"}
LOOPS = ast.While | ast.For | ast.AsyncFor
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
# Loops that wait for something that comes about, or end after a time; all others poll.
WAITING = {
    "apart.policy.keep": "answers of a process",
    "backends.conformance.wait": "what a backend is to bring about",
    "backends.kubernetes.errands.carry_out": "something to do; after a refusal it is asked again",
    "backends.kubernetes.seen.keep": "changes that the API server tells; once that is away it is asked again",
    "backends.kubernetes.tasks.waited": "a pod that gets ready",
    "clients.all_work.ended": "the end of pipelines",
    "clients.all_work.timeline": "the time of each event",
    "clients.reaching.ask": "an answer",
    "clients.split_trial.reaches_all": "servers that get ready",
    "clients.split_trial.measured": "the time of each request",
    "clients.traffic.stream": "the time of each request",
    "controller.job_groups.remove_group": "the end of killed processes, for a while",
    "controller.job_runner.main": "room on the disk for an exit status",
    "controller.jobs.end": "the end of jobs",
    "controller.nursery.end_former": "the end of a killed controller",
    "controller.reconcile.keep": "passes, which are listed by themselves",
    "controller.reconcile.turns": "the same",
    "controller.rolling.reached": "gateways, of a change",
    "controller.rolling.ready": "a process, of a change",
    "controller.rolling.replace_gateway": "the end of a gateway, of a change",
    "controller.rolling.until_ready": "a successor, of a change",
    "controller.switching.tell": "a gateway that takes a policy",
    "gateway.gateway.drain": "answers to what was accepted",
    "gateway.needs.opened": "another process that writes to the store",
    "gateway.service_requests.choose": "a replica",
    "http.client.request": "a connection, where the kept one was closed",
    "http.server.close": "connections that are in use",
    "pipelines.task.rest": "the end of a frame's time",
    "pipelines.task.connect": "a task that begins to listen",
    "pipelines.task.take": "a frame",
    "process.entry.take_place": "the end of who was killed",
    "process.handing.begin": "a controller, for the first time",
    "process.lifecycle.end_and_wait": "the end of processes",
    "process.pod.fetched": "whoever has a model",
    "protocol.grpc_server.stream": "messages; one that is refused is answered later",
    "store.database.check_log": "somebody who opens the file",
    "worker.batching.drain": "answers to what was accepted",
}


@pytest.fixture
def played(monkeypatch):
    """A clock that only goes on while somebody waits for it."""
    now_s = [100.0]

    async def sleep(duration_s):
        now_s[0] += duration_s
        await asyncio.sleep(0)

    monkeypatch.setattr(clock, "monotonic_s", lambda: now_s[0])
    monkeypatch.setattr(clock, "sleep", sleep)
    return now_s


def play(passes, duration_s, now_s):
    until_s = now_s[0] + duration_s
    asyncio.run(reconcile(passes, lambda: now_s[0] >= until_s))


def test_each_is_done_in_its_period_and_all_of_a_turn_in_their_order(played):
    done = []
    often = Pass("often", 0.02, "", lambda: done.append(("often", played[0])))
    seldom = Pass("seldom", 0.25, "", lambda: done.append(("seldom", played[0])))
    play([often, seldom], 1.0, played)
    assert [name for name, _ in done[:2]] == ["often", "seldom"], "both at once at the beginning"
    assert sum(name == "often" for name, _ in done) == pytest.approx(50, abs=1)
    at_s = [at for name, at in done if name == "seldom"]
    assert len(at_s) == 4 and all(b - a >= 0.25 for a, b in pairwise(at_s))


def test_what_hangs_is_not_begun_anew_and_holds_up_nothing(played):
    done, begun = [], []

    async def hang():
        begun.append(played[0])
        await asyncio.Event().wait()

    play([Pass("hangs", 0.02, "", hang), Pass("goes on", 0.02, "", lambda: done.append(1))], 1.0, played)
    assert len(begun) == 1 and len(done) == pytest.approx(50, abs=1)


def test_what_goes_on_when_all_is_over_is_ended(played):
    seen = []

    async def hang():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("ended")
            raise

    play([Pass("hangs", 0.02, "", hang), Pass("goes on", 0.02, "", int)], 0.1, played)
    assert seen == ["ended"]


@pytest.mark.parametrize("beside", [False, True])
def test_an_error_that_nobody_expects_ends_the_loop(played, beside):
    async def fails_later():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play([Pass("fails", 0.02, "", fails_later if beside else fails)], 1.0, played)


def test_what_takes_long_has_a_longer_pause_where_its_share_is_bounded(played):
    begun = []

    async def copy():
        begun.append(played[0])
        await clock.sleep(2.0)

    play([Pass("copies", 30.0, "", copy, share=0.01)], 500.0, played)
    assert len(begun) == 3 and begun[1] - begun[0] >= 200.0


# what still polls, and where that is said


def looping(source):
    """Functions that wait for time in a loop, by name: themselves, or in another function of the file.

    One that waits in a loop of its own is found as such, and not again where it is called.
    """
    functions = [each for each in ast.walk(ast.parse(source)) if isinstance(each, FUNCTIONS)]
    themselves = {each.name for each in functions if loops_with(each, PAUSING)}
    once = {each.name for each in functions if called(each) & PAUSING} - themselves
    return {each.name for each in functions if loops_with(each, PAUSING | once)}


def loops_with(function, names):
    return any(called(each) & names for each in ast.walk(function) if isinstance(each, LOOPS))


def called(tree):
    calls = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    return {getattr(each, "attr", getattr(each, "id", "")) for each in calls}


def listed(heading):
    """First and last column of the table under a heading of the reference."""
    rest = REFERENCE.read_text().partition(f"\n{heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", rest, re.M).group()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return [(row[0].strip("`"), row[1], row[-1]) for row in rows[2:]]


def test_the_reference_lists_all_passes_of_the_controller_with_their_reasons():
    class Anybody:
        def __getattr__(self, name):
            return self

    passes = Controller.passes(Anybody())
    assert listed("### The controller") == [(p.name, f"{p.period_s:g}", p.why) for p in passes.values()]


def test_the_reference_lists_all_else_that_polls():
    found = {
        f"{file.relative_to(RUNTIME).with_suffix('')}.{name.removeprefix('_')}".replace("/", ".")
        for file in RUNTIME.rglob("*.py")
        for name in looping(file.read_text())
    }
    rows = listed("### Other processes")
    polls = {name.replace("._", ".") for name, *_ in rows}
    assert found == polls | WAITING.keys()
    assert not polls & WAITING.keys()
    assert all(why for *_, why in rows)


@pytest.mark.parametrize(
    ("source", "loops"),
    [
        ("async def f():\n while True:\n  await clock.sleep(1)", True),
        ("async def f():\n while True:\n  await next_period(c, 1)", True),
        ("def f():\n while not told:\n  time.sleep(1)", True),
        ("def f():\n while True:\n  if a: return\n  time.sleep(1)", True),
        ("def f():\n while a:\n  b()", False),
        ("def f():\n for _ in range(9):\n  time.sleep(1)", True),
        ("def f():\n while a:\n  g()\ndef g():\n select.select([], [], [], 1)", True),
        ("def f():\n a()\n time.sleep(1)", False),
    ],
)
def test_what_waits_again_and_again_is_seen(source, loops):
    assert (looping(source) == {"f"}) == loops
