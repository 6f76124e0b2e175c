"""What a system has already keeps its place when the scenario changes around it: port, core, draws."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.core.world import World
from edgewise.model.topology import Worker
from edgewise.runtime.controller.planned_ports import PlannedPorts
from edgewise.runtime.gateway.needs import known_as
from edgewise.runtime.http import LOCALHOST
from edgewise.runtime.process.serving import Listen
from edgewise.runtime.store import Process, Running, Store, sibling_name

SHARED = ("host", "grpc_port", "tls")  # of a port: where clients of all its processes ask, and how


class Known:
    """The processes of a system, as the store has them when a scenario comes.

    Attributes:
        rows: by name; a worker of a single node that is now numbered has its new one.
        renamed: new names by former ones.
        ports: for those that come.
    """

    def __init__(self, store: Store, world: World) -> None:
        self.rows = {running.process.name: running for running in store.processes()}
        self.renamed: dict[str, str] = {}
        self.ports = PlannedPorts(store)
        for name in world.worker_names:
            former = known_as(name, self.rows)
            if former is not None and former != name and former not in world.worker_names:
                self.renamed[former] = name
                self.rows[name] = self.rows.pop(former)
        self._entities = {r.process.settings["entity"] for r in self._of("worker")}

    def _of(self, kind: str) -> list[Running]:
        return [running for running in self.rows.values() if running.process.kind == kind]

    def worker(self, worker: Worker, settings: Mapping[str, Any]) -> Process:
        """A worker at the port and core, and with the draws, that it had; a new one takes what is free.

        One that comes and goes is there as it was.
        """
        name = worker.name
        if name in self.rows:
            old = self.rows[name].process
            entity, wanted = old.settings["entity"], old.wanted or worker.pool is None
            cores = _still(old.cores, entity)
            return Process(name, "worker", old.port, {**settings, "entity": entity}, cores, wanted)
        entity = next(number for number in itertools.count() if number not in self._entities)
        self._entities.add(entity)
        cores = core_of(entity)
        return Process(
            name, "worker", self.ports.free(), {**settings, "entity": entity}, cores, worker.at_first
        )

    def gateways(
        self,
        sites: Sequence[str],
        processes: int,
        where: Listen,
        settings: Mapping[str, Any],
        spaces: Mapping[str, Mapping[str, str]],
    ) -> list[Process]:
        """Gateways for sites, each of so many processes; those that are there keep theirs.

        Those that have ports by number have them before anybody else has one: they come first.
        """
        left, numbers = list(sites), dict[int, str]()
        for process in (running.process for running in self._of("gateway")):
            if process.share[0] == 0 and process.settings["site"] in left:
                left.remove(process.settings["site"])
                numbers[int(process.group.rpartition("-")[2])] = process.settings["site"]
        free = (number for number in itertools.count() if number not in numbers)
        numbers |= dict(zip(list(itertools.islice(free, len(left))), left, strict=True))
        self.ports.keep(
            first + number for first in (where.port, where.grpc_port) if first for number in numbers
        )
        return [
            process
            for number, site in sorted(numbers.items())
            for process in self._sharing(
                self._gateway(number, site, where, {**settings, **spaces.get(site, {})}), processes
            )
        ]

    def _sharing(self, front: Process, processes: int) -> list[Process]:
        """The processes of a gateway: of several each has a private port, and all share its own.

        One that is a pod has both, too: its successor answers at the same port beside it.
        """
        if processes == 1 and not front.is_pod:
            return [front]
        shared = {"port": front.port} | {name: front.settings[name] for name in SHARED}
        elsewhere = front.is_pod or "space" in front.settings
        host = front.settings["host"] if elsewhere else LOCALHOST
        settings = front.settings | {"host": host, "grpc_port": None, "tls": None, "shared": shared}
        return [
            Process(name, "gateway", self._private_port(name), settings | {"share": (number, processes)})
            for number in range(processes)
            for name in (sibling_name(front.name, number),)
        ]

    def _private_port(self, name: str) -> int:
        """The port that a process had for itself, or a free one."""
        before = self.rows[name].process if name in self.rows else None
        return before.port if before is not None and "share" in before.settings else self.ports.free()

    def _gateway(self, number: int, site: str, where: Listen, settings: Mapping[str, Any]) -> Process:
        name = f"gateway-{number}"
        before = self.rows[name].process.front if name in self.rows else None
        port = where.port + number if where.port else before.port if before else self.ports.free()
        grpc_port = where.grpc_port and where.grpc_port + number
        if grpc_port == 0:
            grpc_port = (before.settings.get("grpc_port") if before else None) or self.ports.free()
        return Process(name, "gateway", port, {**settings, "site": site, "grpc_port": grpc_port})


def _still(cores: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The cores that a process is kept on, where this machine still has them."""
    here = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    return cores if cores and here.issuperset(cores) else core_of(number)


def core_of(number: int) -> tuple[int, ...]:
    """One of this machine's cores, in turn; none where processes cannot be kept on one."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (cores[number % len(cores)],) if cores else ()
