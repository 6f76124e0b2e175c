"""A world behind one pointer, for kernels that call each other often.

A NamedTuple of arrays is passed to a compiled function array by array, some 150 words and as many
reference counts per call. Inside `advance` the world and the plan are therefore held in numba
structures, which travel as one pointer and read the same: `w.items[i].amount`. Without the
compiler they are the NamedTuples themselves. (Each `@kernel` below `advance` is compiled for these
types; naming it here makes the cache notice edits of this file.)
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from edgewise.core import compiled
from edgewise.sim.stations.state import GraphTables, StationWorld

if TYPE_CHECKING or os.environ.get("NUMBA_DISABLE_JIT") == "1":
    HeldWorld, HeldPlan = StationWorld, GraphTables
else:
    from numba.experimental import structref

    assert compiled  # numba is configured there, before it is imported here

    class _Short(compiled.numba.types.StructRef):
        """A type whose name, a part of that of every kernel, does not list all fields of all records."""

        def __init__(self, fields: Any) -> None:
            super().__init__(fields)
            self.name = f"{type(self).__name__}{blake2b(self.name.encode(), digest_size=8).hexdigest()}"

        def preprocess_fields(self, fields: Any) -> Any:
            return tuple((name, compiled.numba.types.unliteral(kind)) for name, kind in fields)

    @structref.register
    class _WorldType(_Short):
        pass

    @structref.register
    class _PlanType(_Short):
        pass

    class HeldWorld(structref.StructRefProxy):
        """A `StationWorld` behind one pointer, made inside kernels only."""

    class HeldPlan(structref.StructRefProxy):
        """A `GraphTables` behind one pointer, made inside kernels only."""

    structref.define_proxy(HeldWorld, _WorldType, list(StationWorld._fields))
    structref.define_proxy(HeldPlan, _PlanType, list(GraphTables._fields))
