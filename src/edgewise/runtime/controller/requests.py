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

import asyncio
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from edgewise.errors import EdgewiseError, ProtocolError, RunError, ScenarioError
from edgewise.runtime import clock, http
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.protocol.bodies import read
from edgewise.runtime.protocol.controller_bodies import (
    JobKept,
    JobOutput,
    JobWanted,
    LinkNow,
    NodeNow,
    PipelineEnding,
    PipelineKept,
    PipelineWanted,
    Up,
)
from edgewise.runtime.protocol.messages import number, text
from edgewise.runtime.protocol.openapi import unanswered
from edgewise.runtime.protocol.shown_bodies import LinkShown, NodeShown, RatesShown
from edgewise.runtime.store.jobs import HIGHEST_PRIORITY, PAUSE, RESTART, Job, Wish
from edgewise.runtime.store.pipelines import KeptPipeline

Answer = TypeVar("Answer")

log = logging.getLogger("edgewise.nodes")
MOST_OUTPUT_BYTES = 1_000_000
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
            return http.as_json(msgspec.convert(ledger(plane), list[NodeShown]))
        case "PUT", [name]:
            return http.as_json(_change(plane, name, request.body, end))
    return unanswered(request, "controller")


def ledger(plane: LivePlane) -> list[dict[str, Any]]:
    """The ledger as it is now; nothing before there is a scenario."""
    if plane.has_scenario:
        plane.listen(clock.unix_s())
        return plane.report()
    return []


def _change(plane: LivePlane, name: str, body: bytes, end: Callable[[], None]) -> NodeNow:
    names = [row["node"] for row in ledger(plane)]
    if name not in names:
        raise ProtocolError(f"no node {name[:80]!r}; there are {', '.join(names) or 'none'}", status=404)
    up = read(body, Up).up
    if up == (name in plane.store.nodes_down()):
        plane.store.change_node(name, up)
        log.warning("node repaired" if up else "node failed", extra={"who": name})
        end()  # before anybody decides about it
        plane.listen(clock.unix_s())
    return NodeNow(up, name)


def about_links(pipelines: LivePipelines, request: http.HttpRequest) -> http.Response:
    """Answer a request about links between nodes.

    Raises:
        ProtocolError: there is no such link.
    """
    match request.method, request.parts[2:]:
        case "GET", []:
            return http.as_json(msgspec.convert(pipelines.links(), list[LinkShown]))
        case "PUT", [one, other]:
            return http.as_json(_cut(pipelines, (one, other), request.body))
    return unanswered(request, "controller")


def _cut(pipelines: LivePipelines, ends: tuple[str, str], body: bytes) -> LinkNow:
    known = [row["ends"] for row in pipelines.links()]
    if set(ends) not in map(set, known):
        there = ", ".join(f"{one}-{other}" for one, other in known) or "none"
        raise ProtocolError(f"no link {'-'.join(ends)[:160]!r}; there are {there}", status=404)
    up = read(body, Up).up
    pipelines.store.change_link(ends, up)
    log.warning("link mended" if up else "link cut", extra={"who": "-".join(ends)})
    return LinkNow(up, list(ends))


async def about_work(jobs: LiveJobs, pipelines: LivePipelines, request: http.HttpRequest) -> http.Response:
    """Answer a request about jobs or pipelines.

    Raises:
        ProtocolError: it cannot be done; says why.
    """
    match request.method, request.parts[2:]:
        case "GET", ["jobs"]:
            return http.as_json([JobKept(**job.row()) for job in jobs.book.listed()])
        case "POST", ["jobs"]:
            return http.as_json(JobKept(**(await _submit(jobs, request.body)).row()))
        case "GET", ["jobs", number]:
            return http.as_json(JobKept(**_find(jobs, number).row()))
        case "DELETE", ["jobs", number]:
            jobs.book.cancel(_find(jobs, number).id)
            return http.as_json(JobKept(**_find(jobs, number).row()))
        case "GET", ["jobs", number, "output"]:
            job = _find(jobs, number)
            size, end = await _asked(jobs.processes.written, job, MOST_OUTPUT_BYTES)
            return http.as_json(JobOutput(job.id, job.state, size, end.decode(errors="replace")))
        case "GET", ["pipelines"]:
            return http.as_json([PipelineKept(**kept.row()) for kept in pipelines.listed()])
        case "POST", ["pipelines"]:
            return http.as_json(_run(pipelines, request.body))
        case "GET", ["pipelines", number]:
            kept = _pipeline(pipelines, number)
            rates = msgspec.convert(pipelines.rates(kept.id), RatesShown | None)
            return http.as_json(PipelineKept(**kept.row(), rates=rates))
        case "DELETE", ["pipelines", number]:
            pipelines.book.cancel(_pipeline(pipelines, number).id)
            return http.as_json(PipelineEnding(_id(number), True))
    return unanswered(request, "controller")


