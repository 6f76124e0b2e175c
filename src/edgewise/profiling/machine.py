"""The machine that is measured on: its processor, and who else uses it."""

from __future__ import annotations

import os
import platform
import time
from datetime import UTC, datetime
from pathlib import Path

import onnxruntime

CPUINFO = Path("/proc/cpuinfo")
STAT = Path("/proc/stat")
IDLE = slice(3, 5)  # columns of /proc/stat: idle, waiting for disks
USED = slice(0, 8)  # without guests, which are counted as user time already


def source(threads: int) -> str:
    """Where and when: "measured on <processor>, N threads, onnxruntime X, date"."""
    plural = "thread" if threads == 1 else "threads"
    today = datetime.now(UTC).date().isoformat()
    return f"measured on {processor()}, {threads} {plural}, onnxruntime {onnxruntime.__version__}, {today}"


def processor() -> str:
    """Name of this machine's processor."""
    names = [line.partition(":")[2].strip() for line in _lines(CPUINFO) if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class Others:
    """Cores that other processes use from now on; a disturbed measurement is worth little."""

    def __init__(self) -> None:
        self._started_s, self._began = time.perf_counter(), _others_s()

    def cores(self) -> float:
        """Mean number of cores used by others since the start; 0 where /proc does not say."""
        spent_s = time.perf_counter() - self._started_s
        return max(_others_s() - self._began, 0.0) / spent_s if spent_s > 0 else 0.0


def _others_s() -> float:
    """Processor time used on this machine, less that of this process and its children, in s."""
    totals = next((line.split()[1:] for line in _lines(STAT) if line.startswith("cpu ")), [])
    ticks = [int(text) for text in totals]
    mine = os.times()
    own_s = mine.user + mine.system + mine.children_user + mine.children_system
    return (sum(ticks[USED]) - sum(ticks[IDLE])) / os.sysconf("SC_CLK_TCK") - own_s if ticks else 0.0


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
