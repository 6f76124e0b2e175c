"""Requests and streams over the links of one run, where nobody else waits for messages: one compiled loop."""

from __future__ import annotations

import numpy as np

from edgewise.core.compiled import held, kernel
from edgewise.core.dispatch.state import Ways
from edgewise.sim.links.riders import OnWire
from edgewise.sim.requests.loop import LINKS, THERE, go_on
from edgewise.sim.requests.state import RequestRun
from edgewise.sim.streams.lines import OnLinks
from edgewise.sim.streams.queues import Streams, Tally, Workers
from edgewise.sim.streams.shared import serve_until


@kernel
def ride(
    x: RequestRun, on: OnWire, to_s: float,
    given: tuple[Streams, OnLinks, Workers, Ways, np.uint64, Tally],
) -> int:  # fmt: skip
    """`go_on` to `to_s`; streams send and links pass on as far as it needs that.

    Args:
        given: what `serve_until` works on.
    """
    s, carried, workers, ways, seed, tally = given
    x, on, carried, workers = held(x), held(on), held(carried), held(workers)
    while True:
        stop, next_s = go_on(x, on, to_s), x.clock[0].next_s
        pass_s = np.nextafter(max(next_s, on.now_s[0]), np.inf)
        if stop != THERE or next_s >= to_s:
            return stop
        on.now_s[0] = pass_s
        if not serve_until(pass_s, s, carried, workers, ways, seed, tally):
            return LINKS
