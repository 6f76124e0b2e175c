"""What the controller shows of a system: its status, processes, streams, and who decides."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgewise.policies import DECISIONS
from edgewise.runtime import clock
from edgewise.runtime.controller.health import Health
from edgewise.runtime.controller.jobs import LiveJobs
from edgewise.runtime.controller.live_plane import LivePlane
from edgewise.runtime.controller.pipelines import LivePipelines
from edgewise.runtime.controller.replicas import Replicas
from edgewise.runtime.controller.requests import ledger
from edgewise.runtime.controller.rolling import TRIES, Rolling
from edgewise.runtime.controller.switching import Switching
from edgewise.runtime.process.lifecycle import Lifecycle
from edgewise.runtime.store import Process, Running
from edgewise.runtime.store.steady import SteadyStore
from edgewise.runtime.watch.logs import said_last


@dataclass(slots=True)
class Overview:
    """Asks the parts of a controller.

    Args:
        here: who decides in the controller itself, by decision.
        gateways: what each gateway answers, by method and path, None where it refuses.
    """

    store: SteadyStore
    plane: LivePlane
    processes: Lifecycle[Process]
    health: Health
    jobs: LiveJobs
    replicas: Replicas
    pipelines: LivePipelines
    rolling: Rolling
    switching: Switching
    here: Mapping[str, Replicas | LivePipelines | LiveJobs]
    gateways: Callable[[str, str], Awaitable[list[dict[str, Any]]]]

    async def status(self) -> dict[str, Any]:
        """All of it at a glance."""
        running, rows = self.store.processes(), self.policies()
        for row in rows:
            seen = [each["answer"] for each in await self.shadows(row["decision"])] if row["shadow"] else []
            for count in ("decisions", "alike"):
                row[count] = sum(each.get(count, 0) for each in seen) if seen else None
        return {
            "policies": rows,
            "processes": [self._row(r) for r in running if not r.away],
            "streams_open": self.store.records.streams_open(),
            "jobs": self._counted(lambda: [job.state for job in self.jobs.book.listed()]),
            "pipelines": self._counted(lambda: [kept.state for kept in self.pipelines.book.listed()]),
            "orchestration": self.replicas.report(),
            "nodes": self.store.read_or(lambda: ledger(self.plane), list[dict[str, Any]]()),
            "change": self.rolling.report(),
            "store": self.store.trouble,
        }

    def policies(self, decisions: Iterable[str] = DECISIONS) -> list[dict[str, Any]]:
        """Who decides, who watches, and why a policy is not followed."""
        faults = {name: each.fault for name, each in self.here.items()}
        faults["requests"] = self.replicas.requests_fault
        return [
            row
            | {
                "fault": faults.get(of := row["decision"]) or None,
                "faults": self.store.faults_since_switch(of),
            }
            for row in self.switching.report(decisions)
        ]

    async def shadows(self, decision: str) -> list[dict[str, Any]]:
        """What a second policy would have decided, wherever that is made."""
        if decision in self.here:
            return [{"gateway": "controller", "answer": self.here[decision].watched()}]
        found = await self._said(f"/v1/admin/shadows/{decision}")
        if decision == "split":  # each variant has its own
            return [row | {"answer": each} for row in found for each in row["answer"]]
        return found

    async def listed(self, kind: str) -> list[dict[str, Any]]:
        """Processes of a kind, with what gateways say of workers."""
        kinds = ("worker", "replica") if kind == "worker" else (kind,)
        mine = [r for r in self.store.processes() if r.process.kind in kinds and not r.away]
        rows = [
            self._row(r) | (self.replicas.describe(r) if r.process.kind == "replica" else {}) for r in mine
        ]
        if kind == "worker":
            for seen in await self._said("/v1/admin/workers"):
                views = {view["worker"]: view for view in seen["answer"]}
                for row in rows:
                    if row["name"] in views:  # a gateway that is yet to be started anew may not know it
                        row.setdefault("gateways", {})[seen["gateway"]] = views[row["name"]]
        return rows

    async def streams(self) -> list[dict[str, Any]]:
        """Streams as they are kept; of open ones what their gateways say now."""
        rows = self.store.records.streams()
        now: dict[int, dict[str, Any]] = {}
        for seen in await self._said("/v1/streams"):
            now |= {row["stream"]: row for row in seen["answer"]}
        figures = ("worker", "variant", "cluster", "reason", "queries", "ok", "failed", "rejected", "excess")
        for row in rows:
            found = now.get(row["stream"])
            if found is not None and row["closed_s"] is None:
                row |= {name: found[name] for name in figures}
        return rows

    async def _said(self, path: str) -> list[dict[str, Any]]:
        """By the gateways that know of it."""
        return [row for row in await self.gateways("GET", path) if row["answer"] is not None]

    def _counted(self, states: Callable[[], list[str]]) -> dict[str, int]:
        return Counter(self.store.read_or(states, list[str]()))

    def _row(self, running: Running) -> dict[str, Any]:
        process, handle = running.process, running.handle
        up = handle is not None and self.processes.alive(handle)
        fails = process.wanted and running.failures >= TRIES and not (up and handle in self.health.served)
        state = "failed" if fails else "running" if up else "starting" if process.wanted else "stopped"
        if handle is not None and self.health.away(process, handle):
            state = "away"
        if process.settings.get("node") in self.store.nodes_down():
            state = "node down"
        return {
            "name": process.name, "kind": process.kind, "url": process.url, "wanted": process.wanted,
            "outdated": running.outdated, "failures": running.failures if fails else 0,
            "why": said_last(self.store.file.parent, process.name) if fails else None,
            "state": state if process.wanted or not up else "draining", "restarts": running.restarts,
            "since_s": clock.unix_s() - running.started_s if up else None, "handle": handle,
        }  # fmt: skip
