"""The one place that configures numba, and the decorator of every hot kernel.

A kernel is compiled when it is first called, and kept on disk. What other kernels call is compiled without an
entry for Python, which takes half of the time, and once for all integers, where numba would compile it anew
for every literal.

Kernels are looked for in two folders: `EDGEWISE_KERNELS`, which is only read (a container image brings it),
then `EDGEWISE_CACHE`, the user's own. Below both, a folder is named by a hash of every source file that holds
a kernel, of numba's version and level and of the processor that it is for: numba itself looks only at the
file of a kernel, not at those that it imports. Where `EDGEWISE_KERNELS` holds kernels for any processor, this
process compiles for any processor too.

`EDGEWISE_JIT=0` runs every kernel as plain Python: slow, and exactly the same results.
"""

import gc
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, overload

from edgewise.kernels.trust import all_own, own_files, why_not

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")

PACKAGE = Path(__file__).resolve().parent.parent


# Compiles sooner than 3, and leaves out inlining but what is told to be: every kernel that kernels call.
OPT = "1"
# Engines of events and who decides for them, called from many places. With all of them inlined, that of
# stations compiled four times as long, and requests ran no faster.
DECIDING = "core.dispatch.request_", "policies.requests.", "policies.split."
NOT_INLINED = tuple(f"edgewise.{each}" for each in ("sim.stations.", "sim.requests.", *DECIDING))


class Processor(NamedTuple):
    """What kernels are compiled for, in LLVM's words."""

    name: str
    features: str

    @staticmethod
    def here() -> "Processor":
        """This machine's, unless numba's variables name another."""
        from llvmlite import binding

        name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
        if name == GENERIC.name:
            return GENERIC
        features = os.environ.get("NUMBA_CPU_FEATURES") or binding.get_host_cpu_features().flatten()
        return Processor(name, features)


GENERIC = Processor("generic", "")  # any of its architecture


def kernel_hash(package: Path = PACKAGE, processor: Processor = GENERIC) -> str:
    """Hash of all sources under `package` that define kernels, of numba and of the processor."""
    import platform
    from importlib.metadata import version  # metadata only: numba itself must not be imported yet

    made = f"{version('numba')} {os.environ.get('NUMBA_OPT', OPT)} {platform.machine()} {processor}"
    digest = hashlib.sha256(made.encode())
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"@kernel" in source or b"@inner" in source:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + source)
    return digest.hexdigest()[:16]


def cache_root() -> Path:
    """Folder for what can be made anew: compiled kernels, built graphs."""
    base = os.environ.get("EDGEWISE_CACHE") or os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "edgewise"
    except RuntimeError:  # a user without a home
        return Path("/nonexistent") / "edgewise"


REFUSED: list[str] = []  # why folders of kernels are not used
NOWHERE = Path(os.devnull) / "edgewise"  # even root can write nothing there


def _folders() -> tuple[Path, ...]:
    """Where kernels are looked for; new ones go into the last."""
    brought, here = os.environ.get("EDGEWISE_KERNELS"), Processor.here()
    for processor in (here, GENERIC):
        folder = f"numba-{kernel_hash(processor=processor)}"
        if brought and (place := Path(brought) / "edgewise" / folder).is_dir() and (own := _trusted(place)):
            if processor == GENERIC:
                os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = GENERIC
            return own, _trusted(cache_root() / folder) or NOWHERE
    return (_trusted(cache_root() / f"numba-{kernel_hash(processor=here)}") or NOWHERE,)


def _trusted(folder: Path) -> Path | None:
    """The folder, unless somebody else may have written what lies in it."""
    found = Path(os.path.realpath(folder))
    if (why := why_not(found)) is None:
        return found
    REFUSED.append(why)
    return None


if os.environ.get("EDGEWISE_JIT", "1") == "0":
    os.environ["NUMBA_DISABLE_JIT"] = "1"
JIT = os.environ.get("NUMBA_DISABLE_JIT") != "1"
FOLDERS = _folders() if JIT else ()
os.environ.setdefault("NUMBA_OPT", OPT)

