"""Whether processes got the processor time that they asked for: what was measured without it blames nobody.

Three signs. An event loop comes late to what is due (`Lag`, also a metric of gateways and workers). Threads
that could run wait for a processor: the kernel counts that for each. And a virtual machine's host takes
processors away: "steal".
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from edgewise.runtime.metrics import DELAYS_S, ThreadHistogram
from edgewise.runtime.store import Running

PERIOD_S, KEPT = 0.02, 30_000
LATE_S = 0.02  # 95 of 100 wake-ups of an idle machine come within a thousandth of a second
# Above these a measurement says more about the machine than about a policy: the demo's shares were within
# two points of the simulated ones where threads waited for 40 to 65 % of their time, ten off at 82 %.
WAITED, STOLEN = 0.7, 0.05


class Lag:
    """How late an event loop comes to what is due.

    Args:
        name: of the process, a label of the metric.
        registry: of the metric; None for no metric.
    """

    def __init__(self, name: str, registry: CollectorRegistry | None = None) -> None:
        what = "How late the event loop came to what was due."
        self._tally = ThreadHistogram("edgewise_event_loop_lag_seconds", what, DELAYS_S, "process", [name])
        self.late_s: deque[float] = deque(maxlen=KEPT)  # the last ones
        if registry is not None:
            registry.register(self._tally)

    async def keep(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = time.monotonic() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            late_s = max(time.monotonic() - due_s, 0.0)
            self._tally.note(late_s)
            self.late_s.append(late_s)


@dataclass(frozen=True, slots=True)
class CpuTotals:
    """Totals since their beginnings: of some processes, and of the machine.

    Attributes:
        ran_s, waited_s: of all their threads: on a processor, and ready without one.
        stolen, ticks: of the machine: taken by its host, and all.
    """

    ran_s: float
    waited_s: float
    stolen: float
    ticks: float


def look(numbers: Sequence[int]) -> CpuTotals:
    """CpuTotals at processes by their numbers; zeros where the system does not tell."""
    ran_ns = waited_ns = 0
    for number in numbers:
        for file in Path(f"/proc/{number}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                ran, waited, _ = map(int, file.read_text().split())
                ran_ns, waited_ns = ran_ns + ran, waited_ns + waited
    stat = Path("/proc/stat")
    ticks = [float(n) for n in stat.read_text().split("\n", 1)[0].split()[1:9]] if stat.is_file() else []
    return CpuTotals(ran_ns / 1e9, waited_ns / 1e9, ticks[7] if len(ticks) > 7 else 0.0, sum(ticks))


def numbers_of(rows: Sequence[Running]) -> list[int]:
    """Processes of a live system on this machine, and this one."""
    return [os.getpid(), *(int(row.handle.split(":")[0]) for row in rows if row.handle)]


@dataclass(slots=True)
class Watched:
    """What was seen of processes: why what they measured says little, None where they got their time."""

    busy: str | None = None


@asynccontextmanager
async def watched(numbers: Sequence[int]) -> AsyncIterator[Watched]:
    """Watch processes, and the event loop that this runs in, and say at the end whether they were starved."""
    found, lag, before = Watched(), Lag("clients"), look(numbers)
    keeping = asyncio.create_task(lag.keep())
    try:
        yield found
    finally:
        keeping.cancel()
        found.busy = starved(before, look(numbers), lag.late_s)


def starved(before: CpuTotals, after: CpuTotals, late_s: Iterable[float]) -> str | None:
    """Why what was measured between two looks says little; None where the processes got their time.

    Args:
        late_s: how late the event loop of whoever measured came.
    """
    ran_s, waited_s = after.ran_s - before.ran_s, after.waited_s - before.waited_s
    waited = waited_s / max(ran_s + waited_s, 1e-9)
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
