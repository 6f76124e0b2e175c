"""What is kept of a live system: one SQLite file in WAL mode, which survives the death of any process.

    database    the file: statements, transactions, typed rows; what is wrong with it, in one line
    store       the state of a system: settings, who decides, processes that are wanted and run
    steady      the same for a process that must go on when the file is full, read-only or damaged
    copies      the last good copy of the file: kept, checked, put in its place
    handed      the copy of a gateway on another machine, and what it hands in

Parts of the store with a subject of their own, each a `StorePart`:

    records     what came, what became of it, and who held what meanwhile
    faults      what policies failed at
    jobs        deferrable jobs, from their submission to their end
    pipelines   pipelines, likewise
    submitted   the tables of both

The controller and every gateway open the same file. A row is a dataclass or a named tuple with a field for
each column (`Database.kept` and `keep`). Forbidden here: deciding anything.
"""

from edgewise.runtime.store.database import StoreError
from edgewise.runtime.store.processes import Process, Running, from_fields, sibling_name
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.store.store import (
    DATABASE,
    ENDED,
    LATEST_CHANGE,
    OPERATIONS,
    POLICIES,
    RUN,
    SCENARIO,
    SHADOWS,
    Store,
    tls_files,
)

__all__ = [
    "DATABASE",
    "ENDED",
    "LATEST_CHANGE",
    "OPERATIONS",
    "POLICIES",
    "RUN",
    "SCENARIO",
    "SHADOWS",
    "Process",
    "Running",
    "SteadyStore",
    "Store",
    "StoreError",
    "from_fields",
    "sibling_name",
    "tls_files",
]  # fmt: skip
