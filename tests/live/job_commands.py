"""Jobs to submit, and a loop that keeps them, for tests."""

import time

from edgewise.runtime.controller.books import Wish

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
    began_s = time.monotonic()
    while not reached():
        assert time.monotonic() - began_s < HANG_S, [job.row() for job in jobs.book.listed()]
        jobs.look(time.time())
        time.sleep(0.01)


def state(jobs, job):
    return jobs.book.get(job.id).state
