"""What the controller answers about nodes, deferrable jobs and pipelines; a token guards it all.

GET    /v1/nodes                     the ledger: who holds what of each
PUT    /v1/nodes/{name}              {"up": bool}: false fails it with all that runs there, true repairs it
GET    /v1/links                     links between nodes that flows of pipelines take
PUT    /v1/links/{one}/{other}       {"up": bool}: false cuts the link between two nodes, true mends it
GET    /v1/admin/jobs                every job, oldest first
POST   /v1/admin/jobs                submit one; kept before the answer, the same `key` is the same job
GET    /v1/admin/jobs/{id}           one job
DELETE /v1/admin/jobs/{id}           end it, or never start it
GET    /v1/admin/jobs/{id}/output    the last of what it wrote
GET    /v1/admin/pipelines           every pipeline, oldest first
POST   /v1/admin/pipelines           {"key", "live"}: run one; the same `key` is the same pipeline
GET    /v1/admin/pipelines/{id}      one, and what its tasks and flows do beside the plan
DELETE /v1/admin/pipelines/{id}      end it
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgewise.errors import EdgewiseError, ProtocolError, ScenarioError
from edgewise.runtime import clock, http
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.protocol.messages import flag, number, stated_in, text
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.store.jobs import PAUSE, RESTART, Job, Wish
from edgewise.runtime.store.pipelines import KeptPipeline
from edgewise.runtime.watch.logs import end_of

log = logging.getLogger("edgewise.nodes")
MOST_OUTPUT_BYTES = 1_000_000
HIGHEST_PRIORITY = 100
YEAR_S = 366 * 86400.0  # how far ahead a job may be kept


def about_nodes(plane: LivePlane, request: http.HttpRequest, end: Callable[[], None]) -> http.Response:
    """Answer a request about nodes.

    Args:
        end: ends what runs on nodes that are down.
    Raises:
        ProtocolError: there is no such node.
    """
    match request.method, request.parts[2:]:
        case "GET", []:
            return http.as_json(ledger(plane))
        case "PUT", [name]:
            return http.as_json(_change(plane, name, request.body, end))
    return unanswered(request, "controller")


def ledger(plane: LivePlane) -> list[dict[str, Any]]:
    """The ledger as it is now; nothing before there is a scenario."""
    if plane.has_scenario:
        plane.listen(clock.unix_s())
        return plane.report()
    return []


def _change(plane: LivePlane, name: str, body: bytes, end: Callable[[], None]) -> dict[str, Any]:
    names = [row["node"] for row in ledger(plane)]
    if name not in names:
        raise ProtocolError(f"no node {name[:80]!r}; there are {', '.join(names) or 'none'}", status=404)
    up = flag(stated_in(body, "up").get("up"), "up")
    if up == (name in plane.store.nodes_down()):
        plane.store.change_node(name, up)
        log.warning("node repaired" if up else "node failed", extra={"who": name})
        end()  # before anybody decides about it
        plane.listen(clock.unix_s())
    return {"node": name, "up": up}


def about_links(pipelines: LivePipelines, request: http.HttpRequest) -> http.Response:
    """Answer a request about links between nodes.

    Raises:
        ProtocolError: there is no such link.
    """
    match request.method, request.parts[2:]:
        case "GET", []:
            return http.as_json(pipelines.links())
        case "PUT", [one, other]:
            return http.as_json(_cut(pipelines, (one, other), request.body))
    return unanswered(request, "controller")


def _cut(pipelines: LivePipelines, ends: tuple[str, str], body: bytes) -> dict[str, Any]:
    known = [row["ends"] for row in pipelines.links()]
    if set(ends) not in map(set, known):
        there = ", ".join(f"{one}-{other}" for one, other in known) or "none"
        raise ProtocolError(f"no link {'-'.join(ends)[:160]!r}; there are {there}", status=404)
    up = flag(stated_in(body, "up").get("up"), "up")
    pipelines.store.change_link(ends, up)
    log.warning("link mended" if up else "link cut", extra={"who": "-".join(ends)})
    return {"ends": list(ends), "up": up}


def about_work(jobs: LiveJobs, pipelines: LivePipelines, request: http.HttpRequest) -> http.Response:
    """Answer a request about jobs or pipelines.

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
            job = _find(jobs, number)
            size, end = end_of(jobs.processes.output(job.id), MOST_OUTPUT_BYTES)
            found = {"id": job.id, "state": job.state, "bytes": size, "output": end.decode(errors="replace")}
            return http.as_json(found)
        case "GET", ["pipelines"]:
            return http.as_json([kept.row() for kept in pipelines.listed()])
        case "POST", ["pipelines"]:
            return http.as_json(_run(pipelines, request.body))
        case "GET", ["pipelines", number]:
            kept = _pipeline(pipelines, number)
            return http.as_json(kept.row() | {"rates": pipelines.rates(kept.id)})
        case "DELETE", ["pipelines", number]:
            pipelines.book.cancel(_pipeline(pipelines, number).id)
            return http.as_json({"id": _id(number), "ending": True})
    return unanswered(request, "controller")


