"""Machine code of those kernels only that Python calls.

numba optimises every compiled function together with all that it calls, and makes machine code of it, also
where only other kernels call it. In a chain of kernels each is then worked on once for every one above it.
Here a function is kept as LLVM's intermediate code until somebody asks for its address; whoever calls it links
that code, and all is optimised once, at the top of the chain.
"""

from __future__ import annotations

from typing import Any

from numba.core import codegen
from numba.core.environment import lookup_environment
from numba.core.registry import cpu_target

ENVIRONMENT = "_ZN08NumbaEnv"  # what names of a function's globals begin with


class LazyLibrary(codegen.JITCodeLibrary):  # type: ignore[misc]  # numba has no types
    """A function's code: linked with what it calls, and nothing more until its address is asked for."""

    _is_machine_code = _is_from_disk = False

    def _optimize_final_module(self) -> None:
        """Later, or where this is a part."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Address of a function that is defined here, else 0."""
        self._ensure_finalized()
        if not self._is_machine_code and name in self._defined():
            self._make()
        return super().get_pointer_to_function(name) if self._is_machine_code else 0

    def _set_compiled_object(self, value: bytes) -> None:
        super()._set_compiled_object(value)
        self._is_from_disk = True

    def _defined(self) -> set[str]:
        module = self._shared_module or self._final_module
        return {each.name for each in module.functions if not each.is_declaration}

    def _make(self) -> None:
        self._is_machine_code = True
        if not self._is_from_disk:
            super()._optimize_final_module()
            self._final_module.verify()
        super()._finalize_final_module()
        shared = self._get_module_for_linking()
        self._codegen._engine._load_defined_symbols(shared)
        for each in shared.global_variables:
            if each.name.startswith(ENVIRONMENT) and (found := lookup_environment(each.name)) is not None:
                self._codegen.set_env(each.name, found)

    def serialize_using_object_code(self) -> Any:
        """For the cache: machine code where there is some."""
        if self._is_machine_code:
            return super().serialize_using_object_code()
        self._ensure_finalized()
        return self.name, "bitcode", self._final_module.as_bitcode()


class LazyCodegen(codegen.JITCPUCodegen):  # type: ignore[misc]
    """Makes lazy libraries."""

    _library_class = LazyLibrary

    def set_env(self, env_name: str, env: Any) -> None:
        """Now where machine code reads it; `LazyLibrary` does it for what is made later."""
        if self._engine.is_symbol_defined(env_name):
            super().set_env(env_name, env)


def use() -> None:
    """From now on, for all that numba compiles in this process."""
    cpu_target.target_context.codegen().__class__ = LazyCodegen
