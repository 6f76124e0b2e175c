"""The ledger on arrays against the plain one, that kept reservations in a dictionary."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from naive_ledger import NodeLedger as NaiveLedger, Reservation as NaiveReservation

from edgewise.core.ledger import HOLE, NodeLedger, Reservation, fits, reserve
from edgewise.errors import CapacityError
from edgewise.model.topology import Node, Resources

NODES = [
    Node("a", "c", Resources(4.0, 8e9, 2e9)),
    Node("b", "c", Resources(0.5, 2e9)),
    Node("off", "c", Resources()),
]
AMOUNTS = st.sampled_from([0.0, 0.1, 0.2, 0.25, 0.3, 0.5, 1.0, 1.5, 4.0])
HOLDS = st.builds(Resources, AMOUNTS, AMOUNTS.map(lambda x: 2e9 * x), st.sampled_from([0.0, 0.0, 1e9, 2e9]))
STEPS = st.lists(
    st.tuples(st.integers(0, 19), st.sampled_from("abababo"), HOLDS, st.integers(0, 3), st.booleans()),
    max_size=60,
)


def outcome(make, *given):
    try:
        return [row.owner for row in make(*given)]
    except CapacityError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_the_same_is_reserved_refused_and_pushed_out(steps):
    mine, naive = NodeLedger(NODES), NaiveLedger(NODES)
    for number, node, needs, priority, preemptible in steps:
        owner, name = f"o{number}", "off" if node == "o" else node
        if owner in {held.owner for held in naive.reservations}:
            assert mine.release(owner).owner == naive.release(owner).owner
        else:
            row = (owner, name, needs, priority, preemptible)
            assert mine.fits(name, needs) == naive.fits(name, needs)
            assert outcome(mine.reserve, Reservation(*row)) == outcome(naive.reserve, NaiveReservation(*row))
        mine.validate()
        assert [held.owner for held in mine.reservations] == [held.owner for held in naive.reservations]
        for priority in range(5):
            np.testing.assert_allclose(mine.left_over(priority), naive.left_over(priority), atol=1e-6)
        for node in NODES:
            np.testing.assert_allclose(
                mine.free(node.name).as_tuple(), naive.free(node.name).as_tuple(), atol=1e-6
            )


def test_what_goes_leaves_a_hole_and_rows_of_others_stay():
    books = NodeLedger([Node("n", "c", Resources(100.0))])
    for i in range(40):  # more than there are rows at first
        books.reserve(Reservation(f"o{i}", "n", Resources(1.0)))
    before = books.holds.copy()
    books.release("o3")
    assert books.holds.node[0, 3] == HOLE and (books.holds.node[0] != HOLE).sum() == 39
    same = np.arange(before.shape[1]) != 3
    assert (books.holds[0, same] == before[0, same]).all()
    books.reserve(Reservation("late", "n", Resources(2.0)))
    assert books.holds.need[0, 3, 0] == 2.0 and books.reservations[-1].owner == "late"
    books.validate()


def test_the_rules_take_the_rows_of_any_world():
    one = NodeLedger([Node("n", "c", Resources(4.0, 8e9))])
    one.reserve(Reservation("job", "n", Resources(3.0), 1, True))
    nodes, holds = one.nodes.repeat(3, axis=0), one.holds.repeat(3, axis=0)
    nodes.total[1, 0, 0] = 9.0
    need, none, victims = np.array([2.0, 0, 0, 0]), np.zeros(4), np.zeros(16, dtype=np.int64)
    assert [fits(nodes, w, 0, need, none) for w in range(3)] == [False, True, False]
    holds[2, 0].priority = 7
    counts = []
    for w in range(3):
        holds[w, 1] = (0, need, 5, 0, 9)
        counts.append(reserve(nodes, holds, w, 1, need, np.zeros(4), victims))
    assert counts == [1, 0, -1]
    assert nodes.reserved[:, 0, 0].tolist() == [2.0, 5.0, 3.0] and holds.node[:, 0].tolist() == [HOLE, 0, 0]


def test_validate_sees_what_does_not_add_up():
    books = NodeLedger([Node("n", "c", Resources(4.0))])
    books.reserve(Reservation("a", "n", Resources(1.0)))
    books.nodes.reserved[0, 0, 0] = 2.0
    with pytest.raises(AssertionError, match="differs from the sum"):
        books.validate()
