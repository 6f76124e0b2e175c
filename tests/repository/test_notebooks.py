"""Notebooks of the documentation run from top to bottom, and say what stands in them."""

import json

import pytest

from notebooks import OTHERWISE, cells, kept, notebooks, said


def source(cell):
    return "".join(cell["source"])


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_notebook_says_again_what_it_shows(path, tmp_path):
    """Where this fails because something changed on purpose, `python tests/notebooks.py` writes it anew."""
    mine = cells(json.loads(path.read_text("utf-8")))
    found = said([source(each) for each in mine], tmp_path)
    assert [kept(each) for each in mine] == found
    assert sum(bool(text) for text in found) >= 4 and sum(map(len, found)) < 5000


def test_there_is_one_for_operators_and_one_for_researchers():
    assert [path.stem for path in notebooks()] == ["operator", "researcher"]
    for path in notebooks():
        notebook = json.loads(path.read_text("utf-8"))
        assert notebook["nbformat"] == 4 and len({each["id"] for each in notebook["cells"]}) >= 10
        assert not any(each["outputs"] for each in cells(notebook, tagged=True))
        assert all("image/png" not in str(each["outputs"]) for each in cells(notebook))
    assert OTHERWISE in path.read_text("utf-8")  # the last one's cell that needs torch: tests/learn runs it


def test_a_cell_that_fails_is_told(tmp_path):
    assert said(["x = 2", "print('y')\nx * 21"], tmp_path) == ["", "y\n42\n"]
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        said(["x = 2", "x / 0"], tmp_path)
