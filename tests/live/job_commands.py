"""Jobs to submit, and a loop that keeps them, for tests."""

import os
import signal
import subprocess
import time

from edgewise.runtime.store.jobs import Wish
from waiting import wait_until

HANG_S = 60.0


def wish(command, key="", **changes):
    now_s = time.time()
    stated = {
        "cores": 1.0, "memory_bytes": 0.0, "duration_s": 600.0, "earliest_s": now_s,
        "latest_s": now_s + 600.0, "priority": 0,
    } | changes  # fmt: skip
    return Wish(key or f"{now_s}-{command}", tuple(command), "/", **stated)


def shell(text, **changes):
    return wish(["/bin/sh", "-c", text], **changes)


def until(jobs, reached):
    """Steps until `reached()`; fails when that takes for ever."""

    def looked():
        return reached() or jobs.look(time.time())

    wait_until(looked, lambda: [job.row() for job in jobs.book.listed()], HANG_S)


BEATS = "while true; do echo x >> {}; sleep 0.02; done"  # of a job that is seen to go on


def stands_still(beats, count=10):
    """Whether nothing came to a file while a job like its own, beside it, wrote so many lines."""
    beside = beats.with_name("beside")
    beside.touch()
    size, lines = beats.stat().st_size, beside.stat().st_size
    with subprocess.Popen(["/bin/sh", "-c", BEATS.format(beside)], start_new_session=True) as process:
        wait_until(lambda: beside.stat().st_size >= lines + 2 * count)
        os.killpg(process.pid, signal.SIGKILL)
    return beats.stat().st_size == size


def state(jobs, job):
    return jobs.book.get(job.id).state
