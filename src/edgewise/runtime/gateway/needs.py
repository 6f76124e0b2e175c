"""What a gateway knows of streams besides its core: needs, where they are noted, and how they are treated.

Needs are stated by clients, as a JSON object or as headers of each query. Open streams and moved workers are
noted in memory, or in a store that survives the gateway.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgewise.core.dispatch.policing import BURST
from edgewise.core.world import World
from edgewise.errors import ProtocolError
from edgewise.model.grammar.scenario import BUDGETS_S, BudgetsSpec
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.runtime import clock
from edgewise.runtime.protocol.messages import DEADLINE, number, text
from edgewise.runtime.store import Store
from edgewise.runtime.store.database import LEAST_PAUSE_S, WAIT_S, StoreError
from edgewise.runtime.store.records import ALONE, OpenStream, stream_number

FIGURES: dict[str, float | None] = {
    "rate_qps": None, "size_bytes": None, "deadline_s": None, "min_accuracy": 0.0,
}  # fmt: skip
KNOWN = ("task", "application", "source", "site", "priority", *FIGURES)
HEADERS = {
    "edgewise-rate-qps": "rate_qps",
    DEADLINE: "deadline_s",
    "edgewise-size-bytes": "size_bytes",
    "edgewise-min-accuracy": "min_accuracy",
    "edgewise-application": "application",
    "edgewise-site": "site",
    "edgewise-priority": "priority",
}
WORDS = ("application", "site")
LONGEST = 200


def from_headers(headers: Mapping[str, str], task: str, size_bytes: int) -> dict[str, Any]:
    """Needs in the headers of a query; the size is that of the query where no header says it.

    Raises:
        ProtocolError: a header is no number.
    """
    needs: dict[str, Any] = {"task": task, "size_bytes": size_bytes}
    for header, name in HEADERS.items():
        if header in headers:
            needs[name] = headers[header] if name in WORDS else _number(headers[header], header)
    return needs


def to_stream(needs: dict[str, Any], stream_id: int, world: World, now_s: float) -> Stream:
    """The stream that has these needs.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    if strange := sorted(set(needs) - set(KNOWN)):
        raise ProtocolError(f"{strange[0][:80]}: unknown; a stream has {', '.join(sorted(KNOWN))}")
    site = needs.get("site", world.site_names[0])
    if not isinstance(site, str) or site not in world.site_names:
        raise ProtocolError(f"site: {str(site)[:80]!r} is none of {', '.join(world.site_names)}")
    task = text(needs.get("task"), "task", least=0, most=LONGEST)
    application = text(needs.get("application", ""), "application", least=0, most=LONGEST)
    source = text(needs.get("source", ""), "source", least=0, most=LONGEST)
    priority = needs.get("priority", 0)
    if type(priority) is not int or abs(priority) > 2**31:
        raise ProtocolError("priority: a whole number is needed")
    figures = {name: number(needs.get(name, default), name) for name, default in FIGURES.items()}
    if figures["rate_qps"] == 0.0:
        raise ProtocolError("rate_qps: must be greater than 0")
    return Stream(
        id=stream_id,
        site=world.site_names.index(site),
        application=application,
        source=source,
        task=task,
        open_s=now_s,
        close_s=math.inf,
        priority=priority,
        rate_qps=figures["rate_qps"],
        size_bytes=figures["size_bytes"],
        deadline_s=figures["deadline_s"],
        min_accuracy=figures["min_accuracy"],
    )


def _number(text: str, header: str) -> float | int:
    try:
        return int(text) if header == "edgewise-priority" else float(text)
    except ValueError:
        raise ProtocolError(f"{header}: {text!r} is not a number") from None


Key = tuple[str | None, ...]


class Move(NamedTuple):
    """Where a worker is now, its model's name there, and the token that it wants to see."""

    url: str
    model: str
    token: str | None = None


class Book:
    """Numbers streams and keeps them, and where workers moved.

    Args:
        store: that all gateways share; numbers are unique over all of them. None keeps nothing.
        gateway: whose streams these are.
        share: of its process in the gateway's port, see `Process.share`.
    """

    def __init__(self, store: Store | None = None, gateway: str = "", share: tuple[int, int] = ALONE) -> None:
        self._store, self._gateway, self._share = store, gateway, share

    async def opened(self, stated: dict[str, Any], key: Key | None, owner: str) -> int:
        """A new stream's number; once this returns the stream is kept.

        While another program holds the store it is tried again and again, and others have their turn.

        Raises:
            ProtocolError: it cannot be kept; status 503.
        """
        if self._store is None:
            return stream_number(self._share)
        until_s = clock.monotonic_s() + WAIT_S
        while True:
            try:
                return self._store.records.open_stream(self._gateway, stated, key, owner, self._share)
            except StoreError as error:
                if not error.held or clock.monotonic_s() > until_s:
                    raise ProtocolError(f"no stream can be kept: {error}", status=503) from error
            await clock.sleep(LEAST_PAUSE_S)

    def closed(self, stream_id: int, worker: str | None, outcome: dict[str, Any]) -> None:
        """A stream ended."""
        if self._store is not None:
            self._store.records.close_stream(stream_id, worker, outcome)

    def kept(self) -> list[OpenStream]:
        """Streams that are open, of this gateway's earlier life."""
        return [] if self._store is None else self._store.records.open_streams(self._gateway)

    def policy(self, decision: str, what: str) -> str:
        """The policy that the store names, see `Store.policy`; "" where there is no store."""
        return "" if self._store is None else self._store.policy(decision, what)

    def moved(self, worker: str, where: Move) -> None:
        """A worker is at another address."""
        if self._store is not None:
            self._store.put(f"moved {self._gateway}", self.moves() | {worker: where})

    def moves(self) -> dict[str, Move]:
        """Where each worker is that moved in this gateway's earlier life."""
        found = {} if self._store is None else self._store.moved(self._gateway)
        return {name: Move(*where) for name, where in found.items()}


def known_as(name: str, names: Collection[str]) -> str | None:
    """A worker's name among others: variant@node is variant@node#0 where there are several, and back."""
    return next((each for each in (name, f"{name}#0", name.removesuffix("#0")) if each in names), None)


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How streams are treated.

    Attributes:
        window_s: length of a window.
        retry_refused: decide refused streams anew at each window.
        burst: queries that any stream may send at once, see `core.policing`.
        budgets_s: that policies have for a decision, and those in shadow.
        keep_closed: closed streams whose records are kept; older ones are forgotten.
    """

    window_s: float = 25.0
    retry_refused: bool = False
    burst: float = BURST
    keep_closed: int = 10_000
    budgets_s: BudgetsSpec = BUDGETS_S

    @classmethod
    def of(cls, scenario: Scenario) -> "StreamRules":
        """Those of a scenario."""
        streams = scenario.streams
        budgets_s = scenario.live.budgets_s
        return cls(scenario.window_s, scenario.retry_refused, streams.burst, budgets_s=budgets_s)


RULES = StreamRules()
"""Where no scenario says otherwise."""
