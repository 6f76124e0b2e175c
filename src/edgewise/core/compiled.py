"""The one place that configures numba, and the decorator of every hot kernel.

numba's on-disk cache looks only at the file of the kernel itself, not at kernels it
imports. The cache folder is therefore keyed by a hash of every source file that holds a
kernel, the numba version and the processor, and set before numba is first imported.

`EDGEWISE_JIT=0` runs every kernel as plain Python: slow, and exactly the same results.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast, overload

F = TypeVar("F", bound=Callable[..., object])

PACKAGE = Path(__file__).resolve().parent.parent


def kernel_hash(package: Path = PACKAGE) -> str:
    """Hash of all sources under `package` that define kernels, of numba and of the processor."""
    from importlib.metadata import version  # metadata only: numba itself must not be imported yet

    digest = hashlib.sha256(f"{version('numba')} {platform.machine()} {platform.processor()}".encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"@kernel" in source:
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

JIT = os.environ.get("NUMBA_DISABLE_JIT") != "1"


@overload
def kernel(function: F) -> F: ...
@overload
def kernel(*, parallel: bool = ..., cache: bool = ...) -> Callable[[F], F]: ...
def kernel(function: F | None = None, *, parallel: bool = False, cache: bool = True) -> F | Callable[[F], F]:
    """Compile `function` in nopython mode, cached on disk.

    Floating-point order is kept (no fastmath): a compiled run equals an interpreted one.

    Args:
        function: what to compile; absent in the form `@kernel(parallel=True)`.
        parallel: run its `numba.prange` loops on several threads. Their bodies must not share
            what they write, so that the results do not depend on the number of threads.
        cache: False for a function made at run time around another kernel: numba's cache on disk knows
            such a kernel only as an object of the process that wrote it.
    """
    if function is None:
        return lambda late: _compile(late, parallel, cache)
    return _compile(function, parallel, cache)


def _compile(function: F, parallel: bool, cache: bool) -> F:
    if not JIT:
        # Hashes wrap around by design; compiled code does not warn of it, so neither does plain Python.
        plain: F = np.errstate(all="ignore")(function)
        return plain
    # What is typed at a prompt lies in no file that a cache could belong to.
    cache = cache and Path(function.__code__.co_filename).exists()
    compiled = numba.njit(cache=cache, error_model="numpy", parallel=parallel)(function)
    return cast(F, compiled)
