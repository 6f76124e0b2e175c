"""What the next controller of a system needs where it has another disk: wishes, what runs, jobs, pipelines.

Records stay where they are. So does what is told anew: who holds what, and what gateways handed in. Of jobs
and pipelines that have ended the latest is kept, for the number of the next follows it.
"""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from edgewise.runtime import disk
from edgewise.runtime.store.handed import LIFE, TAKEN
from edgewise.runtime.store.records import HELD_NOW, TOTALS
from edgewise.runtime.store.store import DATABASE, SCENARIO, Store

COLUMNS = {
    "setting": "name, value",
    "process": "name, kind, port, cores, settings, wanted, handle, started_s, restarts, failures",
    "address": "handle, url",
    "successor": "name, process, handle",
    "retired": "handle, port, since_s",
}
SUBMITTED = ("job", "pipeline")
OPEN = "WHERE ended_s IS NULL OR id = (SELECT MAX(id) FROM {table}) ORDER BY id"
OF_ONE = (LIFE, HELD_NOW, TOTALS, "controller_handle", "settled_s", "exposed")  # controller, or its disk


def to_keep(store: Store) -> str:
    """The state as text; the same text for the same state."""
    found: dict[str, Any] = {
        table: [list(row) for row in store.rows(f"SELECT {columns} FROM {table} ORDER BY rowid")]
        for table, columns in COLUMNS.items()
    }
    for table in SUBMITTED:
        names = [name for (name,) in store.rows("SELECT name FROM pragma_table_info(?)", (table,))]
        rows = store.rows(f"SELECT {', '.join(names)} FROM {table} {OPEN.format(table=table)}")
        found[table] = [dict(zip(names, row, strict=True)) for row in rows]
    found["setting"] = [row for row in found["setting"] if _is_kept(row[0])]
    found["scenario"] = (store.file.parent / SCENARIO).read_text()
    return json.dumps(found)


def put_back(folder: Path, text: str) -> None:
    """Make the state of a folder that of a text."""
    kept = json.loads(text)
    with closing(Store(folder / DATABASE)) as store, store.at_once():
        for table, columns in COLUMNS.items():
            marks = ", ".join("?" * len(columns.split(", ")))
            store.run(f"DELETE FROM {table}")
            store.run_for_each(f"INSERT INTO {table} ({columns}) VALUES ({marks})", kept[table])
        for table in SUBMITTED:
            store.run(f"DELETE FROM {table}")
            for row in kept[table]:
                marks = ", ".join("?" * len(row))
                store.run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
    disk.write_whole(folder / SCENARIO, kept["scenario"])


def _is_kept(setting: str) -> bool:
    return setting not in OF_ONE and not setting.startswith(f"{TAKEN} ")
