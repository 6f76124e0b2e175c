"""The columns of a run's two tables, one schema for simulated and live runs.

`STREAMS` has one row per stream, seed and policy; `WINDOWS` one per window, seed and
policy. Every field carries its description as Arrow metadata, so the Parquet files
explain themselves and the documentation is made from `describe`.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

_TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}

_STREAMS = """
seed              int    seed of the run's random draws
policy            str    policy that dispatched the stream
stream            int    stream, unique in (seed, policy); the same stream under every policy
site              str    access site of the stream
application       str    application that opened it
task              str    task it needs
open_s            float  when it opens, seconds from the start of the run
close_s           float  when it closes, seconds; queries are sent in [open_s, close_s)
rate_qps          float  queries per second
size_bytes        float  payload of a query, bytes
deadline_s        float  tolerated end-to-end delay of a query, seconds
min_accuracy      float  least accuracy it accepts, in [0, 1]
worker            str?   worker it was bound to; null when refused
variant           str?   variant of that worker; null when refused
cluster           str?   cluster of that worker; null when refused
reason            str?   why it was refused; null when bound
queries           int    queries it sent: ok + failed + rejected
ok                int    queries answered within the deadline
failed            int    queries sent to a worker and not answered within the deadline
rejected          int    queries of a refused stream
delay_mean_s      float? mean end-to-end delay of the answered queries, seconds; null when none was
delay_max_s       float? largest end-to-end delay of the served queries, seconds; null when none was
"""

_WINDOWS = """
seed              int    seed of the run's random draws
policy            str    policy that dispatched the streams
window            int    number of the window, from 0
start_s           float  start of the window, seconds from the start of the run
end_s             float  end of the window, seconds
active            str    static policy in force in the window
streams_opened    int    streams that opened in the window
streams_bound     int    of these, bound to a worker
streams_refused   int    of these, refused
queries           int    queries sent in the window: ok + failed + rejected
ok                int    of these, answered within the deadline
failed            int    of these, sent to a worker and not answered within the deadline
rejected          int    of these, from refused streams
"""


class Column(NamedTuple):
    """A column as the documentation shows it."""

    name: str
    type: str
    nullable: bool
    description: str


def _schema(text: str) -> pa.Schema:
    fields = []
    for line in text.strip().splitlines():
        name, kind, description = line.split(maxsplit=2)
        fields.append(
            pa.field(
                name,
                _TYPES[kind.rstrip("?")],
                nullable=kind.endswith("?"),
                metadata={"description": description},
            )
        )
    return pa.schema(fields)


STREAMS: pa.Schema = _schema(_STREAMS)
"""One row per stream, seed and policy."""

WINDOWS: pa.Schema = _schema(_WINDOWS)
"""One row per window, seed and policy."""


def describe(schema: pa.Schema) -> list[Column]:
    """Name, type, nullability and meaning of each column, in order."""
    return [
        Column(field.name, str(field.type), field.nullable, field.metadata[b"description"].decode())
        for field in schema
    ]
