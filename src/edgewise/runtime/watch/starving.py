"""Whether processes got the processor time that they need.

What was measured without processor time blames nobody. Three signs. An event loop comes late to what is due
(`Lag`, also a metric of gateways and workers). Threads that could run wait for a processor: the kernel counts
that for each. And a virtual machine's host takes processors away: "steal".
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from edgewise.runtime import clock
from edgewise.runtime.store import Running
from edgewise.runtime.watch.histograms import DELAYS_S, histograms

# Of gateways and workers, many of which share a machine: 0.02 was a third of an idle worker.
OWN_PERIOD_S = 0.25
CLOSELY_S, KEPT = 0.02, 30_000  # of who measures others
PROC, IDLE = Path("/proc"), slice(3, 5)  # columns of its `stat`: idle, waiting for disks
LATE_S = 0.02  # 95 of 100 wake-ups of an idle machine come within a thousandth of a second
# Above these a measurement says more about the machine than about a policy: the demo's shares were within
# two points of the simulated ones where threads waited for 40 to 65 % of their time, ten off at 82 %.
WAITED, STOLEN = 0.7, 0.05


class Lag:
    """How late an event loop comes to what is due.

    Args:
        name: of the process, a label of the metric.
        registry: of the metric; None for no metric.
        period_s: between two wake-ups.
    """

    def __init__(
        self, name: str, registry: CollectorRegistry | None = None, period_s: float = OWN_PERIOD_S
    ) -> None:
        what = "How late the event loop came to what was due."
        (self._lag,) = histograms(
            "edgewise_event_loop_lag_seconds", what, DELAYS_S, "process", [name], registry
        )
        self._period_s = period_s
        self.late_s: deque[float] = deque(maxlen=KEPT)  # the last ones

    async def keep(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = clock.monotonic_s() + self._period_s
            await asyncio.sleep(self._period_s)
            late_s = max(clock.monotonic_s() - due_s, 0.0)
            self._lag.observe(late_s)
            self.late_s.append(late_s)


@dataclass(frozen=True, slots=True)
class CpuTotals:
    """Totals since their beginnings: of some processes, and of the machine.

    Attributes:
        ran_s, waited_s: of all their threads: on a processor, and ready without one.
        stolen, ticks, idle: of the machine: taken by its host, all, and those that nobody used.
        turns: how often a thread was given a processor.
    """

    ran_s: float
    waited_s: float
    stolen: float
    ticks: float
    idle: float = 0.0
    turns: int = 0


def look(numbers: Sequence[int], proc: Path = PROC) -> CpuTotals:
    """CpuTotals at processes by their numbers; zeros where the system does not tell."""
    ran_ns = waited_ns = turns = 0
    for number in numbers:
        for file in (proc / f"{number}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                ran, waited, given = map(int, file.read_text().split())
                ran_ns, waited_ns, turns = ran_ns + ran, waited_ns + waited, turns + given
    stat = proc / "stat"
    ticks = [float(n) for n in stat.read_text().split("\n", 1)[0].split()[1:9]] if stat.is_file() else []
    stolen = ticks[7] if len(ticks) > 7 else 0.0
    return CpuTotals(ran_ns / 1e9, waited_ns / 1e9, stolen, sum(ticks), sum(ticks[IDLE]), turns)


@dataclass(slots=True)
class Watched:
    """What was seen of processes.

    Attributes:
        busy: why what they measured says little, None where they got their time.
        waited: share of the time that their threads could have run in which they waited for a processor.
    """

    busy: str | None = None
    waited: float = 0.0


@asynccontextmanager
async def watched(rows: Sequence[Running]) -> AsyncIterator[Watched]:
    """Watch processes of a live system on this machine, this one, and the event loop that this runs in.

    At the end it says whether they were starved.
    """
    handles = [row.handle.split(":")[0] for row in rows if row.handle]
    numbers = [os.getpid(), *(int(each) for each in handles if each.isdigit())]  # others run elsewhere
    found, lag, before = Watched(), Lag("clients", period_s=CLOSELY_S), look(numbers)
    keeping = asyncio.create_task(lag.keep())
    try:
        yield found
    finally:
        keeping.cancel()
        after = look(numbers)
        found.busy, found.waited = starved(before, after, lag.late_s), waited_share(before, after)


def waited_share(before: CpuTotals, after: CpuTotals) -> float:
    """Share of the time that threads could have run, between two looks, in which they waited to."""
    ran_s, waited_s = after.ran_s - before.ran_s, after.waited_s - before.waited_s
    return waited_s / max(ran_s + waited_s, 1e-9)


def starved(before: CpuTotals, after: CpuTotals, late_s: Iterable[float]) -> str | None:
    """Why what was measured between two looks says little; None where the processes got their time.

    Args:
        late_s: how late the event loop of whoever measured came.
    """
    waited = waited_share(before, after)
    stolen = (after.stolen - before.stolen) / max(after.ticks - before.ticks, 1e-9)
    ordered = sorted(late_s)
    late = ordered[int(0.95 * len(ordered))] if ordered else 0.0
    signs = []
    if waited > WAITED:
        signs.append(f"its processes waited {100 * waited:.0f} % of the time that they could have run")
    if stolen > STOLEN:
        signs.append(f"the host took {100 * stolen:.0f} % of the processors")
    if late > LATE_S:
        signs.append(f"the clients' event loop came {1e3 * late:.0f} ms late")
    return f"this machine was too busy: {', '.join(signs)}" if signs else None
