"""Messages between gateways and workers that are under way, by time of arrival, then as they were sent."""

from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints, Records, records
from edgewise.core.grant_rules import Told
from edgewise.kernels.compiled import inner
from edgewise.sim.heap import drop_first, rise

ASK, GIVE_BACK, ANSWER, RENEWAL, ANSWERS = range(5)  # kinds of messages
# place: the worker, or the cluster of all. qps: what is asked for, or the load of others.
# first, last: what is told, in `Mail.told`. there, until: whose answers, in `Mail.there`.
MESSAGE = np.dtype(
    [("at_s", np.float64), ("qps", np.float64)]
    + [(name, np.int64) for name in ("order", "kind", "site", "place", "stream", "refused")]
    + [(name, np.int64) for name in ("first", "last", "there", "until")]
)
COUNT, NUMBER, TOLD, THERE, RENEWALS, RENEWED, HEARING, ROW, AT = range(9)  # in `Mail.figures`


class Mail(NamedTuple):
    """What is under way; kernels write to it.

    Attributes:
        heap: (M,) MESSAGE, the next first. taken: (1,) the one that is being delivered.
        figures: (9,) COUNT of the heap; NUMBER of the next message; entries of TOLD and THERE in use;
            RENEWALS, and answers to them, that are under way; RENEWED how often; HEARING whether there is
            more in `taken`, from ROW of there and AT of told on.
        told: (K,) what renewals tell.
        there, others_qps: (V,) workers that answer renewals, and what others have there.
    """

    heap: Any
    taken: Any
    figures: Ints
    told: Told
    there: Ints
    others_qps: Floats

    @classmethod
    def none(cls, messages: int, told: int, there: int) -> "Mail":
        """Nothing is under way; room for so much."""
        whole = np.zeros((3, max(told, there)), dtype=np.int64)
        entries = Told(
            whole[0, :told].copy(),
            whole[1, :told].copy(),
            np.zeros(told),
            np.zeros(told, dtype=np.bool_),
        )
        heap: Records = records((messages,), MESSAGE)
        figures = np.zeros(9, dtype=np.int64)
        return cls(heap, records((1,), MESSAGE), figures, entries, whole[2, :there].copy(), np.zeros(there))

    def doubled(self) -> "Mail":
        """The same with twice the room."""
        more = Mail.none(2 * self.heap.size, 2 * self.told.stream.size, 2 * self.there.size)
        for old, new in zip(
            (*self[:3], *self.told, *self[4:]), (*more[:3], *more.told, *more[4:]), strict=True
        ):
            new[: old.size] = old
        return more


@inner
def post(x: Mail, at_s: float) -> int:
    """Put a message that arrives then into the heap, which has room; returns where it is to be written."""
    at = rise(x.heap, x.figures[COUNT], at_s, x.figures[NUMBER])
    x.figures[COUNT] += 1
    x.figures[NUMBER] += 1
    return at


@inner
def take(x: Mail) -> None:
    """Move the next message from the heap to `taken`."""
    x.taken[0] = x.heap[0]
    x.figures[COUNT] -= 1
    drop_first(x.heap, x.figures[COUNT])
