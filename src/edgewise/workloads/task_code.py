"""A pipeline's tasks: the functions of its Python file, which is read, and run only in processes of tasks."""

import ast
import importlib.util
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgewise.errors import ScenarioError

if TYPE_CHECKING:  # the grammar takes longer to load than a task takes to start
    from edgewise.model.grammar.pipelines import PipelineSpec


def load_code(path: str) -> ModuleType:
    """The module that a pipeline's file of Python makes; it is run."""
    spec = importlib.util.spec_from_file_location("edgewise_user_pipeline", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            from edgewise.model.problems import nearest  # slow to load, for each task's process

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


def functions_of(spec: "PipelineSpec") -> dict[str, str]:
    """Task → function of the pipeline's code, the k-th task the k-th function.

    Raises:
        ScenarioError: it has no code, or tasks and functions do not match.
    """
    if spec.code is None:
        raise ScenarioError(
            f"pipeline {spec.name!r}: code is missing; name a Python file with a function for each task"
        )
    names = task_functions(spec.code)
    if len(names) != len(spec.tasks):
        raise ScenarioError(
            f"{spec.code}: exports {len(names)} functions for {len(spec.tasks)} tasks of pipeline "
            f"{spec.name!r}; write one for each"
        )
    return dict(zip((task.name for task in spec.tasks), names, strict=True))