def _id(number: str) -> int:
    """A number of a book; -1, which none has, for other texts."""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else -1


def _find(jobs: LiveJobs, number: str) -> Job:
    if (job := jobs.book.get(_id(number))) is None:
        raise ProtocolError(f"no job {number[:80]!r}", status=404)
    return job


def _pipeline(pipelines: LivePipelines, number: str) -> KeptPipeline:
    if (kept := pipelines.get(_id(number))) is None:
        raise ProtocolError(f"no pipeline {number[:80]!r}; edgewise pipelines lists them", status=404)
    return kept


def _run(pipelines: LivePipelines, body: bytes) -> dict[str, Any]:
    given = stated_in(body, "key and live")
    key = text(given.get("key"), "key")
    if not pipelines.plane.has_pipelines:
        raise ProtocolError("pipelines: the scenario holds none; add a section of them", status=404)
    try:
        live = msgspec.convert(given.get("live"), LivePipeline)
        pipelines.check(live)
    except (msgspec.ValidationError, ScenarioError, ValueError) as error:
        raise ProtocolError(f"live: {error}") from None
    return pipelines.book.submit(key, live).row()


def _submit(jobs: LiveJobs, body: bytes) -> Job:
    wish = to_wish(stated_in(body, "key, command, folder and duration_s"), clock.unix_s(), jobs.slot_s)
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
    earliest_s = max(_moment(stated.get("earliest_s", now_s), "earliest_s", now_s), now_s)
    latest_s = _moment(stated.get("latest_s", earliest_s + 3600.0), "latest_s", earliest_s)
    if latest_s < earliest_s + slot_s:
        raise ProtocolError(
            f"latest_s: is {latest_s - earliest_s:.3f} s after the earliest start; "
            f"at least {slot_s:g} s are needed, for jobs start at the beginning of slots"
        )
    priority = number(stated.get("priority", 0), "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    when_evicted = stated.get("when_evicted", PAUSE)
    if when_evicted not in (PAUSE, RESTART):
        raise ProtocolError(f"when_evicted: {str(when_evicted)[:80]!r} is neither {PAUSE} nor {RESTART}")
    every_s = stated.get("checkpoint_s")
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
        checkpoint_s=None if every_s is None else number(every_s, "checkpoint_s", least=0.1),
        checkpoint_bytes=number(stated.get("checkpoint_bytes", 0.0), "checkpoint_bytes"),
    )  # fmt: skip


def _moment(value: Any, name: str, from_s: float) -> float:
    """Seconds since 1970, no more than a year after a moment."""
    if isinstance(value, int | float) and from_s + YEAR_S < value < math.inf:
        raise ProtocolError(
            f"{name}: {value - from_s:g} s after {'now' if name == 'earliest_s' else 'the earliest start'}; "
            f"at most a year, {YEAR_S:g} s, is possible"
        )
    return number(value, name, most=from_s + YEAR_S)


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
