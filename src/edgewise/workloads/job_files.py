"""Job descriptions from files: JSON or TOML, and the Python file whose `job` lists the task functions."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.jobs import PipelineDescription, parse_description
from edgewise.model.problems import nearest


def load_description(path: str | Path) -> PipelineDescription:
    """Read and check a job description.

    JSON holds the list itself; TOML, which has no list at its top, holds it as `[[job]]` tables.

    Raises:
        ScenarioError: the file cannot be read, or something in it is wrong.
    """
    file = Path(path)
    text = _text(file)
    try:
        if file.suffix == ".toml":
            data: Any = tomllib.loads(text).get("job")
        elif file.suffix == ".json":
            data = json.loads(text)
        else:
            raise ScenarioError(f"{file}: ending {file.suffix!r} is not known; use .json or .toml")
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{file}: is not valid {file.suffix[1:].upper()}: {error}") from None
    if data is None:
        raise ScenarioError(f"{file}: has no [[job]] table; write the job as the first, each task as another")
    return parse_description(data, str(file))


def task_functions(path: str | Path) -> tuple[str, ...]:
    """Names of the functions that a Python file exports as `job = [task_0, ...]`; the file is not run.

    Raises:
        ScenarioError: no such file, it is not Python, or `job` is missing or is not a list of its functions.
    """
    file = Path(path)
    try:
        tree = ast.parse(_text(file), str(file))
    except SyntaxError as error:
        raise ScenarioError(f"{file}: line {error.lineno} is not Python: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    value = _exported(tree, file, functions)
    names = tuple(element.id for element in value if isinstance(element, ast.Name))
    for name in names:
        if name not in functions:
            raise ScenarioError(
                f"{file}: job names {name!r}, which is no function; {nearest(name, functions)}"
            )
        arguments = functions[name].args
        if len(arguments.posonlyargs + arguments.args) != 1:
            raise ScenarioError(f"{file}: {name} must take one argument, its input; write def {name}(input):")
    if len(set(names)) < len(names):
        raise ScenarioError(f"{file}: job lists a function twice; list each once")
    return names


def _exported(tree: ast.Module, file: Path, functions: Iterable[str]) -> list[ast.expr]:
    """What the list `job` holds."""
    found = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "job" for t in node.targets)
    ]
    if not found:
        raise ScenarioError(
            f"{file}: exports no job; end it with: job = [{', '.join(functions) or 'task_0'}]"
        )
    value = found[-1]
    if (
        not isinstance(value, ast.List)
        or not value.elts
        or not all(isinstance(e, ast.Name) for e in value.elts)
    ):
        raise ScenarioError(f"{file}: job is not a list of functions; write job = [task_0, task_1]")
    return value.elts


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ScenarioError(f"{file}: cannot be read: {reason}; check the path") from None
