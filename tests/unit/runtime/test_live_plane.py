"""The plane of a live system whose nodes somebody else manages: what others hold, and nodes that are down."""

import pytest

from edgewise.config import load_scenario
from edgewise.core.ledger import Reservation
from edgewise.model.topology import Node, Resources
from edgewise.model.work import INFERENCE
from edgewise.runtime.backends.contract import NodeSeen
from edgewise.runtime.controller.live_plane import LivePlane, others
from edgewise.runtime.controller.plan import prepare

NODE = Node("n", "c", Resources(2.0, 4e9, 8e9))


@pytest.mark.parametrize(
    ("has", "theirs", "taken"),
    [
        (Resources(8.0, 16e9), Resources(6.0, 12e9), None),  # the scenario's part of the node is free
        (Resources(8.0, 16e9), Resources(7.0, 1e9), Resources(1.0)),
        (Resources(8.0, 16e9), Resources(8.0, 16e9), Resources(2.0, 4e9)),
        (Resources(1.5, 16e9), Resources(), Resources(0.5)),  # it shrank
        (Resources(1.0, 1e9), Resources(1.0, 1e9), Resources(2.0, 4e9)),  # never more than there is
    ],
)
def test_others_hold_what_they_take_of_the_part_that_a_scenario_counts_on(has, theirs, taken):
    found = list(others([NODE], {"n": NodeSeen(True, has, theirs)}, ()))
    assert found == ([] if taken is None else [Reservation("others on n", "n", taken, INFERENCE)])


def test_a_node_that_nobody_else_manages_is_the_systems_alone():
    assert list(others([NODE], {"another": NodeSeen(True, Resources(1.0), Resources(1.0))}, ())) == []


def test_a_node_that_takes_nothing_new_has_no_room_beside_what_stands_there():
    has = Resources(8.0, 16e9, 8e9)
    closed = {"n": NodeSeen(True, has, Resources(1.0), takes=False)}
    held = [
        Reservation("worker", "n", Resources(0.5, 1e9), INFERENCE),
        Reservation("job-1", "n", Resources(1.0), -1),
        Reservation("others on n", "n", Resources(0.25), INFERENCE),  # of the look before
        Reservation("elsewhere", "m", Resources(2.0), INFERENCE),
    ]
    (found,) = others([NODE], closed, held)
    assert found.resources == Resources(0.5, 3e9, 8e9)
    more = [*held, Reservation("more", "n", Resources(9.0, 9e9, 8e9), INFERENCE)]
    assert list(others([NODE], closed, more)) == []


def test_the_ledger_follows_what_others_take_and_which_nodes_are_up(tmp_path):
    with_store = prepare(tmp_path, load_scenario("tiny"))
    plane, seen = LivePlane(with_store), {}
    plane.seen = lambda: seen

    def held():
        plane.listen(0.0)
        plane.ledger.validate()
        return {(each.owner, each.resources.cpu_cores) for each in plane.ledger.reservations}

    alone = held()
    assert ("small-cpu@near-node", 2.0) in alone
    seen["far-node"] = NodeSeen(True, Resources(8.0, 16e9), Resources(7.5, 0.0))
    assert held() == alone | {("others on far-node", 7.0)}  # its worker has the eighth
    (row,) = [row for row in plane.report() if row["node"] == "far-node"]
    assert row["up"] and row["held"]["cpu_cores"] == 8.0
    seen["far-node"] = NodeSeen(False, Resources(8.0, 16e9), Resources())
    assert not any(owner == "others on far-node" for owner, _ in held())
    assert [row["up"] for row in plane.report()] == [True, False]
    seen.clear()
    assert held() == alone