async def _asked(ask: Callable[..., Answer], *what: Any) -> Answer:
    """What a backend answers that may wait for it: other requests are answered meanwhile.

    Raises:
        ProtocolError: it cannot be done, or nobody answers.
    """
    try:
        return await asyncio.to_thread(ask, *what)
    except RunError as error:
        raise ProtocolError(str(error), status=503) from error


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


def _run(pipelines: LivePipelines, body: bytes) -> PipelineKept:
    wanted = read(body, PipelineWanted)
    key = text(wanted.key, "key")
    if not pipelines.plane.has_pipelines:
        raise ProtocolError("pipelines: the scenario holds none; add a section of them", status=404)
    try:
        live = msgspec.convert(wanted.live, LivePipeline)
        pipelines.check(live)
    except (msgspec.ValidationError, ScenarioError, ValueError) as error:
        raise ProtocolError(f"live: {error}") from None
    return PipelineKept(**pipelines.book.submit(key, live).row())


async def _submit(jobs: LiveJobs, body: bytes) -> Job:
    wish = to_wish(read(body, JobWanted), clock.unix_s(), jobs.slot_s)
    try:
        _check_room(jobs, wish)
    except ProtocolError:
        raise
    except EdgewiseError as error:
        raise ProtocolError(str(error), status=409) from error
    return jobs.book.submit(await _asked(jobs.processes.keep, wish))


def to_wish(wanted: JobWanted, now_s: float, slot_s: float) -> Wish:
    """A job as it was stated, checked for what its type does not say.

    Raises:
        ProtocolError: names the field, what it holds and what it should.
    """
    if not wanted.command:
        raise ProtocolError('command: a list of texts is needed, as ["python", "job.py"]')
    earliest_s = now_s if wanted.earliest_s is UNSET else wanted.earliest_s
    earliest_s = max(_moment(earliest_s, "earliest_s", now_s), now_s)
    latest_s = earliest_s + 3600.0 if wanted.latest_s is UNSET else wanted.latest_s
    latest_s = _moment(latest_s, "latest_s", earliest_s)
    if latest_s < earliest_s + slot_s:
        raise ProtocolError(
            f"latest_s: is {latest_s - earliest_s:.3f} s after the earliest start; "
            f"at least {slot_s:g} s are needed, for jobs start at the beginning of slots"
        )
    priority = number(wanted.priority, "priority", -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    if wanted.when_evicted not in (PAUSE, RESTART):
        raise ProtocolError(f"when_evicted: {wanted.when_evicted[:80]!r} is neither {PAUSE} nor {RESTART}")
    every_s = wanted.checkpoint_s
    folder = text(wanted.folder, "folder")
    if not Path(folder).is_absolute():
        raise ProtocolError(f"folder: {folder[:200]!r} is relative to nothing; write it from / on")
    return Wish(
        key=text(wanted.key, "key"),
        command=tuple(text(part, "command", least=0) for part in wanted.command), folder=folder,
        cores=number(wanted.cores, "cores", least=0.01),
        memory_bytes=number(wanted.memory_bytes, "memory_bytes"),
        duration_s=number(wanted.duration_s, "duration_s", least=0.1), when_evicted=wanted.when_evicted,
        earliest_s=earliest_s, latest_s=latest_s, priority=int(priority),
        checkpoint_s=None if every_s is None else number(every_s, "checkpoint_s", least=0.1),
        checkpoint_bytes=number(wanted.checkpoint_bytes, "checkpoint_bytes"),
    )  # fmt: skip


def _moment(value: float, name: str, from_s: float) -> float:
    """Seconds since 1970, no more than a year after a moment."""
    if from_s + YEAR_S < value < math.inf:
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
