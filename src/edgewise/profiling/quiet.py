"""Whether a machine was quiet while it was measured; on a busy one a law fits that is not its hardware's.

A batch then seems to take longer than its queries one by one, and capacity is a part of what it is. What
disturbs is looked for from four sides, since no one of them sees all: other processes, a host that gives its
processors to others, this thread's waiting for a core, and delays that differ from run to run.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from edgewise.profiling.law import MeasuredPoint

STAT = Path("/proc/stat")
WAITED = Path("/proc/thread-self/schedstat")
IDLE = slice(3, 5)  # columns of /proc/stat: idle, waiting for disks
USED = slice(0, 7)  # without guests, which are counted as user time already, and without the next
STOLEN = 7  # by the host of a virtual machine
MOST_CORES = 0.1  # used by other processes
MOST_STOLEN = 0.02  # of the time of all cores
MOST_WAITED = 0.05  # of the time
MOST_SPREAD = 0.15  # half the distance of the quantiles 0.16 and 0.84, relative to the median
BUSY = "on a busy machine"  # in the source of a profile


def expected(cores: int | None = None) -> str:
    """What the load of the last minute promises of a measurement, where there is no core left for it."""
    cores, load = cores or os.cpu_count() or 1, os.getloadavg()[0]
    return f"{load:.1f} processes want its {cores} cores" if load > 0.5 * cores else ""


class Watch:
    """What goes on beside this thread from now on; what /proc does not say counts as nothing."""

    def __init__(self) -> None:
        self._began, self._stolen = _others_s()
        self._waited_s, self._began_s = _waited_s(), time.perf_counter()

    def cores(self) -> float:
        """Mean number of cores that other processes used."""
        return max(_others_s()[0] - self._began, 0.0) / self._spent_s()

    def stolen(self) -> float:
        """Part of the time of all cores that the host of a virtual machine gave to others."""
        return max(_others_s()[1] - self._stolen, 0.0) / self._spent_s() / (os.cpu_count() or 1)

    def waited(self) -> float:
        """Part of the time that this thread waited for a core."""
        return max(_waited_s() - self._waited_s, 0.0) / self._spent_s()

    def _spent_s(self) -> float:
        return max(time.perf_counter() - self._began_s, 1e-9)


def disturbances(watch: Watch, points: Sequence[MeasuredPoint], slope: float) -> tuple[str, ...]:
    """What disturbed a measurement, in words; nothing where the machine was quiet.

    Args:
        points: what was measured meanwhile.
        slope: growth of the delay for each further item of a batch, as fitted.
    """
    spread, widest = max((_spread(point), point.batch) for point in points)
    found = [
        text
        for value, most, text in (
            (watch.cores(), MOST_CORES, f"other processes used {watch.cores():.1f} cores"),
            (watch.stolen(), MOST_STOLEN, f"its host took {watch.stolen():.0%} of its cores' time"),
            (
                watch.waited(),
                MOST_WAITED,
                f"the measurement waited for a core {watch.waited():.0%} of the time",
            ),
            (spread, MOST_SPREAD, f"delays of a batch of {widest} differ by ±{spread:.0%} between runs"),
        )
        if value > most
    ]
    batches = max(point.batch for point in points)
    if found and batches > 1 and slope >= 1.0:
        found.append(f"a batch of {batches} seems to take no less time than {batches} queries one by one")
    return tuple(found)


def _spread(point: MeasuredPoint) -> float:
    return 0.5 * (point.high_s - point.low_s) / point.median_s if point.median_s > 0 else 0.0


def _others_s() -> tuple[float, float]:
    """Processor time used on this machine, less that of this process and its children, and stolen, in s."""
    totals = next((line.split()[1:] for line in lines(STAT) if line.startswith("cpu ")), [])
    ticks = [int(text) for text in totals]
    if len(ticks) <= STOLEN:
        return 0.0, 0.0
    mine = os.times()
    own_s = mine.user + mine.system + mine.children_user + mine.children_system
    second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks[USED]) - sum(ticks[IDLE])) / second - own_s, ticks[STOLEN] / second


def _waited_s() -> float:
    words = " ".join(lines(WAITED)).split()
    return int(words[1]) / 1e9 if len(words) == 3 else 0.0


def lines(file: Path) -> list[str]:
    """Of a file of /proc; none where there is no such file."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
