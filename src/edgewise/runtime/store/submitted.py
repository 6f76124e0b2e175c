"""Tables of what is submitted to a live system: jobs and pipelines.

What is read from them and written has files of its own, whose types are slow to import: most commands need
none.
"""

from collections.abc import Mapping
from typing import ClassVar

from edgewise.runtime.store.database import StorePart


class JobSchema(StorePart):
    """Of `jobs.JobTable`."""

    SCHEMA = """
    CREATE TABLE IF NOT EXISTS job (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, command TEXT NOT NULL, folder TEXT NOT NULL,
        cores REAL NOT NULL, memory_bytes REAL NOT NULL, duration_s REAL NOT NULL, submitted_s REAL NOT NULL,
        earliest_s REAL NOT NULL, latest_s REAL NOT NULL, priority INTEGER NOT NULL,
        state TEXT NOT NULL DEFAULT 'waiting', node TEXT, started_s REAL, ended_s REAL,
        suspended_s REAL NOT NULL DEFAULT 0, stopped_s REAL, cancel INTEGER NOT NULL DEFAULT 0, why TEXT,
        when_evicted TEXT NOT NULL DEFAULT 'pause', attempt INTEGER NOT NULL DEFAULT 0,
        deaths INTEGER NOT NULL DEFAULT 0, retry_s REAL NOT NULL DEFAULT 0,
        redone_s REAL NOT NULL DEFAULT 0, checkpoint_s REAL, saved_s REAL NOT NULL DEFAULT 0,
        checkpoint_bytes REAL NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS open_jobs ON job (id) WHERE ended_s IS NULL;
    """
    ADDED: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "job": {
            "when_evicted": "TEXT NOT NULL DEFAULT 'pause'",
            "attempt": "INTEGER NOT NULL DEFAULT 0",
            "deaths": "INTEGER NOT NULL DEFAULT 0",
            "retry_s": "REAL NOT NULL DEFAULT 0",
            "redone_s": "REAL NOT NULL DEFAULT 0",
            "checkpoint_s": "REAL",
            "saved_s": "REAL NOT NULL DEFAULT 0",
            "checkpoint_bytes": "REAL NOT NULL DEFAULT 0",
        }
    }


class PipelineSchema(StorePart):
    """Of `pipelines.PipelineTable`."""

    SCHEMA = """
    CREATE TABLE IF NOT EXISTS pipeline (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, live TEXT NOT NULL, submitted_s REAL NOT NULL,
        state TEXT NOT NULL DEFAULT 'waiting', why TEXT, started_s REAL, ended_s REAL,
        nodes TEXT NOT NULL DEFAULT '{}', frames REAL NOT NULL DEFAULT 0, ran_s REAL NOT NULL DEFAULT 0,
        moves INTEGER NOT NULL DEFAULT 0, cancel INTEGER NOT NULL DEFAULT 0,
        measured TEXT NOT NULL DEFAULT '{}'
    );
    CREATE INDEX IF NOT EXISTS open_pipelines ON pipeline (id) WHERE ended_s IS NULL;
    """
    ADDED: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "pipeline": {"measured": "TEXT NOT NULL DEFAULT '{}'"}
    }
