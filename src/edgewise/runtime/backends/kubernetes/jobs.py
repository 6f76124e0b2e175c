"""Deferrable jobs on a cluster: suspended `batch/v1` Jobs that are begun, and suspended again for inference.

Users keep Jobs with their own tools; each that has the label `edgewise/deferred` and is nobody else's is
taken into the book of jobs by watch. What edgewise does with a Job it writes to it: the run that it is begun
for, and that it was stopped. A controller that starts again reads there what was done, so a run begins once.
Suspending deletes a Job's pods: every job here restarts, from its last checkpoint if it writes any.

As in the backend of workers nothing waits: what is asked is carried out by a thread.
"""

import logging
import signal
import threading
from collections.abc import Iterable
from functools import partial
from typing import Any

from lightkube import ApiError, Client, codecs
from lightkube.resources.batch_v1 import Job as KubeJob
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType

from edgewise.errors import RunError
from edgewise.runtime.backends.jobs import JobStage, SeenStage
from edgewise.runtime.backends.kubernetes.backend import GONE, REFUSED, THERE
from edgewise.runtime.backends.kubernetes.errands import Errands
from edgewise.runtime.backends.kubernetes.events import Events
from edgewise.runtime.backends.kubernetes.job_manifest import MADE_BY, US, begun, job_of, stopped
from edgewise.runtime.backends.kubernetes.job_seen import DEFERRED, ENDED, JobSeen, job_seen, name_in
from edgewise.runtime.backends.kubernetes.manifest import Pods
from edgewise.runtime.backends.kubernetes.seen import ObjectWatch
from edgewise.runtime.store.jobs import Job, JobTable, Wish

OF_JOB = "batch.kubernetes.io/job-name"  # label of a Job's pods
LINES = 10_000  # of a log that are asked for, at most
BY_ANOTHER = (
    "another controller has suspended it after it was begun; where Kueue manages Jobs without a queue's name "
    "(manageJobsWithoutQueueName), let one of the two decide about this namespace"
)

log = logging.getLogger("edgewise.kubernetes")


class _CannotBegin(Exception):
    """A run cannot begin; says why."""