import numba as numba  # noqa: E402  (after the processor is set; kernels import it from here)
import numpy as np  # noqa: E402
from numba.core import caching, event  # noqa: E402
from numba.core.registry import CPUDispatcher  # noqa: E402

from edgewise.kernels import lazy_code  # noqa: E402

config: Any = numba.config
config.reload_config()  # numba may have been imported before its variables were set
lazy_code.use()
if JIT and not config.CACHE_DIR:
    config.CACHE_DIR = str(FOLDERS[-1])


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
    options = {"parallel": parallel, "nogil": nogil, "_nrt": allocates}
    if function is None:
        return lambda late: _compile(late, options, cache)
    return _compile(function, options, cache)


@overload
def inner(function: F) -> F: ...
@overload
def inner(*, allocates: bool) -> Callable[[F], F]: ...
def inner(function: F | None = None, *, allocates: bool = False) -> F | Callable[[F], F]:
    """A `kernel` that makes no arrays, unless it says so: most of those that only kernels call."""
    made: Callable[[F], F] = kernel(allocates=allocates)
    return made if function is None else made(function)


def plain(kernel: Any) -> Any:
    """A kernel as it is without the compiler: for whole arrays, or where a compiled call costs more."""
    return getattr(kernel, "py_func", kernel)


def _compile(function: F, options: Mapping[str, Any], cache: bool) -> F:
    if not JIT:
        # Hashes wrap around by design; compiled code does not warn of it, so neither does plain Python.
        return np.errstate(all="ignore")(function)
    # What is typed at a prompt lies in no file that a cache could belong to.
    kept = cache and Path(function.__code__.co_filename).exists()
    always: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True, **options}
    made: Any = numba.njit(**always)(function)
    inlined = not function.__module__.startswith(NOT_INLINED)
    called: Any = numba.njit(**always | {"no_cpython_wrapper": True, "forceinline": inlined})(function)
    if kept:
        keep(made)
        keep(called, "called.")
    made.__class__ = _Kernel
    made.called = called
    return cast(F, made)


class _Kernel(CPUDispatcher):
    """What Python calls; `called` is what kernels call of it, and would crash if Python called that."""

    called: Any

    def compile(self, sig: Any) -> Any:
        """Code of a call by Python, without the collector: it would search in vain what a compiler keeps."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().compile(sig)
        finally:
            if collects:
                gc.enable()

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Typing of a call by a kernel."""
        plain: Any = numba.types.unliteral
        named = {name: plain(kind) for name, kind in kws.items()}
        return self.called.get_call_template([plain(kind) for kind in args], named)

    def get_overload(self, sig: Any) -> Any:
        """Code of a call by a kernel."""
        return self.called.get_overload(sig)


def keep(dispatcher: Any, prefix: str = "") -> None:
    """Let a function of numba look for its code in `FOLDERS`, and write there what it compiles.

    Args:
        prefix: of the files; for a second set of options for the same function.
    """
    dispatcher._cache = _Kept(dispatcher.py_func, prefix)


class _Kept:
    """Code of one function in `FOLDERS`; a folder that cannot be written is none."""

    def __init__(self, function: Any, prefix: str) -> None:
        self._folders = [_cache_in(folder, prefix)(function) for folder in FOLDERS]
        self.cache_path = self._folders[-1].cache_path

    def _is_own(self, folder: Any) -> bool:
        return _all_own(Path(folder.cache_path))

    def load_overload(self, signature: Any, target: Any) -> Any:
        """The code for a signature, or None."""
        for folder in filter(self._is_own, self._folders):
            with suppress(OSError):  # it cannot be read
                if (found := folder.load_overload(signature, target)) is not None:
                    return found
        return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Write what was compiled."""
        with suppress(OSError), own_files():
            if self._is_own(self._folders[-1]):
                self._folders[-1].save_overload(signature, code)


@cache
def _cache_in(root: Path, prefix: str) -> Any:
    """numba's cache of a function below `root`, wherever the package lies."""

    class Place(caching._CacheLocator):
        def __init__(self, function: Any, file: str) -> None:
            self._file, self._line = Path(file), function.__code__.co_firstlineno

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            return cls(function, file)

        def get_cache_path(self) -> str:
            inside = PACKAGE in self._file.parents
            own = self._file.relative_to(PACKAGE).with_suffix("") if inside else self._file.absolute()
            return str(root / own.as_posix().strip("/").replace("/", "."))

        def get_source_stamp(self) -> str:
            return _digest(self._file)

        def get_disambiguator(self) -> str:
            return str(self._line)

        def ensure_cache_path(self) -> None:
            Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    class Code(caching.CompileResultCacheImpl):
        _locator_classes = [Place]  # noqa: RUF012

        def get_filename_base(self, fullname: str, abiflags: str) -> str:
            base: Any = super()
            return str(prefix + base.get_filename_base(fullname, abiflags))

    class Kept(caching.FunctionCache):
        _impl_class = Code

    return Kept


