"""What the controller answers about deferrable jobs; a token guards it, for jobs are commands.

GET    /v1/admin/jobs                every job, oldest first
POST   /v1/admin/jobs                submit one; kept before the answer, the same `key` is the same job
GET    /v1/admin/jobs/{id}           one job
DELETE /v1/admin/jobs/{id}           end it, or never start it
GET    /v1/admin/jobs/{id}/output    the last of what it wrote
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError, ProtocolError
from edgewise.runtime import http
from edgewise.runtime.controller.job_book import PAUSE, RESTART, Job, Wish
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.logs import end_of
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.protocol.stated import number, stated_in, text

MOST_OUTPUT_BYTES = 1_000_000
HIGHEST_PRIORITY = 100


def answer(jobs: LiveJobs, request: http.HttpRequest) -> http.Response:
    """Answer a request about jobs.

    Raises:
        ProtocolError: it cannot be done; says why.
    """
    match request.method, request.parts[2:]:
        case "GET", ["jobs"]:
            return http.as_json([job.row() for job in jobs.book.listed()])
        case "POST", ["jobs"]:
            return http.as_json(_submit(jobs, request.body).row())
        case "GET", ["jobs", number]:
            return http.as_json(_find(jobs, number).row())
        case "DELETE", ["jobs", number]:
            jobs.book.cancel(_find(jobs, number).id)
            return http.as_json(_find(jobs, number).row())
        case "GET", ["jobs", number, "output"]:
            return http.as_json(_output(jobs, _find(jobs, number)))
    return unanswered(request, "controller")


def _find(jobs: LiveJobs, number: str) -> Job:
    job = jobs.book.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 19 else None
    if job is None:
        raise ProtocolError(f"no job {number[:80]!r}", status=404)
    return job


def _output(jobs: LiveJobs, job: Job) -> dict[str, Any]:
    size, end = end_of(jobs.processes.output(job.id), MOST_OUTPUT_BYTES)
    return {"id": job.id, "state": job.state, "bytes": size, "output": end.decode(errors="replace")}


def _submit(jobs: LiveJobs, body: bytes) -> Job:
    wish = to_wish(stated_in(body, "key, command, folder and duration_s"), time.time(), jobs.slot_s)
    try:
        _check_room(jobs, wish)
    except ProtocolError:
        raise
    except EdgewiseError as error:
        raise ProtocolError(str(error), status=409) from error
    return jobs.book.submit(wish)


def to_wish(stated: dict[str, Any], now_s: float, slot_s: float) -> Wish:
    """A job as it was stated, checked.

    Raises:
        ProtocolError: names the field, what it holds and what it should.
    """
    command = stated.get("command")
    if not isinstance(command, list) or not command:
        raise ProtocolError('command: a list of texts is needed, as ["python", "job.py"]')
    earliest_s = max(number(stated.get("earliest_s", now_s), "earliest_s"), now_s)
    latest_s = number(stated.get("latest_s", earliest_s + 3600.0), "latest_s")
    if latest_s < earliest_s + slot_s:
        raise ProtocolError(
            f"latest_s: is {latest_s - earliest_s:.3f} s after the earliest start; "
            f"at least {slot_s:g} s are needed, for jobs start at the beginning of slots"
        )
    priority = number(stated.get("priority", 0), "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    when_evicted = stated.get("when_evicted", PAUSE)
    if when_evicted not in (PAUSE, RESTART):
        raise ProtocolError(f"when_evicted: {str(when_evicted)[:80]!r} is neither {PAUSE} nor {RESTART}")
    folder = text(stated.get("folder"), "folder")
    if not Path(folder).is_absolute():
        raise ProtocolError(f"folder: {folder[:200]!r} is relative to nothing; write it from / on")
    return Wish(
        key=text(stated.get("key"), "key"),
        command=tuple(text(part, "command", least=0) for part in command), folder=folder,
        cores=number(stated.get("cores", 1.0), "cores", least=0.01),
        memory_bytes=number(stated.get("memory_bytes", 0.0), "memory_bytes"),
        duration_s=number(stated.get("duration_s"), "duration_s", least=0.1), when_evicted=when_evicted,
        earliest_s=earliest_s, latest_s=latest_s, priority=int(priority),
    )  # fmt: skip


def _check_room(jobs: LiveJobs, wish: Wish) -> None:
    """Refuse what no node could ever hold, were it empty."""
    nodes = jobs.plane.scenario.topology.nodes
    if any(
        wish.cores <= node.resources.cpu_cores and wish.memory_bytes <= node.resources.memory_bytes
        for node in nodes
    ):
        return
    largest = max(nodes, key=lambda node: node.resources.cpu_cores)
    raise ProtocolError(
        f"cores: {wish.cores:g} cores and {wish.memory_bytes:g} bytes of memory fit on no node; the largest, "
        f"{largest.name}, has {largest.resources.cpu_cores:g} and {largest.resources.memory_bytes:g}"
    )
