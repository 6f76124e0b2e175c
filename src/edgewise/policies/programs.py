"""Linear and mixed-integer programs: the one place that knows the solver HiGHS.

    min c x   with  least <= A x <= most,   0 <= x <= upper,   some x whole

`minimum` solves one of these. A program that lives from decision to decision (`place.flows`), or that is
written down term by term (`place.exact`), takes a `solver` and goes on with it.

The solver says nothing and uses one thread, so that every machine finds the same. Versions before 1.13, and
the one inside SciPy, print a line of their own when they repair a solution, whatever their options say.
"""

from typing import Any, NamedTuple

import highspy
import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.errors import PolicyError

NOTHING_FOUND = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kSolutionLimit)
Program = highspy.Highs
FEASIBLE = 2  # a solution's status, as HiGHS counts


class Sparse(NamedTuple):
    """The matrix A by its entries that are not 0; entries at the same place add up.

    Attributes:
        row, column, value: (U,) of each entry.
    """

    row: Ints
    column: Ints
    value: Floats

    @classmethod
    def dense(cls, matrix: Floats) -> "Sparse":
        """Of a matrix that is written out."""
        row, column = np.nonzero(matrix)
        return cls(row, column, matrix[row, column])

    def below(self, other: "Sparse", rows: int) -> "Sparse":
        """These, which are `rows` rows, and the other ones below them."""
        return Sparse(
            np.concatenate([self.row, other.row + rows]),
            np.concatenate([self.column, other.column]),
            np.concatenate([self.value, other.value]),
        )


class Solution(NamedTuple):
    """What the solver found.

    Attributes:
        x: (N,) the variables.
        cost: of them.
        bound: no solution costs less; equal to `cost` unless the search was cut short.
        price: (M,) change of the cost per unit of the limit of each tight row; 0 with whole variables.
    """

    x: Floats
    cost: float
    bound: float
    price: Floats


def solver(**options: float | str) -> Program:
    """An empty program that is solved silently; options are those of HiGHS."""
    highs = Program()  # type: ignore[no-untyped-call]
    for name, value in ({"output_flag": False, "threads": 1} | options).items():
        highs.setOptionValue(name, value)
    return highs


def solution(program: Program) -> Any:
    """The optimal solution of a linear program as it stands now; None when there is none."""
    program.run()
    optimal = program.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return program.getSolution() if optimal else None


def minimum(
    cost: Floats,
    rows: Sparse,
    least: Floats,
    most: Floats,
    *,
    upper: Floats | None = None,
    whole: Bools | None = None,
    **options: float | str,
) -> Solution | None:
    """The cheapest x.

    Args:
        cost: (N,) of each variable.
        rows: the matrix of M rows.
        least, most: (M,) limits of each row, infinite where there is none.
        upper: (N,) of each variable, infinite where it is left out; the lower one is 0.
        whole: (N,) variables that are whole numbers.
        options: of HiGHS, as `mip_max_nodes` or `mip_rel_gap`.
    Returns:
        None where nothing feasible was found.
    Raises:
        PolicyError: the program has no least cost, or the solver fails.
    """
    highs = solver(**options)
    highs.passModel(_model(cost, rows, least, most, upper, whole))
    highs.run()
    info, status = highs.getInfo(), highs.getModelStatus()
    optimal = status == highspy.HighsModelStatus.kOptimal
    if not optimal and not (whole is not None and info.primal_solution_status == FEASIBLE):
        if status in NOTHING_FOUND:
            return None
        raise PolicyError(f"the program could not be solved: {highs.modelStatusToString(status)}")
    found, value = highs.getSolution(), float(info.objective_function_value)
    bound = value if whole is None else float(info.mip_dual_bound)
    price = np.zeros(most.size) if whole is not None else np.array(found.row_dual)
    return Solution(np.array(found.col_value), value, bound, price)


def _model(
    cost: Floats, rows: Sparse, least: Floats, most: Floats, upper: Floats | None, whole: Bools | None
) -> highspy.HighsLp:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = cost.size, most.size
    model.col_cost_, model.col_lower_ = cost, np.zeros(cost.size)
    model.col_upper_ = np.full(cost.size, np.inf) if upper is None else upper
    model.row_lower_, model.row_upper_ = least, most
    if whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[bool(one)] for one in whole]
    place, back = np.unique(rows.row * cost.size + rows.column, return_inverse=True)  # sorted by row
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.searchsorted(place, np.arange(most.size + 1) * cost.size)
    matrix.index_ = place % cost.size
    matrix.value_ = np.bincount(back, rows.value, minlength=place.size).astype(np.float64)
    return model
