"""A pipeline's tasks: the functions of its Python file, which is read, not run; and what they pass on.

What tasks of a pipeline pass on, as bytes: for the wire, and for the profiler that measures sizes.

    b  bytes, as they are
    j  JSON: text, numbers, lists and mappings of them
    z  a mapping of names to arrays (or one array, called ""), in NumPy's own format without pickles
    n  nothing: the task dropped the frame, and the tasks after it skip it

Nothing that arrives is ever unpickled, so a frame cannot run code.
"""

import ast
import importlib.util
import io
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from edgewise.errors import ScenarioError


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


NOTHING = b"n"


def encode(value: Any) -> bytes:
    """The bytes of one output.

    Raises:
        TypeError: it is none of the kinds above.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return b"b" + bytes(value)
    if isinstance(value, np.ndarray):
        return encode({"": value})
    if isinstance(value, dict) and any(isinstance(v, np.ndarray) for v in value.values()):
        out = io.BytesIO()
        np.savez(out, **{str(k): np.asarray(v) for k, v in value.items()})  # type: ignore[arg-type]
        return b"z" + out.getvalue()
    try:
        return b"j" + json.dumps(value).encode()
    except (TypeError, ValueError):
        raise TypeError(
            f"output of type {type(value).__name__} cannot be sent; return bytes, text, numbers, lists, "
            "mappings of these, an array or a mapping of names to arrays"
        ) from None


def decode(data: bytes) -> Any:
    """The value of bytes that `encode` made.

    Raises:
        ValueError: they are not.
    """
    kind, body = data[:1], data[1:]
    if kind == b"b":
        return body
    if kind == b"j":
        return json.loads(body)
    if kind == b"z":
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        return found[""] if set(found) == {""} else found
    raise ValueError(f"payload of unknown kind {kind!r}")
