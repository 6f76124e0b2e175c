"""A `batch/v1` Job as edgewise reads it: what its annotations ask for, and where it stands.

Users write what users of Kubernetes write: a Job that is suspended, with a label that has it deferred and
its window in annotations. It holds what its containers request, times its parallelism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.durations import FORMS, seconds_of
from edgewise.runtime.backends.kubernetes.nodes import asked_by
from edgewise.runtime.store.jobs import HIGHEST_PRIORITY, RESTART, Wish

DEFERRED = "edgewise/deferred"  # label of Jobs that wait for left-over capacity
QUEUE = "kueue.x-k8s.io/queue-name"  # label of Jobs that are Kueue's
EARLIEST, LATEST = "edgewise/earliest-start", "edgewise/latest-start"
LASTS, EVERY, PRIORITY = "edgewise/duration", "edgewise/checkpoint-every", "edgewise/priority"
RUN, STOPPED, ENDED = "edgewise/run", "edgewise/stopped", "edgewise/ended"  # what edgewise writes
SAVED = "edgewise/saved-s"  # of its pods: seconds of work that its last checkpoint has


@dataclass(frozen=True, slots=True)
class JobSeen:
    """What is kept of a Job.

    Attributes:
        version: of the object, by which writes of who knows an older one fail.
        wish: what it asks for; None where that cannot be, and `fault` says why.
        kueue: it is Kueue's.
        run, stopped: the run that it was begun for last, and the one that was stopped.
        ended: what edgewise wrote of a Job that it starts no more.
        suspended, settled: whether it is to be suspended, and whether no pod of it is left.
        began: it has a start time; where it may run can be changed once that is gone.
        finished: condition that it ended with, "Complete" or "Failed", and why.
    """

    name: str
    uid: str
    version: str
    wish: Wish | None
    fault: str
    kueue: bool
    run: str
    stopped: str
    ended: str
    suspended: bool
    settled: bool
    began: bool
    finished: str | None
    why: str

    @property
    def key(self) -> str:
        """By which the book knows it: a Job of the same name that is made later is another one."""
        return key_of(self.name, self.uid)


def key_of(name: str, uid: str) -> str:
    """Key of a Job in the book."""
    return f"job/{name}/{uid}"


def name_in(key: str) -> str:
    """Name of the Job that a key of the book is of; "" for other keys."""
    what, _, rest = key.partition("/")
    return rest.partition("/")[0] if what == "job" else ""


def job_seen(job: Any) -> JobSeen:
    """What is kept of a Job."""
    meta, spec, status = job.metadata, job.spec, job.status
    notes, labels = meta.annotations or {}, meta.labels or {}
    conditions = {each.type: each for each in (status and status.conditions) or () if each.status == "True"}
    finished = next((conditions[each] for each in ("Complete", "Failed") if each in conditions), None)
    left = (status.active or 0) + (status.terminating or 0) if status else 0
    try:
        wish, fault = wish_of(job), ""
    except ScenarioError as error:
        wish, fault = None, str(error)
    return JobSeen(
        meta.name, meta.uid or "", meta.resourceVersion or "", wish, fault, QUEUE in labels,
        notes.get(RUN, ""), notes.get(STOPPED, ""), notes.get(ENDED, ""), bool(spec.suspend),
        "Suspended" in conditions and not left, bool(status and status.startTime),
        finished and finished.type, f"{finished.reason}: {finished.message}" if finished else "",
    )  # fmt: skip


def wish_of(job: Any) -> Wish:
    """What a Job asks for.

    Raises:
        ScenarioError: names the annotation or field, what it holds and what it should.
    """
    meta, spec = job.metadata, job.spec
    notes: Mapping[str, str] = meta.annotations or {}
    made_s = meta.creationTimestamp.timestamp()
    earliest_s = max(_moment(notes, EARLIEST, made_s, made_s), made_s)
    if LATEST not in notes:
        raise ScenarioError(f"{LATEST}: is missing; write a time, or how long after it was made, as 8h")
    latest_s = _moment(notes, LATEST, made_s, made_s)
    if latest_s < earliest_s:
        raise ScenarioError(f"{LATEST}: {notes[LATEST][:80]!r} is before it may start; write a later one")
    many = spec.parallelism if spec.parallelism is not None else 1
    cores, memory_bytes = asked_by(spec.template.spec)
    if cores <= 0:
        raise ScenarioError("requests: containers ask for no cpu; write what they need, as cpu: 500m")
    first = spec.template.spec.containers[0]
    return Wish(
        key=key_of(meta.name, meta.uid or ""),
        command=tuple([*(first.command or ()), *(first.args or ())] or [first.image]),
        folder="",
        cores=many * cores,
        memory_bytes=many * memory_bytes,
        duration_s=_lasts_s(notes, spec.activeDeadlineSeconds),
        earliest_s=earliest_s,
        latest_s=latest_s,
        priority=_priority(notes),
        when_evicted=RESTART,  # a Job that is suspended loses its pods
        checkpoint_s=_seconds(notes, EVERY) if EVERY in notes else None,
    )


def _moment(notes: Mapping[str, str], name: str, made_s: float, otherwise_s: float) -> float:
    """Seconds since 1970 of a time, or of so long after a Job was made."""
    if name not in notes:
        return otherwise_s
    text = notes[name]
    if (after_s := seconds_of(text)) is not None and after_s >= 0:
        return made_s + after_s
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ScenarioError(
            f"{name}: {text[:80]!r} is no time; write 2026-12-24T08:00:00Z, or how long after it was made"
        )
    return found.timestamp()


def _lasts_s(notes: Mapping[str, str], deadline_s: int | None) -> float:
    if LASTS in notes:
        return _seconds(notes, LASTS)
    if deadline_s is None:
        raise ScenarioError(f"{LASTS}: is missing, as is activeDeadlineSeconds; write how long it may run")
    return float(deadline_s)


def _seconds(notes: Mapping[str, str], name: str) -> float:
    found = seconds_of(notes[name])
    if found is None or found <= 0:
        raise ScenarioError(f"{name}: {notes[name][:80]!r} is no duration; write it as {FORMS}")
    return found


def _priority(notes: Mapping[str, str]) -> int:
    text = notes.get(PRIORITY, "0")
    try:
        found = int(text)
    except ValueError:
        found = HIGHEST_PRIORITY + 1
    if abs(found) > HIGHEST_PRIORITY:
        most = HIGHEST_PRIORITY
        raise ScenarioError(f"{PRIORITY}: {text[:80]!r} is no whole number between -{most} and {most}")
    return found
