"""What each kind of work holds of a node."""

from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.model.topology import Node, Profile, Resources, Variant
from edgewise.model.work import INFERENCE, DeferrableJob, Task, job_holds, task_holds, variant_holds

VARIANT = Variant("v", "m", Resources(2.0, 4e9, 1e9), Profile(0.01, 0.0), 10.0, 1e6)


def job(when_evicted: str) -> DeferrableJob:
    return DeferrableJob(1, Resources(3.0, 2e9), 10.0, 0.0, 0.0, 5.0, 7, when_evicted)


def test_a_worker_holds_all_of_its_variant_and_is_never_pushed_out() -> None:
    assert variant_holds(VARIANT) == (VARIANT.resources, INFERENCE, False)


def test_a_task_holds_memory_alone_as_published() -> None:
    assert task_holds(Task("t", 1e9, 5e8)) == (Resources(memory_bytes=5e8), INFERENCE, False)


def test_a_job_holds_cores_and_memory_and_what_its_end_leaves() -> None:
    assert job_holds(job("pause")) == job_holds(job("restart")) == (Resources(3.0, 2e9), 7, True)
    assert job_holds(job("pause"), suspended=True) == (Resources(memory_bytes=2e9), 7, True)
    assert job_holds(job("restart"), suspended=True) == (Resources(), 7, True)


def test_a_worker_pushes_a_job_out_and_a_job_no_worker() -> None:
    ledger = NodeLedger([Node("n", "c", Resources(4.0, 8e9, 1e9))])
    running = Reservation("job", "n", *job_holds(job("pause")))
    assert ledger.reserve(running) == ()
    assert ledger.reserve(Reservation("worker", "n", *variant_holds(VARIANT))) == (running,)
    assert not ledger.fits("n", job("pause").resources)
