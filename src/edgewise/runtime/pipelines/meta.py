"""All that is known of nodes, links, pipelines, tasks and flows: one SQLite file (ENTS's MetaManager).

The session writes what it decides, `monitor` what it sees. All of it survives the death of any process:
`PipelineSession.resume` reads here which pipelines a killed session left, and what their tasks took.
"""

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.errors import RunError
from edgewise.model.pipelines import Network
from edgewise.runtime import clock
from edgewise.runtime.pipelines.live import LivePipeline
from edgewise.runtime.pipelines.rates import rates_of
from edgewise.runtime.pipelines.running import RunningPipeline
from edgewise.runtime.pipelines.task import PERIOD_S
from edgewise.runtime.states import ENDED, WAITING
from edgewise.runtime.store.database import Database, StoreError, StorePart
from edgewise.runtime.store.faults import FaultTable

if TYPE_CHECKING:
    from edgewise.runtime.pipelines.session import PipelineSession


class NodeStatus(NamedTuple):
    """A node: what it is, what is free, how many tasks it has, and how many of them work on average."""

    name: str
    speed_ops: float
    memory_bytes: float
    free_bytes: float
    tasks: int
    busy: float
    seen_s: float


class LinkStatus(NamedTuple):
    """A link between two nodes: its bandwidth, whether it is up, and what it carries both ways together."""

    one: str
    other: str
    bandwidth_bps: float
    up: bool
    rate_bps: float
    seen_s: float


class PipelineStatus(NamedTuple):
    """A pipeline: "waiting", "running" or "ended", and since when."""

    number: int
    name: str
    state: str
    since_s: float


class TaskStatus(NamedTuple):
    """A task since it was last started: its node, frames so far, and the mean time of one."""

    pipeline: int
    name: str
    node: str
    frames: int
    time_s: float
    seen_s: float


class FlowStatus(NamedTuple):
    """A flow: the links of its path, the bandwidth of the plan, and the payload that arrives."""

    pipeline: int
    edge: str
    links: str
    allowed_bps: float
    rate_bps: float
    seen_s: float


Status = NodeStatus | LinkStatus | TaskStatus | FlowStatus
S = TypeVar("S", NodeStatus, LinkStatus, TaskStatus, FlowStatus)
TABLES: dict[type, str] = {NodeStatus: "node", LinkStatus: "link", TaskStatus: "task", FlowStatus: "flow"}


class _Watched(StorePart):
    """What `MetaStore` itself reads and writes."""

    SCHEMA = """
CREATE TABLE IF NOT EXISTS node (
    name TEXT PRIMARY KEY, speed_ops REAL NOT NULL, memory_bytes REAL NOT NULL, free_bytes REAL NOT NULL,
    tasks INTEGER NOT NULL, busy REAL NOT NULL, seen_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS link (
    one TEXT NOT NULL, other TEXT NOT NULL, bandwidth_bps REAL NOT NULL, up INTEGER NOT NULL,
    rate_bps REAL NOT NULL, seen_s REAL NOT NULL, PRIMARY KEY (one, other)
);
CREATE TABLE IF NOT EXISTS pipeline (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, state TEXT NOT NULL, live TEXT NOT NULL,
    since_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS task (
    pipeline INTEGER NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, frames INTEGER NOT NULL,
    time_s REAL NOT NULL, seen_s REAL NOT NULL, PRIMARY KEY (pipeline, name)
);
CREATE TABLE IF NOT EXISTS flow (
    pipeline INTEGER NOT NULL, edge TEXT NOT NULL, links TEXT NOT NULL, allowed_bps REAL NOT NULL,
    rate_bps REAL NOT NULL, seen_s REAL NOT NULL, PRIMARY KEY (pipeline, edge)
);
"""


class MetaStore(Database):
    """The database of one test bed, see `Database`; each thread opens its own."""

    TABLES = _Watched, FaultTable

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.faults = FaultTable(self)

    def put(self, rows: Iterable[Status], forget: Iterable[type[Status]] = ()) -> None:
        """The newest status of each; all that was known of the kinds in `forget` goes."""
        with self.at_once():
            for kind in forget:
                self.run(f"DELETE FROM {TABLES[kind]}")
            for row in rows:
                marks = ",".join("?" * len(row))
                self.run(f"INSERT OR REPLACE INTO {TABLES[type(row)]} VALUES ({marks})", row)

    def add(self, live: LivePipeline) -> int:
        """Keep a pipeline that waits; returns its number."""
        row = self.run(
            "INSERT INTO pipeline (name, state, live, since_s) VALUES (?, ?, ?, ?)",
            (live.pipeline.name, WAITING, msgspec.json.encode(live).decode(), clock.unix_s()),
        )
        return int(row.lastrowid or 0)

    def set_state(self, number: int, state: str) -> None:
        """A pipeline waits, runs or has ended."""
        self.run(
            "UPDATE pipeline SET state = ?, since_s = ? WHERE number = ? AND state <> ?",
            (state, clock.unix_s(), number, state),
        )

    def end_all(self) -> None:
        """Nobody will take up the pipelines that wait or run."""
        for number, _ in self.unfinished():
            self.set_state(number, ENDED)

    def unfinished(self) -> list[tuple[int, LivePipeline]]:
        """Pipelines that wait or run, oldest first."""
        rows = self.rows("SELECT number, live FROM pipeline WHERE state <> ? ORDER BY number", (ENDED,))
        return [(number, msgspec.json.decode(live, type=LivePipeline)) for number, live in rows]

    def network(self) -> Network:
        """The nodes and links of the test bed, all links up.

        Raises:
            RunError: none is known.
        """
        nodes, links = self.seen(NodeStatus), self.seen(LinkStatus)
        if not nodes:
            raise RunError(f"state {self.file}: knows no node; start with `edgewise run SCENARIO --state`")
        place = {row.name: i for i, row in enumerate(nodes)}
        return Network(
            tuple(place),
            np.array([row.speed_ops for row in nodes]),
            np.array([row.memory_bytes for row in nodes]),
            np.array([(place[row.one], place[row.other]) for row in links], dtype=np.int64).reshape(-1, 2),
            np.array([row.bandwidth_bps for row in links]),
        )

    def seen(self, kind: type[S], pipeline: int | None = None) -> list[S]:
        """What is known of all nodes or links, in their network's order; of a pipeline's tasks or flows."""
        of, values = ("", ()) if pipeline is None else ("WHERE pipeline = ?", (pipeline,))
        rows = self.rows(f"SELECT * FROM {TABLES[kind]} {of} ORDER BY rowid", values)
        return msgspec.convert(rows, list[kind], strict=False)  # type: ignore[valid-type]

    def pipelines(self) -> list[PipelineStatus]:
        """All pipelines there ever were, oldest first."""
        rows = self.rows("SELECT number, name, state, since_s FROM pipeline ORDER BY number")
        return [PipelineStatus(*row) for row in rows]


