"""Jobs: a world of the batch engine and the core on one node start alike; on many the books are right."""

from dataclasses import replace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.capacity import CapacityChanged, Evicted
from edgewise.core.defer import EvictJob, Slots, SuspendJob
from edgewise.core.defer.core import DeferCore
from edgewise.core.keyed import Key
from edgewise.core.ledger import NodeLedger
from edgewise.model.topology import Node, Resources
from edgewise.model.work import Jobs
from edgewise.sim.slots.defer import simulate
from edgewise.workloads.deferrable import PAPER, generate, jobs_apart
from joint_scenarios import run_jobs

SMALL = replace(PAPER, slots=40, jobs_per_slot=5.0, load_mean=0.8)
POLICIES = ["fifo", "sjf", "earliest-deadline", "hrrn", "tetris", "best-fit", "random", "osdec", "osdec-skip"]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("memory", [0.0, 4e9])
def test_a_world_of_the_batch_starts_what_the_core_starts_on_one_node(name, memory):
    pattern, seed = replace(SMALL, memory_bytes_per_core=memory), 3
    worlds = generate(pattern, [seed])
    grows = np.maximum.accumulate(worlds.left_over, axis=1)  # so that no job has to give way
    batch = simulate(worlds._replace(left_over=grows), policies.load("defer", name), seed=seed)
    node = Node("pool", "cluster", Resources(pattern.total_cores, pattern.total_cores * memory))
    jobs = jobs_apart(Jobs(pattern), seed)
    policy = policies.load("defer", name)
    core = run_jobs(
        jobs, grows[0, :, 0], 900.0, DeferCore(Slots(900.0), NodeLedger([node]), policy, key=Key(seed))
    )
    assert core.start.tolist() == batch.start[0, : len(jobs)].tolist() and (core.start > 0).sum() > 50
    assert core.lost.sum() == batch.lost[0] and core.moves.sum() == 0


class Checked(DeferCore):
    """Checks its books after every event."""

    gave_way = 0

    def handle(self, event):
        commands = super().handle(event)
        self.validate()
        for standing in self.jobs.values():
            held = [r for r in self.ledger.reservations if r.owner == f"job {standing.job.id}"]
            if standing.phase == "running" and isinstance(event, CapacityChanged | Evicted):
                assert [r.resources for r in held] == [standing.job.resources]
        self.gave_way += sum(isinstance(each, SuspendJob | EvictJob) for each in commands)
        return commands


@pytest.mark.parametrize("seed", range(4))
def test_books_are_right_after_every_event_and_every_job_runs_its_time(seed):
    g = np.random.default_rng(seed)
    pattern = replace(SMALL, memory_bytes_per_core=2e9)
    jobs = [
        replace(job, priority=int(g.integers(-1, 2)), when_evicted=str(g.choice(["pause", "restart"])))
        for job in jobs_apart(Jobs(pattern), seed)
    ]
    nodes = [Node(f"n{k}", "cluster", Resources(25.0, 50e9)) for k in range(4)]
    left = np.concatenate([g.integers(0, 100, 40), np.full(60, 100)]).astype(np.float64)  # in the end all
    core = Checked(Slots(900.0, 2), NodeLedger(nodes), policies.load("defer", "tetris"), key=Key(seed))
    run = run_jobs(jobs, left, 900.0, core)
    assert core.gave_way == run.moves.sum() > 10 and not core.jobs
    assert ((run.start >= 0) != (run.lost > 0)).all() and (run.lost > 0).any()
    assert {node for node, start in zip(run.node, run.start, strict=True) if start >= 0} == {
        "n0",
        "n1",
        "n2",
        "n3",
    }
    assert (run.suspended[[job.when_evicted == "pause" for job in jobs]]).any()
