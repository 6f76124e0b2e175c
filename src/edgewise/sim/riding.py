"""Requests and streams over the links of one run, where nobody else waits for messages: one compiled loop."""

from __future__ import annotations

import numpy as np

from edgewise.core.compiled import kernel
from edgewise.core.dispatch.state import Ways
from edgewise.core.held import held
from edgewise.sim.links.riders import OnWire
from edgewise.sim.request_loop import LINKS, THERE, go_on
from edgewise.sim.request_state import RequestRun
from edgewise.sim.streams.queues import Streams, Tally, Workers
from edgewise.sim.streams.shared import OnLinks, serve_until


@kernel
def ride(
    x: RequestRun, on: OnWire, to_s: float, until_s: float, s: Streams, carried: OnLinks, workers: Workers,
    ways: Ways, seed: np.uint64, tally: Tally,
) -> int:  # fmt: skip
    """`go_on` to `to_s`; streams send and links pass on as far as it needs that, though not to `until_s`."""
    x, on, carried, workers = held(x), held(on), held(carried), held(workers)
    while True:
        stop, next_s = go_on(x, on, to_s), x.clock[0].next_s
        pass_s = np.nextafter(max(next_s, on.now_s[0]), np.inf)
        if stop != THERE or next_s >= to_s or pass_s >= until_s:
            return stop
        on.now_s[0] = pass_s
        if not serve_until(pass_s, s, carried, workers, ways, seed, tally):
            return LINKS
