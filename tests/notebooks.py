"""Notebooks of the documentation: run cell by cell in plain Python, without a kernel, and what cells say.

`python tests/notebooks.py` runs all of them and writes what their cells say into the files.
"""

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
OTHERWISE = "run elsewhere"
"""Tag of a cell that needs what not every environment has; its output is not kept."""


def notebooks() -> list[Path]:
    """Files of notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def cells(notebook: dict[str, object], tagged: bool = False) -> list[dict[str, object]]:
    """Cells of code.

    Args:
        tagged: those alone that are run elsewhere, or else all others.
    """
    code = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    return [each for each in code if (OTHERWISE in each["metadata"].get("tags", ())) == tagged]


def kept(cell: dict[str, object]) -> str:
    """What the file says that a cell printed, or was worth."""
    texts = [each.get("text") or each["data"]["text/plain"] for each in cell["outputs"]]
    return "".join("".join(text) for text in texts)


def said(sources: list[str], folder: Path) -> list[str]:
    """What each cell prints, and the value of its last line, in an interpreter of their own.

    Args:
        folder: where they run.
    Raises:
        AssertionError: a cell failed.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "cells"]
    done = subprocess.run(
        command, input=json.dumps(sources), cwd=folder, env=os.environ | {"MPLBACKEND": "agg"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _ran(sources: list[str]) -> list[str]:
    found, names = [], {"__name__": "__main__"}
    for number, source in enumerate(sources, 1):
        tree, printed = ast.parse(source), io.StringIO()
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with redirect_stdout(printed):
            exec(compile(tree, f"<cell {number}>", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
                if value is not None:
                    print(repr(value))
        found.append(printed.getvalue())
    return found


def _write(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = said(["".join(each["source"]) for each in cells(notebook)], Path(folder))
    for number, (cell, text) in enumerate(zip(cells(notebook), outputs, strict=True), 1):
        lines = text.splitlines(keepends=True)
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["cells"]:
        sys.path.insert(0, "")  # modules that a cell has written
        print(json.dumps(_ran(json.load(sys.stdin))))
    else:
        for each in notebooks():
            _write(each)
