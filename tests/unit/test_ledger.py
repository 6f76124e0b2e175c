"""The node ledger: exact sums, preemption, left-over capacity."""

import pytest
from hypothesis import given, strategies as st

from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.errors import CapacityError
from edgewise.model.catalog import Resources
from edgewise.model.topology import Node


def ledger(cores=4.0):
    return NodeLedger([Node("n", "c", Resources(cores, 8e9))])


def test_all_four_kinds_of_work_share_one_node():
    books = ledger()
    for owner in ("worker:yolo-0", "replica:face-1", "task:job3/detect", "job:17"):
        books.reserve(Reservation(owner, "n", Resources(1.0, 1e9)))
    assert books.free("n").cpu_cores == 0.0
    with pytest.raises(CapacityError, match=r"needs 1 cpu_cores, 0 free of 4"):
        books.reserve(Reservation("job:18", "n", Resources(1.0)))
    books.validate()


def test_left_over_ignores_what_may_be_preempted():
    books = ledger()
    books.reserve(Reservation("worker", "n", Resources(1.0), priority=10))
    books.reserve(Reservation("job", "n", Resources(2.0), priority=0, preemptible=True))
    assert books.left_over(priority=0)[0, 0] == 1.0
    assert books.left_over(priority=5)[0, 0] == 3.0


def test_preemption_pushes_out_as_little_as_needed():
    books = ledger()
    books.reserve(Reservation("small", "n", Resources(1.0), 0, True))
    books.reserve(Reservation("large", "n", Resources(3.0), 1, True))
    out = books.reserve(Reservation("worker", "n", Resources(3.0), 10))
    assert [r.owner for r in out] == ["large"]
    assert {r.owner for r in books.reservations} == {"small", "worker"}
    books.validate()


def test_a_failed_reservation_changes_nothing():
    books = ledger()
    books.reserve(Reservation("kept", "n", Resources(2.0), 0, True))
    before = books.reservations
    with pytest.raises(CapacityError):
        books.reserve(Reservation("huge", "n", Resources(9.0), 10))
    assert books.reservations == before


def test_names_are_checked():
    with pytest.raises(ValueError, match="unknown node 'm'"):
        ledger().reserve(Reservation("a", "m", Resources(1.0)))
    books = ledger()
    books.reserve(Reservation("a", "n", Resources(1.0)))
    with pytest.raises(ValueError, match="already holds"):
        books.reserve(Reservation("a", "n", Resources(1.0)))


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.01, 3.0), st.integers(0, 3), st.booleans())))
def test_no_sequence_overbooks_a_node(steps):
    books = ledger()
    for owner, cores, priority, preemptible in steps:
        held = {r.owner for r in books.reservations}
        if f"o{owner}" in held:
            books.release(f"o{owner}")
        else:
            try:
                books.reserve(Reservation(f"o{owner}", "n", Resources(cores), priority, preemptible))
            except CapacityError:
                assert {r.owner for r in books.reservations} == held
        books.validate()
    for reservation in books.reservations:
        books.release(reservation.owner)
    assert books.free("n") == Resources(4.0, 8e9)