class ClusterJobs:
    """The backend of jobs of a system on a cluster; see `JobBackend`.

    Args:
        client: of the API server, in the namespace of the jobs.
        pods: what all pods of the system have in common.
        book: of its jobs.
    Raises:
        RunError: the API server does not answer, or refuses.
    """

    def __init__(self, client: Client, pods: Pods, book: JobTable) -> None:
        self._client, self._pods, self._book = client, pods, book
        self._lock = threading.Lock()
        self._starting: dict[
            str, int | None
        ] = {}  # runs that no watch has shown to begin: version, once done
        self._asked: str | None = None  # the run that the API server is asked for now
        self._refused: dict[str, str] = {}  # runs that cannot begin, and why
        self._stopping: set[tuple[str, bool]] = set()
        self._keys: dict[int, str] = {}  # of open jobs, by number
        self._shown: set[str] = set()  # keys of Jobs that the watch has shown, or that were kept before
        self._ended: set[str] = set()  # keys of Jobs that are marked as ended, as long as no watch shows it
        self._said: dict[int, str] = {}  # the last thing that was said of a job's start
        self._errands = Errands("kubernetes jobs")
        self._events = Events(client, self._errands.put)
        self._by_key: dict[str, JobSeen] = {}
        self._jobs = ObjectWatch(client, KubeJob, {DEFERRED: "true"}, job_seen, self._changed)
        self._jobs.begin(watching=True)
        self._shown |= {job.key for job in book.open()}

    # what users ask for

    def keep(self, wish: Wish) -> Wish:
        """See `JobBackend`: a Job is made."""
        made: Any = codecs.from_dict(job_of(wish, self._pods))
        try:
            try:
                kept: Any = self._client.create(made)
            except ApiError as error:
                if error.status.code != THERE:
                    raise
                kept = self._client.get(KubeJob, made.metadata.name)  # submitted once more
        except ApiError as error:
            raise RunError(f"kubernetes: the job is refused: {error.status.message}") from error
        except Exception as error:  # whatever a connection can do
            raise RunError(f"kubernetes: the API server does not take the job: {error}") from error
        found = job_seen(kept).wish
        if found is None:
            raise RunError(f"kubernetes: the job cannot be kept: {job_seen(kept).fault}")
        return found

    def take_in(self) -> None:
        """See `JobBackend`."""
        rows = self._by_key
        open_jobs = {job.key: job for job in self._book.open()}
        self._keys = {job.id: key for key, job in open_jobs.items()}
        for key, job in open_jobs.items():
            if not job.cancel and key in self._shown and self._taken_back(job, rows.get(key)):
                log.info("job taken back", extra={"job": job.id})
                self._book.cancel(job.id)
        for key, seen in rows.items():
            self._shown.add(key)
            if key not in open_jobs and not seen.finished and not seen.ended:
                self._offered(seen)
        self._shown &= rows.keys() | open_jobs.keys()

    def _taken_back(self, job: Job, seen: JobSeen | None) -> bool:
        """Whether a user has deleted a job that is open, or begun it."""
        if seen is None:
            return True
        return job.state == "waiting" and not seen.suspended and not self._mine(seen.run, job.run)

    def _offered(self, seen: JobSeen) -> None:
        """A Job that waits, and is not in the book or has ended there."""
        if seen.kueue:
            self._events.once(seen, "LeftToKueue", "has a queue's name: Kueue decides when it runs")
        elif seen.wish is None:
            self._events.once(seen, "InvalidDeferral", seen.fault, bad=True)
        elif (known := self._book.of_key(seen.key)) is not None:
            self._events.once(seen, known.state.capitalize(), known.why or "", bad=known.state != "done")
            self._mark_ended(seen, known.state)
        elif seen.suspended:
            job = self._book.submit(seen.wish)
            self._events.once(seen, "Deferred", f"job {job.id} waits for room that inference leaves")

    def _mark_ended(self, seen: JobSeen, state: str) -> None:
        """Write to a Job that it is not begun any more; with it as it was seen, or with its next version."""
        if seen.key in self._ended:
            return
        self._ended.add(seen.key)
        note = {"metadata": {"resourceVersion": seen.version, "annotations": {ENDED: state}}}

        def mark() -> None:
            try:
                self._patch(seen.name, note)
            except ApiError as error:
                if error.status.code not in (THERE, *REFUSED):
                    raise
                self._ended.discard(seen.key)

        self._errands.put(mark)

    # runs

    def start(self, process: Job) -> str:
        """See `Backend`; may be called again."""
        run = process.run
        with self._lock:
            if run in self._starting:
                return run
            self._starting[run] = None
            self._refused.pop(run, None)
        self._errands.put(lambda: self._begin(process))
        return run

    def alive(self, handle: str) -> bool:
        """See `Backend`."""
        return self.look(handle).stage is JobStage.RUNNING

    def stop(self, handle: str, force: bool = False) -> None:
        """See `Backend`: a Job is suspended, which deletes its pods; `force` does not wait for them."""
        with self._lock:
            if (handle, force) in self._stopping:
                return
            self._stopping.add((handle, force))
        number = int(handle.partition(".")[0])
        job, name = self._book.get(number), name_in(self._keys.get(number, ""))
        evicted = job is not None and job.state == "evicted"
        self._errands.put(lambda: self._stop(handle, name, evicted, force))

    def look(self, run: str) -> SeenStage:
        """See `JobBackend`."""
        with self._lock:
            if run in self._refused:
                return SeenStage(JobStage.DIED)
            if run in self._starting:
                done = self._starting[run] is not None
                return SeenStage(JobStage.RUNNING if done else JobStage.ABSENT)
        seen = self._of(run)
        if seen is None:
            return SeenStage(JobStage.VANISHED)
        if not self._mine(seen.run, run):
            return SeenStage(JobStage.ABSENT)
        if seen.finished:
            return SeenStage(JobStage.ENDED, int(seen.finished == "Failed"), seen.why)
        if not seen.suspended or not seen.settled:
            return SeenStage(JobStage.RUNNING)
        if self._mine(seen.stopped, run):
            return SeenStage(JobStage.ENDED, -signal.SIGTERM)
        self._events.once(seen, "SuspendedByAnother", BY_ANOTHER, bad=True)
        return SeenStage(JobStage.VANISHED)

    def forbid(self, run: str) -> bool:
        """See `JobBackend`: nobody else begins a Job for this run."""
        with self._lock:
            if self._asked == run or self._starting.get(run) is not None:
                return False
            self._starting.pop(run, None)
        seen = self._of(run)
        return seen is None or not self._mine(seen.run, run)

    def suspend(self, run: str) -> None:
        """See `JobBackend`: no job of a cluster can be stopped where it is, and none is said to be."""
        raise RunError(f"kubernetes: run {run} cannot keep its memory while it is suspended")

    def resume(self, run: str) -> None:
        """See `JobBackend`: nothing was stopped where it was."""

    def running(self) -> Iterable[str]:
        """See `JobBackend`."""
        mine = f"{self._pods.system}/"
        at_work = [job for job in self._by_key.values() if not job.finished and not job.suspended]
        return [job.run.removeprefix(mine) for job in at_work if job.run.startswith(mine)]

    def clear(self, run: str) -> None:
        """See `JobBackend`."""
        with self._lock:
            self._starting.pop(run, None)
            self._refused.pop(run, None)
            self._stopping -= {(run, False), (run, True)}

    def remove(self, number: int) -> None:
        """See `JobBackend`: users remove their Jobs themselves; those that were made here go."""
        self._said.pop(number, None)
        for seen in self._by_key.values():
            if self._mine(seen.run.partition(".")[0], str(number)):
                self._errands.put(partial(self._remove_own, seen.name))

    # what they say

    def written(self, job: Job, most: int) -> tuple[int, bytes]:
        """See `JobBackend`: of the pod that was made last."""
        try:
            found = self._pods_of(name_in(job.key))
            if not found:
                return 0, b""
            latest = max(found, key=lambda each: each.metadata.creationTimestamp)
            lines = self._client.log(latest.metadata.name, tail_lines=LINES, newlines=True)
            text = "".join(lines).encode()
        except ApiError as error:
            raise RunError(f"kubernetes: job {job.id}: {error.status.message}") from error
        except Exception as error:  # whatever a connection can do
            raise RunError(f"kubernetes: the API server does not answer: {error}") from error
        return len(text), text[-most:]

    def last_line(self, number: int) -> str:
        """See `JobBackend`."""
        return self._said.get(number, "")

    # in the thread

    def _begin(self, job: Job) -> None:
        run = job.run
        with self._lock:
            if run not in self._starting:  # ended before it began
                return
            self._asked = run
        try:
            version = self._begun(job)
            with self._lock:
                self._starting[run] = version
        except _CannotBegin as error:
            log.error("refused", extra={"job": job.id, "why": str(error)})
            with self._lock:
                self._refused[run] = self._said[job.id] = str(error)
                del self._starting[run]
        finally:
            with self._lock:
                self._asked = None
        self._changed()

    def _begun(self, job: Job) -> int:
        """Begin a run, unless that was done; the version of its Job that says so."""
        name, run = name_in(job.key), f"{self._pods.system}/{job.run}"
        try:
            seen = job_seen(self._client.get(KubeJob, name))
            if seen.key != job.key:
                raise _CannotBegin(f"Job {name} is another one now")
            if seen.run == run:
                return int(seen.version)
            if seen.began:  # where it may run can be changed only where that is gone
                gone = {"status": {"startTime": None}}
                self._client.patch(KubeJob.Status, name, gone, patch_type=PatchType.MERGE)
                seen = job_seen(self._client.get(KubeJob, name))
            done = self._patch(name, begun(job, run, seen, self._pods.system))
        except ApiError as error:
            if error.status.code in REFUSED:
                raise _CannotBegin(error.status.message) from error
            raise  # a conflict, too: it is asked again
        self._events.put(seen, "Started", f"run {job.run} on node {job.node}")
        return int(done.metadata.resourceVersion)

    def _stop(self, run: str, name: str, evicted: bool, force: bool) -> None:
        try:
            seen = job_seen(self._client.get(KubeJob, name)) if name else None
            if seen is not None and self._mine(seen.run, run):
                if not self._mine(seen.stopped, run):
                    self._patch(name, stopped(f"{self._pods.system}/{run}"))
                    why = "inference needs its node" if evicted else "it is to end"
                    self._events.put(seen, "Evicted" if evicted else "Stopped", why)
                for pod in self._pods_of(name) if force else ():
                    self._client.delete(Pod, pod.metadata.name, grace_period=0)
        except ApiError as error:
            if error.status.code not in REFUSED:
                raise
        with self._lock:
            self._stopping.discard((run, force))

    def _remove_own(self, name: str) -> None:
        try:
            found: Any = self._client.get(KubeJob, name)
            if (found.metadata.labels or {}).get(MADE_BY) == US:
                self._client.delete(KubeJob, name)
        except ApiError as error:
            if error.status.code != GONE:
                raise

    def _patch(self, name: str, what: dict[str, Any]) -> Any:
        return self._client.patch(KubeJob, name, what, patch_type=PatchType.MERGE)

    def _pods_of(self, name: str) -> list[Any]:
        return list(self._client.list(Pod, labels={OF_JOB: name}))

    def _of(self, run: str) -> JobSeen | None:
        return self._by_key.get(self._keys.get(int(run.partition(".")[0]), ""))

    def _mine(self, written: str, run: str) -> bool:
        """Whether what is written to a Job names a run of this system."""
        return written == f"{self._pods.system}/{run}"

    def _changed(self) -> None:
        """The watch has shown something; runs that it shows, or whose Jobs are gone, start no longer."""
        self._by_key = rows = {seen.key: seen for seen in self._jobs.rows.values()}
        with self._lock:
            for run, version in list(self._starting.items()):
                seen = self._of(run)
                if version is not None and (seen is None or int(seen.version) >= version):
                    del self._starting[run]
        self._ended -= {key for key, seen in rows.items() if seen.ended} | (self._ended - rows.keys())
