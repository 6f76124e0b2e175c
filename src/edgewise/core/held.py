"""A NamedTuple of arrays behind one pointer, for kernels that call each other often.

Passed by value, such a tuple is some hundred words in every call: slow to compile and slow to run. A kernel
that Python calls holds it once, `w = held(world)`, and hands the pointer on; it reads the same: `w.items[i]`,
and what it holds in turn is held too. Whoever made it must outlive it: never return one.

Without the compiler `held` returns what it is given. (Naming @kernel here makes the cache notice edits.)
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

from edgewise.core.compiled import JIT

T = TypeVar("T")

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
        """The same, behind one pointer; or the pointer itself."""

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return values[0] if isinstance(value, _Held) else cgutils.alloca_once_value(builder, values[0])

        return (value if isinstance(value, _Held) else _Held(value))(value), generate

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
