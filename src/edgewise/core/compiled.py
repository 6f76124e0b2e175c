"""The one place that configures numba, and the decorators of every hot kernel.

numba's on-disk cache looks only at the file of the kernel itself, not at kernels it
imports. The cache folder is therefore keyed by a hash of every source file that holds a
kernel, the numba version and the processor, and set before numba is first imported.

`EDGEWISE_JIT=0` runs every kernel as plain Python: slow, and exactly the same results.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, overload

F = TypeVar("F", bound=Callable[..., object])

PACKAGE = Path(__file__).resolve().parent.parent


def kernel_hash(package: Path = PACKAGE) -> str:
    """Hash of all sources under `package` that define kernels, of numba and of the processor."""
    from importlib.metadata import version  # metadata only: numba itself must not be imported yet

    digest = hashlib.sha256(f"{version('numba')} {platform.machine()} {platform.processor()}".encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"@kernel" in source or b"@inner" in source:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + source)
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """Folder for what can be made anew: compiled kernels, built graphs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("EDGEWISE_CACHE", base)) / "edgewise"


def _cache_folder() -> Path:
    return cache_root() / f"numba-{kernel_hash()}"


if os.environ.get("EDGEWISE_JIT", "1") == "0":
    os.environ["NUMBA_DISABLE_JIT"] = "1"
os.environ.setdefault("NUMBA_CACHE_DIR", str(_cache_folder()))

import numba as numba  # noqa: E402  (after the cache folder is set; kernels import it from here)
import numpy as np  # noqa: E402
from numba.core.registry import CPUDispatcher  # noqa: E402

JIT = os.environ.get("NUMBA_DISABLE_JIT") != "1"


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(
    *, parallel: bool = ..., nogil: bool = ..., allocates: bool = ..., cache: bool = ...
) -> Callable[[F], F]: ...
def kernel(
    function: F | None = None,
    *,
    parallel: bool = False,
    nogil: bool = False,
    allocates: bool = True,
    cache: bool = True,
) -> F | Callable[[F], F]:
    """Compile `function` in nopython mode, cached on disk.

    Floating-point order is kept (no fastmath): a compiled run equals an interpreted one.

    Args:
        function: what to compile; absent in the form `@kernel(parallel=True)`.
        parallel: run its `numba.prange` loops on several threads. Their bodies must not share
            what they write, so that the results do not depend on the number of threads.
        nogil: several threads of Python may run it at once. Compiles in a third of the time of `parallel`.
        allocates: False for a kernel that makes no arrays and gets none from those that it calls: numba then
            counts no references, so that it compiles and runs faster. To make one is an error when compiled.
        cache: False for a function made at run time around another kernel: numba's cache on disk knows
            such a kernel only as an object of the process that wrote it.
    """
    options = {"parallel": parallel, "nogil": nogil, "_nrt": allocates, "cache": cache}
    if function is None:
        return lambda late: _compile(late, options)
    return _compile(function, options)


@overload
def inner(function: F) -> F: ...
@overload
def inner(*, allocates: bool) -> Callable[[F], F]: ...
def inner(function: F | None = None, *, allocates: bool = False) -> F | Callable[[F], F]:
    """A `kernel` that kernels call: without an entry for Python it compiles in half of the time.

    Python may call it too, in tests: then it is compiled once more, with an entry.

    Args:
        function: what to compile.
        allocates: see `kernel`; here the exception.
    """
    options = {"no_cpython_wrapper": True, "_nrt": allocates, "cache": True}
    if function is None:
        return lambda late: _without_entry(_compile(late, options))
    return _without_entry(_compile(function, options))


def _compile(function: F, options: Mapping[str, Any]) -> F:
    if not JIT:
        # Hashes wrap around by design; compiled code does not warn of it, so neither does plain Python.
        plain: F = np.errstate(all="ignore")(function)
        return plain
    # What is typed at a prompt lies in no file that a cache could belong to.
    kept = options["cache"] and Path(function.__code__.co_filename).exists()
    always = {"error_model": "numpy", "no_cfunc_wrapper": True}
    return cast(F, numba.njit(**{**always, **options, "cache": kept})(function))


class _Inner(CPUDispatcher):
    """A compiled function that would crash if Python called what was compiled of it for kernels."""

    def __call__(self, *arguments: object) -> object:
        return _with_entry(self.py_func)(*arguments)


def _without_entry(compiled: F) -> F:
    if JIT:
        compiled.__class__ = _Inner  # type: ignore[assignment]
    return compiled


@cache
def _with_entry(function: Callable[..., object]) -> Callable[..., object]:
    return _compile(function, {"cache": False})
