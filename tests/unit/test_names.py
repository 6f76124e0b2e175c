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
        "sim/parts/pipelines",
        "core/place",
        "runtime/pipelines",
        "runtime/testbeds",
        "sim/parts/frames",
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


TWICE = {  # names that modules give one value by chance: what they mean is not the same
    "COUNT": "golden states of one kind of network, each its own",
    "SEED": "the same",
    "ENDED": "a state; a file of a job's; a setting of the store",
    "FAILED": "a state; a query's outcome; a process that ends again and again",
    "LARGE_BYTES": "a body in a write of its own; JSON that is read in a thread",
    "REST_S": "until a policy's process starts anew; until a slow policy is asked again",
    "ROUNDS": "of a linear program; of a search for limits",
    "SOURCE": "who sends a pipeline's frames; a column of a trace",
    "LEAST_SHARE": "of the mean bandwidth of links; of a link's own",
    "LINES": "limits that are described; labels of a figure",
}


def constants(tree):
    """(name, value) of what a module calls by an upper-case name; codes of an enumeration are left out."""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        for target in targets:
            several = isinstance(target, ast.Tuple)
            names = target.elts if several else [target]
            values = node.value.elts if several and isinstance(node.value, ast.Tuple) else [node.value]
            said = [each.value for each in values if isinstance(each, ast.Constant)]
            if several and (len(values) < len(names) or said == list(range(len(said)))):
                continue
            for name, value in zip(names, values, strict=False):
                plain = not any(isinstance(each, ast.Name | ast.Call) for each in ast.walk(value))
                if isinstance(name, ast.Name) and name.id.isupper() and plain:
                    yield name.id, ast.unparse(value)


def test_a_constant_stands_in_one_module():
    places = defaultdict(set)
    for path, tree in SOURCES.items():
        for found in constants(tree):
            places[found].add(path.relative_to(PACKAGE).as_posix())
    twice = {found: sorted(where) for found, where in places.items() if len(where) > 1}
    assert {found: where for found, where in twice.items() if found[0] not in TWICE} == {}
    assert {name for name, _ in twice} == set(TWICE), "exceptions that are none any more"


def test_the_cloud_is_one_value():
    """The station 0; in place of a node there is `NO_NODE`."""
    bound = {
        (path.relative_to(PACKAGE).as_posix(), name, value)
        for path, tree in SOURCES.items()
        for name, value in constants(tree)
        if name in ("CLOUD", "NO_NODE")
    }
    assert bound == {
        ("core/dispatch/request_rules.py", "CLOUD", "0"),
        ("core/orchestrate/events.py", "NO_NODE", "-1"),
    }


OWN_WORDS = "calm", "stirred", "restless", "rider", "guest", "wire", "desk", "carrier"


def test_words_of_our_own_stand_in_the_glossary():
    """Of those that name something in the code; one that names nothing any more goes from there, too."""
    text = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
    explained = {
        word.lower() for word in re.findall(r"\*\*([\w ]+)\*\*", text.partition("## In the code alone")[2])
    }
    called = {getattr(node, "name", None) or "" for tree in SOURCES.values() for node in ast.walk(tree)}
    called |= {name or "" for names in names_in("").values() for name in names}
    parts = {part.lower() for name in called for part in re.findall(r"[A-Z]?[a-z]+", name)}
    used = {word for word in OWN_WORDS if {word, f"{word}s"} & parts}
    assert used == explained
