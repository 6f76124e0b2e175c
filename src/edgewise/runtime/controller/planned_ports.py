"""Ports of processes that are wanted: each has its own from its planning on, not only once it listens."""

import json
from collections.abc import Iterable, Iterator

from edgewise.runtime.http.ports import free_port
from edgewise.runtime.store import Process, Store, from_fields


class PlannedPorts:
    """Gives ports that nobody listens on and that nobody else is to have.

    Whoever writes down what it was given does both `at_once`.

    Args:
        store: knows whose ports are planned: of processes, of those that shall take their places and those
            that gave theirs away, and the controller's.
    """

    def __init__(self, store: Store) -> None:
        found: list[tuple[str]] = store.read_or(lambda: store.rows("SELECT process FROM successor"), [])
        successors = [from_fields(json.loads(text)) for (text,) in found]
        rows = [running.process for running in store.processes()]
        self._planned = {port for process in (*rows, *successors) for port in _ports_of(process)}
        self._planned |= {port for _, port, _ in store.retired()}
        self.keep([(store.get("controller") or {}).get("port", 0)])

    @property
    def all(self) -> frozenset[int]:
        """Those that are planned, and those that were given."""
        return frozenset(self._planned)

    def keep(self, ports: Iterable[int]) -> None:
        """These are somebody's, too."""
        self._planned.update(ports)

    def free(self) -> int:
        """A port that was nobody's."""
        port = free_port(self._planned)
        self._planned.add(port)
        return port


def _ports_of(process: Process) -> Iterator[int]:
    """Where a process is to listen, itself and with others."""
    for each in (process, process.front):
        yield from (port for port in (each.port, each.settings.get("grpc_port")) if port)
