"""The node ledger: exact sums, preemption, left-over capacity."""

import pytest
from hypothesis import given, strategies as st

from edgewise.core.ledger import NodeLedger, Reservation
from edgewise.errors import CapacityError
from edgewise.model.topology import Node, Resources


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


def test_of_one_priority_the_newest_goes_first():
    books = ledger()
    for owner in ("old", "new"):
        books.reserve(Reservation(owner, "n", Resources(2.0), 0, True))
    assert [r.owner for r in books.reserve(Reservation("worker", "n", Resources(2.0), 10))] == ["new"]
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


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "hold", "release", "rename", "nodes"]),
        st.integers(0, 9),
        st.integers(1, 6),
    )
)


@given(STEPS)
def test_who_holds_what_runs_has_all_there_is_until_it_has_what_it_needs(steps):
    books, out = NodeLedger([Node("a", "c", Resources(4.0, 4e9)), Node("b", "c", Resources(2.0, 8e9))]), []
    for number, (what, owner, size) in enumerate(steps):
        name, node = f"o{owner}", "ab"[owner % 2]
        needs, before = Resources(float(size), 1e9 * (owner % 4)), {r.owner: r for r in books.reservations}
        match what:
            case "reserve" if name not in before:
                try:
                    books.reserve(Reservation(name, node, needs, owner % 4, preemptible=owner % 3 == 0))
                except CapacityError:
                    assert {r.owner: r for r in books.reservations} == before
            case "hold":
                books.hold(Reservation(name, node, needs, 9))
                assert books.needs(name).resources == needs
            case "release":
                assert books.release(name) == before.get(name)
            case "rename" if name in before:
                books.rename(name, f"{name} {number}")
                assert books.of(name) is None
            case "nodes":
                books.change_nodes(
                    [Node("a", "c", Resources(float(size), 2e9)), Node("b", "c", Resources(3.0))]
                )
        books.validate()
        held = {r.owner for r in books.reservations}
        gone = [r.owner for r in books.pushed_out]
        assert all(before[each].preemptible for each in gone) and len(set(gone)) == len(gone)
        if what != "hold":
            assert not held & set(gone)
        out += gone
        books.pushed_out.clear()
        left = books.left_over(9)
        for each in books.reservations:
            has, wants = (r.resources.as_tuple() for r in (each, books.needs(each.owner)))
            short = [k for k, (h, w) in enumerate(zip(has, wants, strict=True)) if w > h * (1 + 1e-9) + 1e-9]
            assert all(left[books.row(each.node), k] <= 1e-6 * wants[k] for k in short), "less than there is"
