"""What gateways at sites know, have granted and have under way, as arrays for one compiled loop."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.dispatch.state import Weights
from edgewise.core.dispatch.views import Rows
from edgewise.core.grant_rules import Granted
from edgewise.sim.streams.mail import Mail

BOUND, REFUSED, LEFT, CLOSED, OVER, HEARD = range(6)  # what is written down
PLAYED, DECIDE, FULL, UNREAD = range(4)  # why the loop ends
GOING, COMING, ARRIVING, RENEWING = range(4)  # what happens, in this order at one time
UNDECIDED = -9
FIRST, LAST = 0, 1  # rows of `SiteDesks.ends`
BEFORE, AFTER = 0, 1  # rows of `SiteDesks.beside`
WRITTEN, QUESTIONS, REFUSALS, PLACE, CARRIED = range(5)  # in `SiteDesks.figures`


class Cores(NamedTuple):
    """States of the cores of S sites; a core's own arrays are rows of these.

    Attributes:
        real, whole, up, ways, link, path, measured_s, seed: (S, …) each as of `State`.
        score: (S,) which of the scores decides; -1: Python does.
        now_s: (S,) of the last event that each has handled.
    """

    real: Floats
    whole: Ints
    up: Bools
    ways: Any
    link: Floats
    path: Ints
    measured_s: Floats
    seed: np.uint64
    score: Ints
    now_s: Floats


class SiteDesks(NamedTuple):
    """What gateways know of their streams, and what they have done since it was read.

    Attributes:
        worker: (N,) where a stream is bound, -1 nowhere.
        why: (N,) why it was refused last.
        open: (N,) whether it is.
        had: (N,) whether it had a worker.
        held: (N,) who has granted it.
        again: (N,) whether it is decided anew while it is refused.
        beside: (2, N) the stream of its site that was bound BEFORE and AFTER it.
        ends: (2, S) the first stream of a site, and the last.
        others_qps: (S, W) load of others at each worker, as a gateway has heard.
        requests_qps: (S, W) load of its requests, as it has measured.
        time_s, what, qps: (L, …) done when; what, site, stream, worker, reason; and at which rate.
        figures: WRITTEN entries of these; QUESTIONS that policies answered; REFUSALS by workers; PLACE of the
            decision that the loop waits for: its stream; CARRIED are the entries that are carried out.
        all_heard: HEARD is written too.
    """

    worker: Ints
    why: NDArray[np.int8]
    open: Bools
    had: Bools
    held: Ints
    again: Bools
    beside: Ints
    ends: Ints
    others_qps: Floats
    requests_qps: Floats
    time_s: Floats
    what: Ints
    qps: Floats
    figures: Ints
    all_heard: bool


class SiteArrays(NamedTuple):
    """The whole: what the loop works on.

    Attributes:
        cores: of the gateways.
        desks: of the sites.
        granted: what workers have granted to them.
        mail: messages between gateways and workers.
        rows: streams.
        room: to weigh them.
        delay_s: (S, C) one way.
        alive: (W,) whether a worker is, in truth.
        renewals: so many there are in all.
    """

    cores: Cores
    desks: SiteDesks
    granted: Granted
    mail: Mail
    rows: Rows
    room: Weights
    delay_s: Floats
    alive: Bools
    renewals: int
