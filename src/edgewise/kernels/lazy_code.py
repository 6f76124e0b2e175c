"""Machine code of those kernels only that Python calls.

numba optimises every compiled function together with all that it calls, and makes machine code of it, also
where only other kernels call it. In a chain of kernels each is then worked on once for every one above it.
Here a function stays LLVM's intermediate code until somebody asks for its address; whoever calls it links
that code, and all is optimised once, at the top of the chain.
"""

from typing import Any

from llvmlite.binding import ffi
from numba.core import codegen, environment
from numba.core.registry import cpu_target

LIBRARY: Any = codegen.JITCodeLibrary  # as numba gives no types
CODEGEN: Any = codegen.JITCPUCodegen
lookup: Any = environment.lookup_environment
ENVIRONMENT = "_ZN08NumbaEnv"  # what names of a function's globals begin with


class LazyLibrary(codegen.JITCodeLibrary):
    """A function's code: linked with what it calls, and nothing more until its address is asked for."""

    is_machine_code = False
    _is_from_disk = False

    def _optimize_final_module(self) -> None:
        """Later, or where this is a part."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Address of a function that is defined here, else 0."""
        LIBRARY._ensure_finalized(self)
        if not self.is_machine_code and name in self._defined():
            self._make()
        return int(LIBRARY.get_pointer_to_function(self, name)) if self.is_machine_code else 0

    def _set_compiled_object(self, value: bytes) -> None:
        LIBRARY._set_compiled_object(self, value)
        self._is_from_disk = True

    def _defined(self) -> set[str]:
        module: Any = self._shared_module or self._final_module
        return {each.name for each in module.functions if not each.is_declaration}

    def _make(self) -> None:
        self.is_machine_code = True
        if not self._is_from_disk:
            LIBRARY._optimize_final_module(self)
            self._final_module.verify()
        LIBRARY._finalize_final_module(self)
        shared: Any = LIBRARY._get_module_for_linking(self)
        owner: Any = self._codegen
        owner._engine._load_defined_symbols(shared)
        for each in shared.global_variables:
            if each.name.startswith(ENVIRONMENT) and (found := lookup(each.name)):
                owner.set_env(each.name, found)

    def serialize_using_object_code(self) -> Any:
        """For the cache: machine code where there is some."""
        if self.is_machine_code:
            return LIBRARY.serialize_using_object_code(self)
        LIBRARY._ensure_finalized(self)
        return self.name, "bitcode", self._final_module.as_bitcode()


class LazyCodegen(codegen.JITCPUCodegen):
    """Makes lazy libraries."""

    _library_class = LazyLibrary

    def set_env(self, env_name: str, env: Any) -> None:
        """Now where machine code reads it; `LazyLibrary` does it for what is made later."""
        engine: Any = self._engine
        if engine.is_symbol_defined(env_name):
            CODEGEN.set_env(self, env_name, env)


def use() -> None:
    """From now on, for all that numba compiles in this process."""
    made: Any = cpu_target.target_context.codegen()
    made.__class__ = LazyCodegen
    # numba has each of some 50,000 calls of LLVM timed, once more for each kernel that waits for another one.
    calls: Any = ffi.lib
    calls._lock._cblist.clear()
