"""Linear and mixed-integer programs are solved as they are written, silently."""

import os

import numpy as np
import pytest

from edgewise.errors import PolicyError
from edgewise.policies.programs import Sparse, minimum

NONE = np.full(1, -np.inf)


def test_a_linear_program_has_its_cost_and_prices():
    """min -x - 2y, x + y <= 4, y <= 3: y = 3, x = 1, and a unit more of the row is worth 1."""
    rows = Sparse.dense(np.array([[1.0, 1.0]]))
    found = minimum(np.array([-1.0, -2.0]), rows, NONE, np.array([4.0]), upper=np.array([np.inf, 3.0]))
    assert found is not None
    assert found.x.tolist() == pytest.approx([1.0, 3.0])
    assert (found.cost, found.bound) == pytest.approx((-7.0, -7.0)) and found.price.tolist() == [-1.0]


def test_entries_at_one_place_add_up_and_rows_stand_below_others():
    twice = Sparse(np.zeros(2, int), np.zeros(2, int), np.ones(2))  # 2 x <= 6
    rows = twice.below(Sparse.dense(np.array([[-1.0]])), 1)  # and x >= 2
    most = np.array([6.0, -2.0])
    for cost, x in ((-1.0, 3.0), (1.0, 2.0)):
        found = minimum(np.array([cost]), rows, np.full(2, -np.inf), most)
        assert found is not None and found.x.tolist() == [x]


def test_whole_variables_are_whole():
    found = minimum(
        np.array([-1.0]), Sparse.dense(np.array([[2.0]])), NONE, np.array([5.0]), whole=np.array([True])
    )
    assert found is not None and found.x.tolist() == pytest.approx([2.0]) and found.bound == -2.0


@pytest.mark.parametrize("whole", [None, np.array([True])])
def test_what_has_no_solution_is_none(whole):
    one = np.array([1.0])
    rows = Sparse.dense(np.array([[1.0]]))
    assert minimum(one, rows, np.array([2.0]), np.array([3.0]), upper=one, whole=whole) is None


def test_what_has_no_least_cost_says_so():
    with pytest.raises(PolicyError, match=r"could not be solved: .*nbounded"):
        minimum(np.array([-1.0]), Sparse.dense(np.array([[-1.0]])), NONE, np.array([0.0]))


def test_a_solver_says_nothing(capfd):
    """Thirty items in ten knapsacks, far from being solved at the first node."""
    draw = np.random.default_rng(3)
    size, worth = draw.integers(20, 80, (10, 30)).astype(float), draw.integers(20, 80, 30).astype(float)
    most = size.sum(axis=1) / 3
    whole = np.ones(30, dtype=bool)
    found = minimum(
        -worth,
        Sparse.dense(size),
        np.full(10, -np.inf),
        most,
        upper=np.ones(30),
        whole=whole,
        mip_max_nodes=200,
    )
    os.write(1, b"all\n")
    assert found is not None and found.bound <= found.cost < 0
    assert (size @ found.x <= most + 1e-6).all() and capfd.readouterr() == ("all\n", "")
