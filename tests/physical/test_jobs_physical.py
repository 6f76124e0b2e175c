"""Jobs of one scenario in simulation and in a live controller: its core hears and says the same in each slot.

The controller is that of `edgewise up`, on a virtual clock, with its store; processes of jobs are played. A
node fails and comes back; first replicas hold their part of the nodes.
"""

import asyncio
import signal

import pytest
from ground import until
from virtual import BEGAN_UNIX_S, played

from edgewise.core.defer import (
    EvictJob,
    JobEnded,
    JobSubmitted,
    SlotBegan,
    StartJob,
)
from edgewise.core.defer.core import DeferCore
from edgewise.model.parsing import parse_scenario
from edgewise.runtime import clock
from edgewise.runtime.backends.jobs import JobStage, SeenStage
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.plan import prepare
from edgewise.runtime.controller.reconcile import Pass, reconcile
from edgewise.runtime.store.jobs import Wish
from joint_scenarios import campus, held, run_of

SLOT_S, DURATION_S = 5.0, 60.0
SOON_S = 0.02  # before a slot begins jobs are submitted for it
FAILS = [
    {"at_s": at_s, "node": node, "up": up}
    for at_s, node, up in [
        (12.5, "west-0", False), (17.5, "east-1", False), (22.5, "west-1", False),
        (27.5, "west-0", True), (32.5, "east-1", True), (37.5, "west-1", True),
    ]
]  # fmt: skip
JOBS = [
    {"duration_s": 10 + 5 * (i % 3), "cores": (1, 2)[i % 2], "memory_bytes": 1e8 * (1 + i % 4),
     "when_evicted": ("pause", "restart")[i // 2 % 2], "priority": int(i % 7 == 3)}
    | {"checkpoint_s": (None, 3.0)[i // 4 % 2]}
    | {"submitted_s": slot_s, "earliest_s": slot_s, "latest_s": slot_s + 25}
    for i, slot_s in enumerate(SLOT_S * (1 + i // 5) for i in range(18))
]  # fmt: skip


class PlayedJobs:
    """Processes of jobs: each runs its time while it is not stopped; see `JobBackend`."""

    def __init__(self):
        self._left_s, self._since_s, self._codes = {}, {}, {}

    def take_in(self):
        """Nobody keeps jobs but the book."""

    def start(self, job):
        if job.run not in self._left_s:
            self._left_s[job.run] = job.duration_s - job.saved_s
            self.resume(job.run)

    def look(self, run):
        if run not in self._left_s:
            return SeenStage(JobStage.ABSENT)
        ran_s = clock.unix_s() - self._since_s[run] if run in self._since_s else 0.0
        if ran_s >= self._left_s[run] - 1e-3:
            self._codes.setdefault(run, 0)
        return (
            SeenStage(JobStage.ENDED, self._codes[run]) if run in self._codes else SeenStage(JobStage.RUNNING)
        )

    def suspend(self, run):
        self._left_s[run] -= clock.unix_s() - self._since_s.pop(run)

    def resume(self, run):
        self._since_s.setdefault(run, clock.unix_s())

    def stop(self, run, force=False):
        self._codes.setdefault(run, -(signal.SIGKILL if force else signal.SIGTERM))
        self.resume(run)

    def clear(self, run):
        self._left_s.pop(run, None)

    def forbid(self, run):
        return run not in self._left_s

    def running(self):
        return [run for run in self._left_s if run not in self._codes]


def scenario_of():
    data = held(campus(0.5, [], FAILS), "services", "jobs")
    listed = [{"name": f"job-{i}"} | job for i, job in enumerate(JOBS)]
    return data | {"duration_s": DURATION_S, "jobs": {"slot_s": SLOT_S, "submitted": listed}}


def noted(patched):
    log, handle = [], DeferCore.handle

    def handle_and_note(core, event):
        commands = handle(core, event)
        core.validate()
        log.append((event, list(commands)))
        return commands

    patched.setattr(DeferCore, "handle", handle_and_note)
    return log


def simulated(data, policy):
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        run_of(data, 1, defer=policy, orchestrate="none")
        return log


async def live(data, policy, folder):
    """What happens to a controller's plane while it keeps jobs."""
    store = prepare(folder, parse_scenario(data, "campus"), given={"defer": policy})
    jobs = LiveJobs(LivePlane(store), SLOT_S, PlayedJobs())
    keeping = reconcile([Pass("jobs", 0.05, "", jobs.look_now)])
    doing = [asyncio.create_task(each) for each in (submit(jobs), fail(store), keeping)]
    await asyncio.sleep(DURATION_S - 1.0)
    for each in doing:
        if each.done():
            each.result()
        each.cancel()
    await asyncio.gather(*doing, return_exceptions=True)
    store.close()


async def submit(jobs):
    for i, job in enumerate(JOBS):
        await until(max(job["submitted_s"] - SOON_S, 0.0) + 1e-5 * i)
        times = {name: BEGAN_UNIX_S + job[name] for name in ("earliest_s", "latest_s")}
        needs = {
            name: job[name] for name in ("cores", "memory_bytes", "duration_s", "when_evicted", "priority")
        } | {"checkpoint_s": job["checkpoint_s"]}
        jobs.book.submit(Wish(key=str(i), command=("true",), folder="/", **needs, **times))


async def fail(store):
    for change in FAILS:
        await until(change["at_s"])
        store.change_node(change["node"], change["up"])


def by_slot(log, first, began_s):
    """What came in and what was said in each slot, by its number; jobs are numbered from `first` on."""
    found = {(slot := 0): (set(), [])}
    for event, said in log:
        match event:
            case SlotBegan(now_s):
                slot = round((now_s - began_s) / SLOT_S)
                found[slot] = set(), []
            case JobSubmitted(job):
                found[slot][0].add(("submitted", job.id - first))
            case JobEnded(number):
                found[slot][0].add(("ended", number - first))
        for each in said:
            node = each.node if isinstance(each, StartJob) else None
            found[slot][1].append((type(each).__name__, each.job - first, node))
    return {slot: both for slot, both in found.items() if any(both) and slot < DURATION_S / SLOT_S - 1}


@pytest.mark.parametrize("policy", ["fifo", "sjf", "tetris"])
def test_a_controller_starts_and_stops_jobs_as_simulated(policy, tmp_path):
    data = scenario_of()
    before = by_slot(simulated(data, policy), 0, 0.0)
    with pytest.MonkeyPatch.context() as patched:
        log = noted(patched)
        played(live(data, policy, tmp_path))
    after = by_slot(log, 1, BEGAN_UNIX_S)
    for slot in sorted(before | after):
        assert before.get(slot) == after.get(slot), slot
    said = {kind for _, commands in before.values() for kind, *_ in commands}
    assert said >= {StartJob.__name__, EvictJob.__name__}
