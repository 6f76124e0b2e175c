"""A process that is wanted, and what is known of one that runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Process:
    """A process that is wanted.

    Attributes:
        name: unique.
        kind: "worker", "replica" or "gateway".
        port: where it listens; the same after every restart.
        settings: what `edgewise.runtime.process.entry` needs to run it; JSON values.
        cores: it may run on; all when empty.
        wanted: whether it should run.
        address: where its backend says that it answers, a URL; None: at its port, here.
    """

    name: str
    kind: str
    port: int
    settings: dict[str, Any] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    wanted: bool = True
    address: str | None = None

    @property
    def pooled(self) -> bool:
        """Whether it is a worker that comes and goes."""
        return "start_s" in self.settings

    @property
    def taken(self) -> bool:
        """Whether it is a worker whose server somebody else runs: it is shown none of our tokens."""
        return "served_by" in self.settings

    @property
    def share(self) -> tuple[int, int]:
        """Its number among the processes that share its gateway's port, and how many these are."""
        number, count = self.settings.get("share", (0, 1))
        return int(number), int(count)

    @property
    def is_pod(self) -> bool:
        """Whether it is a gateway that its cluster runs, with an address, and so a port, of its own."""
        return bool(self.settings.get("pod"))

    @property
    def group(self) -> str:
        """The first of the processes that share a port."""
        return self.name.partition(".")[0] if "share" in self.settings else self.name

    @property
    def front(self) -> "Process":
        """As clients reach it: at its own port, or at the one that it shares."""
        shared = self.settings.get("shared")
        if shared is None:
            return self
        return replace(self, name=self.group, port=shared["port"], settings=self.settings | shared)

    @property
    def url(self) -> str:
        """Where it answers this machine."""
        if self.address is not None:
            return self.address
        host = str(self.settings.get("host") or "127.0.0.1")
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        scheme = "https" if self.settings.get("tls") else "http"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @property
    def digest(self) -> str:
        """Of everything that a running process of it would have to be started anew for."""
        text = json.dumps([self.kind, self.port, self.settings, self.cores], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Running:
    """What is known of a wanted process: `handle` is the backend's name for it, None before its start.

    `failures` counts ends in a row before it served; `restarts` all starts but the first; `outdated` says
    that a successor with other settings shall take its place.
    """

    process: Process
    handle: str | None
    started_s: float
    restarts: int
    failures: int
    outdated: bool

    @property
    def away(self) -> bool:
        """Whether it is a worker that is not there now, and may be started."""
        return self.process.pooled and not self.process.wanted and self.handle is None


@lru_cache(4096)  # the controller reads them fifty times a second, gateways four times
def process_of(
    name: str, kind: str, port: int, settings: str, cores: str, wanted: int, address: str | None
) -> Process:
    """A process as it is written down; nobody changes its settings in place."""
    return Process(name, kind, port, json.loads(settings), tuple(json.loads(cores)), bool(wanted), address)


def sibling_name(gateway: str, number: int) -> str:
    """Name of one of the processes that share a gateway's port; the first has the gateway's."""
    return f"{gateway}.{number}" if number else gateway


def from_fields(fields: Mapping[str, Any]) -> Process:
    """A process from its fields, as JSON has them."""
    return msgspec.convert(fields, Process)
