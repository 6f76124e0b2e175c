"""The device and task monitors: what nodes, links, tasks and flows do, once a second, into the database."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.placement import free_of
from edgewise.errors import RunError
from edgewise.runtime.pipelines.meta import FlowStatus, LinkStatus, MetaStore, NodeStatus, TaskStatus
from edgewise.runtime.sqlite import StoreError

if TYPE_CHECKING:
    from edgewise.runtime.pipelines.live import RunningPipeline
    from edgewise.runtime.pipelines.session import PipelineSession

WATCH_S = 1.0


class Monitor:
    """Watches a session from a thread of its own until `stop`.

    Args:
        session: whose nodes, links, tasks and flows.
        file: of the database.
    """

    def __init__(self, session: PipelineSession, file: Path) -> None:
        self._session, self._file = session, file
        self._seen: dict[tuple[int, str], dict[str, float]] = {}
        self._carried: tuple[float, Ints] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        store = MetaStore(self._file)
        try:
            while not self._ended.wait(WATCH_S):
                with contextlib.suppress(StoreError):  # its disk is full: the next look may do better
                    self._look(store)
        finally:
            store.close()

    def _look(self, store: MetaStore) -> None:
        jobs = list(self._session.running.items())
        tasks, flows, busy = self._work(jobs)
        store.put_work(tasks, flows)
        try:
            rate = self._link_bps()
        except RunError:  # the bed is being changed, or taken down
            return
        store.put_bed(
            self._nodes(jobs, busy),
            [link_status(self._session, link, bps) for link, bps in enumerate(rate.tolist())],
        )

    def _work(
        self, jobs: list[tuple[int, RunningPipeline]]
    ) -> tuple[list[TaskStatus], list[FlowStatus], Floats]:
        """Tasks and flows, and (N,) how many tasks of each node worked on average since the last look."""
        busy = np.zeros(len(self._session.network.names))
        tasks, flows, seen = [], [], {}
        for number, job in jobs:
            gained = {}
            for i, name in enumerate(job.live.job.graph.order()):
                now = job.processes[name].latest
                before = self._seen.get((number, name), {})
                if not before or now.get("frames", 0.0) < before["frames"]:  # started anew
                    before = dict.fromkeys(now, 0.0) | {"at_s": now.get("at_s", 0.0)}
                gained[name] = {what: now[what] - before.get(what, 0.0) for what in now}
                if not now:
                    continue
                seen[number, name] = now
                node = int(job.placed.node[i])
                busy[node] += gained[name]["busy_s"] / max(gained[name]["at_s"], WATCH_S / 4)
                mean_s = now["busy_s"] / max(now["frames"], 1.0)
                where = self._session.network.names[node]
                tasks.append(TaskStatus(number, name, where, int(now["frames"]), mean_s, time.time()))
            flows += list(_flows(number, job, gained, self._session))
        self._seen = seen
        return tasks, flows, busy

    def _link_bps(self) -> Floats:
        """(L,) bits per second on the wire since the last look, both ways together."""
        now_s, carried = time.monotonic(), self._session.backend.link_bytes().sum(axis=1)
        before_s, before = self._carried or (now_s, carried)
        self._carried = now_s, carried
        return np.asarray(8.0 * (carried - before) / max(now_s - before_s, WATCH_S / 4))

    def _nodes(self, jobs: list[tuple[int, RunningPipeline]], busy: Floats) -> list[NodeStatus]:
        network = self._session.network
        free, _ = free_of(network, [job.placed for _, job in jobs])
        count = np.zeros(len(network.names), dtype=np.int64)
        for _, job in jobs:
            np.add.at(count, job.placed.node, 1)
        rows = (network.names, network.speed_ops, network.memory_bytes, free, count, busy)
        return [
            NodeStatus(name, float(speed), float(memory), float(left), int(tasks), float(use), time.time())
            for name, speed, memory, left, tasks, use in zip(*rows, strict=True)
        ]


def link_status(session: PipelineSession, link: int, rate_bps: float) -> LinkStatus:
    """A link as the session has it now, and what it carries."""
    network = session.network
    one, other = (network.names[node] for node in network.ends[link])
    whole_bps = float(session.backend.network.bandwidth_bps[link])
    return LinkStatus(one, other, whole_bps, bool(network.bandwidth_bps[link] > 0), rate_bps, time.time())


def _flows(
    number: int, job: RunningPipeline, gained: dict[str, dict[str, float]], session: PipelineSession
) -> Iterator[FlowStatus]:
    order, placed = job.live.job.graph.order(), job.placed
    names, ends = session.network.names, session.network.ends
    for e, (u, v) in enumerate(zip(placed.tail_node, placed.head_node, strict=True)):
        if u == v:
            continue
        got = gained[order[placed.job.head[e]]]
        bits = 8.0 * got.get(str(job.ports[e]), 0.0) / max(got.get("at_s", 0.0), WATCH_S / 4)
        way = ", ".join("-".join(names[node] for node in ends[link]) for link in placed.path(e))
        yield FlowStatus(number, job.edge(e), way, float(placed.bandwidth_bps[e]), bits, time.time())
