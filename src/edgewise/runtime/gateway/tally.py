"""What a gateway did with streams, and saw of workers and ways, window by window: for the records of the run.

A query counts in the window in which it was sent. Windows are handed out as they are until they are written
down, so what is lost with this process is what came since. Forbidden here: clocks and I/O.
"""

import struct
from typing import NamedTuple

from edgewise.core.sojourns import FINE_BITS
from edgewise.runtime.store.records import COUNTS, Window

MOST, OTHERS = 100, "(others)"  # applications of a window that are told apart, and what all others are called
KEPT = 8  # windows in which late answers still count; those of older ones count in the oldest of these
UNWRITTEN = 64  # windows that are kept where nobody writes them down
_PLACE = {name: k for k, name in enumerate(COUNTS)}
_AS_FLOAT, _AS_INT = struct.Struct("<d"), struct.Struct("<q")


class _Counts(NamedTuple):
    counts: dict[str, list[int]]
    delays: dict[tuple[str, str], dict[int, int]]
    worked: dict[tuple[str, float], tuple[float, float]]  # by process and when it began: before, and since
    sent: dict[tuple[str, str], tuple[int, int]]  # by site and cluster: bytes there, and back


def cell_of(delay_s: float) -> int:
    """Cell of a delay, of which the longest is 3 % longer than the shortest."""
    bits: int = _AS_INT.unpack(_AS_FLOAT.pack(delay_s))[0]
    return bits >> FINE_BITS


class StreamTally:
    """Counts of the latest windows.

    Args:
        window_s: length of one.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._windows: dict[int, _Counts] = {}
        self._changed: set[int] = set()
        self._worked: dict[str, tuple[float, float]] = {}  # when a process began, and what it said last

    def opened(self, now_s: float, task: str, bound: bool) -> None:
        """A stream was opened, and has a worker or has none."""
        counts = self._counts(now_s, task)
        counts[_PLACE["streams_opened"]] += 1
        counts[_PLACE["streams_bound" if bound else "streams_refused"]] += 1

    def query(self, sent_s: float, task: str, outcome: str) -> None:
        """A query of a stream is over: "ok", "failed" or "rejected"."""
        self._counts(sent_s, task)[_PLACE[outcome]] += 1

    def answered(self, sent_s: float, task: str, application: str, delay_s: float) -> None:
        """A query was answered after so long."""
        delays, key = self._at(sent_s).delays, (task, application)
        if (cells := delays.get(key)) is None:
            cells = delays.setdefault(key if len(delays) < MOST else (task, OTHERS), {})
        cell = cell_of(delay_s)
        cells[cell] = cells.get(cell, 0) + 1

    def worked(self, now_s: float, process: str, began_s: float, busy_s: float) -> None:
        """A worker was looked at, and had worked so long since it began.

        What was not known of it before was not seen from here. One that did nothing makes no window.
        """
        was_s, before_s = self._worked.get(process, (began_s, busy_s))
        if was_s != began_s:  # it began anew since it was looked at
            before_s = 0.0
        self._worked[process] = began_s, busy_s
        if busy_s == before_s and int(now_s // self._window_s) not in self._windows:
            return
        worked = self._at(now_s).worked
        worked[process, began_s] = worked.get((process, began_s), (before_s,))[0], busy_s

    def sent(self, now_s: float, site: str, cluster: str, there_bytes: int, back_bytes: int) -> None:
        """A message went from a site to a cluster, and its answer came back."""
        sent = self._at(now_s).sent
        there, back = sent.get((site, cluster), (0, 0))
        sent[site, cluster] = there + there_bytes, back + back_bytes

    def changed(self, began_s: float, gateway: str, life_s: float, policy: str) -> list[Window]:
        """Windows in which something has changed since they were written down.

        Args:
            began_s: Unix time at which the windows count from.
            gateway, life_s, policy: see `Window`.
        """
        return [self._row(k, began_s, gateway, life_s, policy) for k in sorted(self._changed)]

    def written(self) -> None:
        """They were, as they are now."""
        self._changed = set()
        self._forget(KEPT)

    def _forget(self, most: int) -> None:
        for k in sorted(self._windows)[:-most]:
            del self._windows[k]
            self._changed.discard(k)

    def _row(self, k: int, began_s: float, gateway: str, life_s: float, policy: str) -> Window:
        window = self._windows[k]
        delays: dict[str, dict[str, dict[str, int]]] = {}
        for (task, application), cells in window.delays.items():
            of = delays.setdefault(task, {})
            of[application] = {str(cell): count for cell, count in cells.items()}
        counts = {task: list(each) for task, each in window.counts.items()}
        worked = [(*key, *spent_s) for key, spent_s in window.worked.items()]
        sent: dict[str, dict[str, tuple[int, int]]] = {}
        for (site, cluster), sizes in window.sent.items():
            sent.setdefault(site, {})[cluster] = sizes
        return Window(began_s + k * self._window_s, gateway, life_s, policy, counts, delays, worked, sent)

    def _counts(self, at_s: float, task: str) -> list[int]:
        counts = self._at(at_s).counts
        if (found := counts.get(task)) is None:
            found = counts[task] = [0] * len(COUNTS)
        return found

    def _at(self, at_s: float) -> _Counts:
        k = int(at_s // self._window_s)
        window = self._windows.get(k)
        if window is None:
            if self._windows and k < min(self._windows):
                k = min(self._windows)
            window = self._windows.setdefault(k, _Counts({}, {}, {}, {}))
            self._forget(UNWRITTEN)
        self._changed.add(k)
        return window
