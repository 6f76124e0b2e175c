"""What a live system leaves behind stays bounded: records, closed streams, ended jobs, logs, what jobs write.

A process whose start was not written down, as the controller died in between, is ended here: whoever starts
for its port ends it as well, but nobody may want one there any more.

Rows of what is open are never touched. A log is begun anew when it is large; the process that writes it goes
on in the same file, so what it writes between the copy and the cut is lost.
"""

import asyncio
import logging
from pathlib import Path

from edgewise.runtime import clock, disk
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.process.machine import ThisMachine, handle_of
from edgewise.runtime.process.places import holders
from edgewise.runtime.store import Store
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.watch.logs import SaidOnce, begin_anew

log = logging.getLogger("edgewise.upkeep")
OLDEST_S = 30 * 86400.0  # of rows and of logs
MOST_STREAMS, MOST_JOBS = 50_000, 5_000  # that are closed or have ended; the latest are kept
MOST_REQUESTS, MOST_FAULTS = 200_000, 10_000  # that can be recorded
MOST_WINDOWS, MOST_SPANS = 20_000, 100_000  # of gateways; in which somebody held something
LOG_BYTES, LOGS = 10 * 2**20, 3  # of a process's log, and how many of them, the present one included
OUTPUT_BYTES, OUTPUTS = 64 * 2**20, 2  # the same of what a job writes


class Upkeep:
    """Tidies the folder of a live system."""

    def __init__(self, store: SteadyStore, jobs: LiveJobs) -> None:
        self._store, self._jobs, self._going_on = store, jobs, SaidOnce(log, "upkeep")

    async def go_on(self) -> None:
        """One pass."""
        with self._going_on():
            if not self._store.trouble:  # else what was started may be written down later
                end_lost(self._store)
            forget(self._store, self._jobs, clock.unix_s())
            await asyncio.to_thread(shorten, self._store.file.parent, clock.unix_s())


def end_lost(store: Store) -> None:
    """End what holds a port of this system on this machine and is in no row of its store.

    For the controller alone, between its own starts: each is written down before it does anything else.
    """
    machine, known = ThisMachine(), store.handles()
    for port, number in holders(store.file.parent).items():
        handle = handle_of(number)
        if handle not in known and machine.alive(handle):
            log.warning("lost start ended", extra={"port": port, "handle": handle})
            machine.stop(handle, force=True)


def forget(
    store: Store, jobs: LiveJobs, now_s: float, streams: int = MOST_STREAMS, kept: int = MOST_JOBS
) -> None:
    """Forget streams and jobs that are over, but for the latest `streams`, and `kept` of the jobs."""
    store.records.purge_streams(streams, now_s - OLDEST_S)
    store.records.purge("request", MOST_REQUESTS)
    store.records.purge("fault", MOST_FAULTS)
    store.records.purge("stream_window", MOST_WINDOWS)
    store.records.purge("hold", MOST_SPANS)
    jobs.forget(kept, now_s - OLDEST_S)


def shorten(folder: Path, now_s: float, log_bytes: int = LOG_BYTES, output_bytes: int = OUTPUT_BYTES) -> None:
    """Begin large logs and outputs anew, and remove logs that nobody has written for long."""
    for file in (folder / "logs").glob("*.log"):
        begin_anew(file, log_bytes, LOGS)
    for file in (folder / "logs").glob("*.log*"):
        if now_s - file.stat().st_mtime > OLDEST_S:
            disk.remove(file)
    for file in (folder / "jobs").glob("*/output"):
        begin_anew(file, output_bytes, OUTPUTS)