WATCH_S = 1.0


class Monitor:
    """Watches a session from a thread of its own until `stop`.

    Args:
        session: whose nodes, links, tasks and flows.
        file: of the database.
    """

    def __init__(self, session: "PipelineSession", file: Path) -> None:
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
        pipelines = list(self._session.running.items())
        tasks, flows, busy = self._work(pipelines)
        store.put([*tasks, *flows], forget=[FlowStatus])
        try:
            rate_bps = self._link_bps()
        except RunError:  # the bed is being changed, or taken down
            return
        put_network(store, self._session, busy, rate_bps)

    def _work(
        self, pipelines: list[tuple[int, RunningPipeline]]
    ) -> tuple[list[TaskStatus], list[FlowStatus], Floats]:
        """Tasks and flows, and (N,) how many tasks of each node worked on average since the last look."""
        network, now_s = self._session.core.network, clock.unix_s()
        busy = np.zeros(len(network.names))
        tasks, flows, seen = [], [], {}
        for number, pipeline in pipelines:
            before = {}
            for name, node in zip(pipeline.live.pipeline.graph.order(), pipeline.placed.node, strict=True):
                now = seen[number, name] = pipeline.processes[name].latest
                before[name] = self._seen.get((number, name), {})
                if now.get("frames", 0.0) < before[name].get("frames", 0.0) or not before[name]:
                    before[name] = {"at_s": now.get("at_s", 0.0)}  # started anew
                if not now:
                    continue
                gained = {what: now[what] - before[name].get(what, 0.0) for what in ("busy_s", "at_s")}
                busy[node] += gained["busy_s"] / max(gained["at_s"], PERIOD_S)
                mean_s = now["busy_s"] / max(now["frames"], 1.0)
                tasks.append(TaskStatus(number, name, network.names[node], int(now["frames"]), mean_s, now_s))
            after = {name: seen[number, name] for name in before}
            for flow in rates_of(pipeline, network.names, 0.0, before, after).flows:
                way = ", ".join("-".join(network.names[n] for n in network.ends[link]) for link in flow.path)
                flows.append(FlowStatus(number, flow.edge, way, flow.allowed_bps, flow.measured_bps, now_s))
        self._seen = seen
        return tasks, flows, busy

    def _link_bps(self) -> Floats:
        """(L,) bits per second on the wire since the last look, both ways together."""
        now_s, carried = clock.monotonic_s(), self._session.backend.link_bytes().sum(axis=1)
        before_s, before = self._carried or (now_s, carried)
        self._carried = now_s, carried
        return np.asarray(8.0 * (carried - before) / max(now_s - before_s, PERIOD_S))


def put_network(store: MetaStore, session: "PipelineSession", busy: Floats, rate_bps: Floats) -> None:
    """All nodes and links as the session has them now: (N,) tasks that work, (L,) what the wires carry."""
    network, free = session.core.network, session.core.free_memory_bytes()
    count = np.zeros(len(network.names), dtype=np.int64)
    for pipeline in list(session.running.values()):
        np.add.at(count, pipeline.placed.node, 1)
    rows = (network.names, network.speed_ops, network.memory_bytes, free, count, busy)
    nodes = [
        NodeStatus(name, float(speed), float(memory), float(left), int(tasks), float(use), clock.unix_s())
        for name, speed, memory, left, tasks, use in zip(*rows, strict=True)
    ]
    links = [link_status(session, link, bps) for link, bps in enumerate(rate_bps.tolist())]
    store.put([*nodes, *links], forget=[NodeStatus, LinkStatus])


def link_status(session: "PipelineSession", link: int, rate_bps: float) -> LinkStatus:
    """A link as the session has it now, and what it carries."""
    network = session.core.network
    one, other = (network.names[node] for node in network.ends[link])
    whole_bps = float(session.backend.network.bandwidth_bps[link])
    return LinkStatus(one, other, whole_bps, bool(network.bandwidth_bps[link] > 0), rate_bps, clock.unix_s())
