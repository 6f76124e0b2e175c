"""What the controller answers about deferrable jobs; a token guards it, for jobs are commands.

GET    /v1/admin/jobs                every job, oldest first
POST   /v1/admin/jobs                submit one; kept before the answer, the same `key` is the same job
GET    /v1/admin/jobs/{id}           one job
DELETE /v1/admin/jobs/{id}           end it, or never start it
GET    /v1/admin/jobs/{id}/output    the last of what it wrote
GET    /v1/admin/job-policy          PUT {"policy": name}: which decides when jobs start
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from edgewise.errors import EdgewiseError, PolicyError, ProtocolError
from edgewise.policies import defer
from edgewise.runtime import http
from edgewise.runtime.controller.job_book import PAUSE, RESTART, Job, Wish
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.gateway.admin import field
from edgewise.runtime.http.messages import not_allowed
from edgewise.runtime.logs import end_of
from edgewise.runtime.store import is_text

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
        case "GET", ["job-policy"]:
            return http.as_json(_policy(jobs))
        case "PUT", ["job-policy"]:
            return _use(jobs, field(request.body, "policy"))
        case "GET", ["jobs", number]:
            return http.as_json(_find(jobs, number).row())
        case "DELETE", ["jobs", number]:
            jobs.book.cancel(_find(jobs, number).id)
            return http.as_json(_find(jobs, number).row())
        case "GET", ["jobs", number, "output"]:
            return http.as_json(_output(jobs, _find(jobs, number)))
        case _, ["jobs"]:
            return not_allowed(f"{request.path} takes GET and POST", "GET", "POST")
        case _, ["job-policy"]:
            return not_allowed(f"{request.path} takes GET and PUT", "GET", "PUT")
        case _, ["jobs", _]:
            return not_allowed(f"{request.path} takes GET and DELETE", "GET", "DELETE")
    return http.failure(404, f"no {request.path}")


def _use(jobs: LiveJobs, name: str) -> http.Response:
    try:
        jobs.use(name)
    except PolicyError as error:
        raise ProtocolError(f"policy: {error}") from error
    return http.as_json(_policy(jobs))


def _policy(jobs: LiveJobs) -> dict[str, Any]:
    return {"policy": jobs.starts.name, "available": defer.names(), "fault": jobs.starts.fault or None}


def _find(jobs: LiveJobs, number: str) -> Job:
    job = jobs.book.get(int(number)) if number.isascii() and number.isdigit() and len(number) < 19 else None
    if job is None:
        raise ProtocolError(f"no job {number[:80]!r}", status=404)
    return job


def _output(jobs: LiveJobs, job: Job) -> dict[str, Any]:
    size, text = end_of(jobs.processes.output(job.id), MOST_OUTPUT_BYTES)
    return {"id": job.id, "state": job.state, "bytes": size, "output": text.decode(errors="replace")}


def _submit(jobs: LiveJobs, body: bytes) -> Job:
    try:
        stated = json.loads(body)
    except (ValueError, RecursionError):
        stated = None
    if not isinstance(stated, dict):
        raise ProtocolError("a JSON object is needed")
    wish = to_wish(stated, time.time(), jobs.slot_s)
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
    if not (
        isinstance(command, list) and command and all(isinstance(c, str) and is_text(c) for c in command)
    ):
        raise ProtocolError('command: a list of texts is needed, as ["python", "job.py"]')
    earliest_s = max(_number(stated, "earliest_s", 0.0, default=now_s), now_s)
    latest_s = _number(stated, "latest_s", 0.0, default=earliest_s + 3600.0)
    if latest_s < earliest_s + slot_s:
        raise ProtocolError(
            f"latest_s: is {latest_s - earliest_s:.3f} s after the earliest start; "
            f"at least {slot_s:g} s are needed, for jobs start at the beginning of slots"
        )
    priority = _number(stated, "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY, default=0)
    when_evicted = stated.get("when_evicted", PAUSE)
    if when_evicted not in (PAUSE, RESTART):
        raise ProtocolError(f"when_evicted: {str(when_evicted)[:80]!r} is neither {PAUSE} nor {RESTART}")
    folder = _text(stated, "folder")
    if not Path(folder).is_absolute():
        raise ProtocolError(f"folder: {folder[:200]!r} is relative to nothing; write it from / on")
    return Wish(
        key=_text(stated, "key"), command=tuple(command), folder=folder, when_evicted=when_evicted,
        cores=_number(stated, "cores", 0.01, default=1.0),
        memory_bytes=_number(stated, "memory_bytes", 0.0, default=0.0),
        duration_s=_number(stated, "duration_s", 0.1),
        earliest_s=earliest_s, latest_s=latest_s, priority=int(priority),
    )  # fmt: skip


def _number(
    stated: dict[str, Any], name: str, least: float, most: float = 1e15, default: float | None = None
) -> float:
    value = stated.get(name, default)
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise ProtocolError(f"{name}: {str(value)[:80]!r} is no number from {least:g} to {most:g}")


def _text(stated: dict[str, Any], name: str) -> str:
    value = stated.get(name)
    if not isinstance(value, str) or not value or not is_text(value):
        raise ProtocolError(f"{name}: {str(value)[:80]!r}; a text is needed")
    return value


def _check_room(jobs: LiveJobs, wish: Wish) -> None:
    """Refuse what no node could ever hold, were it empty."""
    nodes = jobs.scenario.topology.nodes
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
