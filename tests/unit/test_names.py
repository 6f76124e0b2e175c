"""One name for one thing: classes, types of arrays."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import edgewise

PACKAGE = Path(edgewise.__file__).parent
SOURCES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


ARRAYS = {f"NDArray[np.{element}]" for element in ("float64", "float32", "int64", "bool_")}


def test_types_of_arrays_are_spelled_once():
    spelled = [
        f"{path.relative_to(PACKAGE)}: {ast.unparse(node)}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in ARRAYS
    ]
    assert sorted(spelled) == sorted(f"arrays.py: {name}" for name in ARRAYS)


def test_no_two_packages_have_a_class_of_one_name():
    packages = defaultdict(set)
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                packages[node.name].add(path.parent.relative_to(PACKAGE).as_posix())
    assert {name: found for name, found in packages.items() if len(found) > 1} == {}


def names_in(*folders):
    """Names of variables, arguments and attributes below some folders, by file."""
    return {
        path.relative_to(PACKAGE).as_posix(): {
            getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "attr", None)
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.arg | ast.Attribute)
        }
        for path, tree in SOURCES.items()
        if path.relative_to(PACKAGE).as_posix().startswith(folders)
    }


def test_a_world_is_not_called_as_a_worker_is():
    worlds = ("sim/slots", "sim/stations", "policies/requests", "policies/orchestrate")
    assert [path for path, names in names_in(*worlds).items() if "w" in names] == []


def test_a_pipeline_is_not_called_as_a_job_is():
    one = (
        "model/pipelines",
        "workloads/pipelines",
        "sim/pipelines",
        "core/place",
        "runtime/pipelines",
        "runtime/testbeds",
        "sim/stations/frames",
    )
    found = names_in("policies/place", *one)
    assert [path for path, names in found.items() if names & {"job", "jobs"}] == []


def test_every_library_that_is_not_always_installed_is_kept_to_named_modules():
    """What an extra brings is in the import contract, however late it is imported."""
    written = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    always = {re.match(r"\w+", each)[0] for each in written["project"]["dependencies"]}
    contracts = written["tool"]["importlinter"]["contracts"]
    forbidden = {name for each in contracts for name in each.get("forbidden_modules", ())}
    used = set()
    for tree in SOURCES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                used |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                used.add(node.module.partition(".")[0])
    brought = {"yaml", "llvmlite", "PIL", "typing_extensions", "markupsafe"}  # by pyyaml, numba … jinja2
    own = {"edgewise", *brought, *always, *sys.stdlib_module_names}
    assert used - own - forbidden == set()
    assert {"torch", "onnxruntime", "pandas", "topohub", "ml_dtypes"} <= used & forbidden