_all_own = cache(all_own)  # once per process


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Watch(event.Listener):
    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told

    def on_start(self, event: Any) -> None:
        if isinstance(event.data["dispatcher"]._cache, _Kept):
            self._told(event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: Any) -> None:
        pass


def watch(told: Callable[[str], None]) -> None:
    """From now on, call `told` with the name of each function that is not on disk, before it is compiled."""
    register: Any = event.register
    register("numba:compile", _Watch(told))


def can_keep() -> bool:
    """Whether what is compiled can be written to disk."""
    with suppress(OSError), own_files():
        FOLDERS[-1].mkdir(parents=True, exist_ok=True)
    return os.access(FOLDERS[-1], os.W_OK)


# `held(value)` is a NamedTuple of arrays behind one pointer, for kernels that call each other often. By
# value, such a tuple is some hundred words in every call: slow to compile and slow to run. A kernel that
# Python calls holds it once, `w = held(world)`, and hands the pointer on; it reads the same: `w.items[i]`,
# and what it holds in turn is held too. Whoever made it must outlive it: never return one. Without the
# compiler it is what it was.
if TYPE_CHECKING or not JIT:

    def held(value: T) -> T:
        """The same, behind one pointer."""
        return value

    def held_type(kind: Any) -> Any:
        """numba's type of what `held` makes of a value of type `kind`."""
        return kind

else:
    from numba.core import cgutils, typing
    from numba.core.imputils import impl_ret_borrowed
    from numba.extending import (
        infer_getattr,
        intrinsic,
        lower_getattr_generic,
        models,
        register_model,
        types,
    )

    class _Held(types.Type):
        def __init__(self, kind: Any) -> None:
            self.kind = kind
            super().__init__(f"Held({kind.name})")

        @property
        def mangling_args(self) -> tuple[str, tuple[()]]:
            """A short name for the linker."""
            return f"Held{hashlib.sha256(self.kind.name.encode()).hexdigest()[:16]}", ()

    held_type = _Held

    @register_model(_Held)
    class _Model(models.PrimitiveModel):
        def __init__(self, manager: Any, kind: _Held) -> None:
            super().__init__(manager, kind, manager.lookup(kind.kind).get_value_type().as_pointer())

    @intrinsic
    def held(context: Any, value: Any) -> Any:
        """The same, behind one pointer; or the pointer itself, or None."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return values[0] if is_held else cgutils.alloca_once_value(builder, values[0])

        is_held = isinstance(value, _Held | types.NoneType)
        return (value if is_held else _Held(value))(value), generate

    @infer_getattr
    class _Fields(typing.templates.AttributeTemplate):
        key = _Held

        def generic_resolve(self, held: _Held, name: str) -> Any:
            if name not in held.kind.fields:
                return None
            kind = held.kind[held.kind.fields.index(name)]
            return _Held(kind) if isinstance(kind, types.BaseNamedTuple) else kind

    @lower_getattr_generic(_Held)
    def _field(context: Any, builder: Any, held: _Held, pointer: Any, name: str) -> Any:
        at = held.kind.fields.index(name)
        kind, place = held.kind[at], cgutils.gep_inbounds(builder, pointer, 0, at)
        if isinstance(kind, types.BaseNamedTuple):
            return place
        return impl_ret_borrowed(context, builder, kind, builder.load(place))
