"""What is true of streams and workers in a simulation: the arrays that its kernels work on.

Forbidden here: rules, and what a policy may see.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints

OK, FAILED, REJECTED = 0, 1, 2  # rows of the tally
FRESH, WAITING, ENDED = 0, 1, 2  # no query made yet; one is made and not yet counted; none will come


def _records(**columns: type) -> np.dtype[Any]:
    return np.dtype([(name, kind) for name, kind in columns.items()], align=True)


# Truth about a stream. What it needs; its next query (sent, arrival at the worker, way home, arrival of the
# one before); how many workers were lost with it; and what became of its queries. A request at a worker is a
# stream of one query that says itself how long it takes alone: that is its size, but below 0. It is rejected
# where it cannot begin by `deadline_s`. When it ends, or is rejected, is `delay_max_s` once that is known.
STREAM = _records(
    id=np.int64, site=np.int64, application=np.int64, poisson=np.int64, close_s=np.float64,
    rate_qps=np.float64, size_bytes=np.float64, deadline_s=np.float64, from_s=np.float64,
    answer_bytes=np.float64, state=np.int64, number=np.int64, sent_s=np.float64, arrival_s=np.float64,
    back_s=np.float64, before_s=np.float64, lost=np.int64,
    ok=np.int64, failed=np.int64, rejected=np.int64, answered=np.int64, delay_sum_s=np.float64,
    delay_max_s=np.float64,
)  # fmt: skip

# Truth about a worker. Its profile; whether it is dead; when it fails next, or failed last, and when gateways
# hear of that; how many queries of a batch it holds and
# how many streams send to it; what it measured in this telemetry period; and for how long its servers worked.
WORKER = _records(
    cluster=np.int64, fixed_s=np.float64, per_byte_s=np.float64, batch_slope=np.float64,
    deviation=np.float64, law=np.int64, max_batch=np.int64, timeout_s=np.float64, servers=np.int64,
    dead=np.int64, down_s=np.float64, news_s=np.float64, held=np.int64, attached=np.int64,
    answered=np.int64, delay_sum_s=np.float64, batches=np.int64, busy_s=np.float64,
)  # fmt: skip

# Free again when; its queries until then; how many of them telemetry has yet to count as answered.
SERVER = _records(free_s=np.float64, serving=np.int64, uncounted=np.int64)
# A query in the batch being gathered; slot: of the message, where links are shared.
HELD = _records(
    stream=np.int64, number=np.int64, sent_s=np.float64, arrival_s=np.float64, back_s=np.float64,
    slot=np.int64,
)  # fmt: skip
# A stream at a worker, by when its next query arrives there, then by its number, which `order` is.
MEMBER = _records(at_s=np.float64, order=np.int64)
# A query that was lost with a worker, of which its gateway has yet to hear; lost: how many were with it.
LOST = _records(
    stream=np.int64, number=np.int64, sent_s=np.float64, worker=np.int64, lost=np.int64,
)  # fmt: skip

# Arrays of the records above; one array is one cache line or two where fields used to be many.
Streams = Any  # (N,) STREAM


class Workers(NamedTuple):
    """Truth about W workers.

    Attributes:
        each: (W,) WORKER.
        servers: (W, most servers) SERVER.
        batch: (W, largest batch) HELD.
        members: (W, room) MEMBER, streams with a query on its way or waiting; a heap.
        histogram: (W, bins) sojourns of this telemetry period.
        sojourn_s: (W, most servers, largest batch) of the queries that are not counted yet: a batch is
            worked out when it starts, and nobody can measure its answers before it ends.
        lost: (room,) LOST.
        many: (1,) how many of `lost` there are.
    """

    each: Any
    servers: Any
    batch: Any
    members: Any
    histogram: Ints
    sojourn_s: Floats
    lost: Any
    many: Ints


class Tally(NamedTuple):
    """What became of queries.

    queries: (3, windows) ok, failed and rejected ones, by the window they were sent in.
    delays: (A, DELAY_CELLS) answers of each application by their delay, see `delay_cell`.
    """

    window_s: float
    queries: Ints
    delays: Ints
