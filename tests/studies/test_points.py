"""The points of figures, read back."""

import csv

import numpy as np
import pytest

from edgewise.report.figures import heat_map
from edgewise.report.intervals import mean_interval
from edgewise_studies import points
from edgewise_studies.run import boxes, chart, whiskers


def test_curves_have_their_points_and_whiskers_their_intervals(tmp_path):
    values = [np.array([1.0, 2.0, 4.0]), np.array([5.0, 5.5, 6.0])]
    with chart(4.0, 3.0, "two", columns=2) as (drawn, axes):
        whiskers(axes, [10, 20], values, label="ours")
        axes.plot([1, 2], [3.0, 4.0], label="formula")
        axes.plot([1, 2], [0.0, 0.0])  # has no name, so it says nothing
    points.write(drawn, tmp_path / "two.csv")
    with (tmp_path / "two.csv").open(newline="") as file:
        head, *found = csv.reader(file)
    assert tuple(head) == points.COLUMNS and [row[0] for row in found] == ["ours"] * 2 + ["formula"] * 2
    first = mean_interval(values[0], possible=(0.0, np.inf))
    assert [float(x) for x in found[0][1:]] == pytest.approx([10.0, first.mean, first.low, first.high])
    assert found[3] == ["formula", "2.0", "4.0", "", ""]


def test_a_table_in_colours_has_its_cells():
    drawn = heat_map(np.array([[0.1, 0.2], [0.3, 0.4]]), ["a", "b"], ["x", "y"], "table")
    assert ("b", "x", 0.3, "", "") in points.rows(drawn) and len(points.rows(drawn)) == 4


def test_boxes_have_every_value():
    found = points.rows(boxes({"a": np.arange(3.0), "b": np.array([7.0, 7.0])}, "boxes"))
    values = [("a", 1.0, 0.0), ("a", 1.0, 1.0), ("a", 1.0, 2.0), ("b", 2.0, 7.0), ("b", 2.0, 7.0)]
    assert found == [(*value, "", "") for value in values]


def test_what_has_no_named_curve_leaves_no_file(tmp_path):
    with chart(4.0, 3.0, "nothing") as (drawn, axes):
        axes.plot([1, 2], [0.0, 1.0])
    points.write(drawn, tmp_path / "nothing.csv")
    assert not list(tmp_path.iterdir())
