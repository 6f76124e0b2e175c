"""What Typer does that takes long and is not needed: reading plain words by pydantic, help in Markdown.

Plain words, paths and flags of a command line are taken as they are: importing pydantic takes a third of the
time of a short question to a live system. What has a range, a choice or a file behind it is read as before.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer import core

_TEXT = {str: str, str | None: str, list[str]: str, list[str] | None: str}
_PATH = {Path: Path, Path | None: Path, list[Path]: Path, list[Path] | None: Path}
PLAIN: dict[Any, Any] = {**_TEXT, **_PATH, bool: bool, bool | None: bool}
CHECKED = ("exists", "resolve_path", "writable", "allow_dash", "path_type", "parser")


class _Plain:
    """A parameter of plain words, or a flag."""

    def __init__(self, kind: Any, otherwise: Any) -> None:
        self._kind, self._otherwise = kind, otherwise

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of each word."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if self._kind is bool and not isinstance(value, bool):  # as of an environment variable
            return self._otherwise().coerce(value, param=param, ctx=ctx)
        return [self._kind(each) for each in value] if several else self._kind(value)


def use() -> None:
    """From now on, read plain words so; nothing changes where Typer has no such seam."""
    if (build := getattr(core, "build_runtime_param", None)) is None:
        return

    def built(descriptor: Any) -> Any:
        kind, info = PLAIN.get(descriptor.annotation), descriptor.parameter_info
        if kind is None or descriptor.choices or any(getattr(info, each, None) for each in CHECKED):
            return build(descriptor)
        return _Plain(kind, partial(build, descriptor))

    core.build_runtime_param = built  # type: ignore[attr-defined]


UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Of what Typer's help imports: what no help of ours shows, which takes a quarter of the time of `--help`."""
_HELP = "rich_utils"


@contextmanager
def without_unused() -> Iterator[None]:
    """While it lasts, Typer's help has stand-ins for what it never calls; nothing is left of them."""
    if f"typer.{_HELP}" in sys.modules:
        yield
        return
    missing = {name: each for name, each in UNUSED.items() if name not in sys.modules}
    for name, each in missing.items():
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], each, type(each, (), {}))
    try:
        yield
    finally:
        for name in (*missing, f"typer.{_HELP}"):
            sys.modules.pop(name, None)
        vars(typer).pop(_HELP, None)
