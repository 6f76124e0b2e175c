"""What policies see: arrays over workers, and the items to be decided.

Every field is either *ledger* (our own bindings: exact) or *measured* (arrived by
telemetry, with an age). Nothing here can reach the driver's truth. All arrays are read-only.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.world import Links, World
from edgewise.model.work import Stream

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """A read-only copy."""
    copy = array.copy()
    copy.setflags(write=False)
    return copy


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """The same array, not to be written to by who gets it."""
    shown = array.view()
    shown.setflags(write=False)
    return shown


LEFT, DECLARED, UNSENT = range(3)  # rows of `DispatchView.link`


class Violation(IntEnum):
    """Constraints of a binding, in the order they are tested; the first violated is the reason."""

    NONE = 0
    TASK = 1
    ACCURACY = 2
    DOWN = 3
    DELAY = 4
    CAPACITY = 5
    LINK = 6
    POLICY = 7
    STARTING = 8


REASONS = {
    Violation.NONE: "",
    Violation.TASK: "no worker implements the task",
    Violation.ACCURACY: "no model is accurate enough",
    Violation.DOWN: "every suitable worker is down",
    Violation.DELAY: "no suitable worker can answer within the deadline",
    Violation.CAPACITY: "every suitable worker is at capacity",
    Violation.LINK: "every link to a suitable worker is at capacity",
    Violation.POLICY: "the policy refused",
    Violation.STARTING: "a suitable worker is about to start",
}
CODES = {text: int(code) for code, text in REASONS.items()}


class Item(NamedTuple):
    """One stream to be bound, as a policy sees it. Its end is not known.

    Attributes:
        id: number of the stream.
        site: index of where it enters.
        task: index into `World.task_names`.
        rate_qps: queries that it sends.
        size_bytes: payload of each (ζ).
        deadline_s: from sending a query to its answer.
        min_accuracy: of the variant that serves it.
        priority: of the stream; higher goes first.
    """

    id: int
    site: int
    task: int
    rate_qps: float
    size_bytes: float
    deadline_s: float
    min_accuracy: float
    priority: int


class Candidates(NamedTuple):
    """The view of one item: what `score(view, item)` reads.

    *Ledger* is exact and the core's own, *static* never changes, *item* is for this item, *measured* is as
    old as `age_s` says.

    Attributes:
        now_s: time of the decision.
        load_qps: (W,) ledger: load normalised by fractional load (L_w).
        streams: (W,) ledger: streams bound.
        up: (W,) ledger: whether it serves, as far as is known.
        capacity_qps: (W,) static: load that it can carry (C_v).
        accuracy: (W,) static: of its variant.
        cluster: (W,) static: index of its cluster.
        node: (W,) static: index of its node.
        network_s: (W,) item: one way there, d + 2σ.
        processing_s: (W,) item: D_v(ζ).
        impedance_s: (W,) item: 2 (d + 2σ) + D_v.
        share_qps: (W,) item: load that it would add (η ρ).
        violation: (W,) item: a `Violation`, 0 where feasible.
        feasible: (W,) item: whether it may be bound there.
        draw: (W,) item: uniform in (0, 1), keyed by run, item and worker.
        queue: (W,) measured: queries that wait.
        throughput_qps: (W,) measured: queries served.
        delay_mean_s: (W,) measured: mean sojourn.
        delay_p95_s: (W,) measured: 95th percentile of sojourns.
        backlog_s: (W,) measured: how long the busiest link on the way there has still to send; 0 where links
            are not shared.
        sending_s: (W,) item: 2 δ + ζ / u, access there and back, and its payload at the slowest link.
        link_load: (W,) ledger: part that is declared of the link on the way there that would be fullest with
            this item; 0 where links are not shared.
        age_s: of what is measured.
        ready_s: (W,) ledger: see `DispatchView`.
    """

    now_s: float
    load_qps: Floats
    streams: Ints
    up: Bools
    capacity_qps: Floats
    accuracy: Floats
    cluster: Ints
    node: Ints
    network_s: Floats
    processing_s: Floats
    impedance_s: Floats
    share_qps: Floats
    violation: NDArray[np.int8]
    feasible: Bools
    draw: Floats
    queue: Floats
    throughput_qps: Floats
    delay_mean_s: Floats
    delay_p95_s: Floats
    backlog_s: Floats
    sending_s: Floats
    link_load: Floats
    age_s: float
    ready_s: Floats


class Rows(NamedTuple):
    """Items as columns, as kernels read them; each as of `Item`.

    Attributes:
        id: (N,)
        site: (N,)
        task: (N,)
        rate_qps: (N,)
        size_bytes: (N,)
        deadline_s: (N,)
        min_accuracy: (N,)
        priority: (N,)
    """

    id: Ints
    site: Ints
    task: Ints
    rate_qps: Floats
    size_bytes: Floats
    deadline_s: Floats
    min_accuracy: Floats
    priority: Ints

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Rows":
        """Items laid out as columns."""
        columns: list[tuple[float, ...]] = list(zip(*items, strict=True)) or [()] * len(cls._fields)
        id_, site, task, priority = (np.array(columns[k], dtype=np.int64) for k in (0, 1, 2, 7))
        rate, size, deadline, accuracy = (np.array(columns[k], dtype=np.float64) for k in range(3, 7))
        return cls(id_, site, task, rate, size, deadline, accuracy, priority)

    def item(self, i: int) -> Item:
        """Row `i` as an item."""
        return Item(*(column[i].item() for column in self))


class Bound(NamedTuple):
    """The streams that are bound, in order of their opening: (N,) each.

    items: what they need. worker: where they are bound. opened_s: when they were opened.
    """

    items: Rows
    worker: Ints
    opened_s: Floats

    @classmethod
    def of(cls, held: Sequence[tuple[Item, float]], workers: Collection[int]) -> "Bound":
        """Items with the times of their opening, and where each is bound; read-only."""
        rows = Rows(*map(frozen, Rows.of([item for item, _ in held])))  # type: ignore[arg-type]
        opened_s = np.array([opened_s for _, opened_s in held], dtype=np.float64)
        worker = np.fromiter(workers, dtype=np.int64, count=len(held))
        return cls(rows, frozen(worker), frozen(opened_s))


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """Q items as columns; iterate for `Item` rows."""

    rows: tuple[Item, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.rows)

    def __getitem__(self, i: int) -> Item:
        return self.rows[i]

    def column(self, name: str) -> Floats:
        """(Q,) values of one field of `Item`, e.g. "rate_qps"."""
        return np.array([getattr(row, name) for row in self.rows], dtype=np.float64)

    @classmethod
    def of(cls, world: World, streams: Sequence[Stream]) -> "Items":
        """The items of streams; their end stays behind."""
        tasks = {s.task for s in streams}
        task = {name: world.task_index(name) for name in tasks}
        return cls(
            tuple(
                Item(
                    id=s.id,
                    site=s.site,
                    task=task[s.task],
                    rate_qps=s.rate_qps,
                    size_bytes=s.size_bytes,
                    deadline_s=s.deadline_s,
                    min_accuracy=s.min_accuracy,
                    priority=s.priority,
                )
                for s in streams
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class DispatchView:
    """The whole view at one moment: the world, the ledger, and what was measured.

    Attributes:
        world: static arrays.
        now_s: time of the event being decided.
        seed: keys tie-breaking draws.
        load_qps, streams, up: (W,) ledger.
        queue, throughput_qps, delay_mean_s, delay_p95_s: (W,) measured.
        measured_s: when those were measured; -inf when never.
        links: (S, C) ways as last reported; a way that is down has an infinite delay.
        link: (3, L) of the links that messages share. LEFT: bit/s beside what is reserved and what other
            gateways' streams declare, as last told. DECLARED: bit/s of the streams that are bound over it,
            ledger. UNSENT: bits that it had still to send, measured.
        bound: the streams bound now; given to `tick`, None for single decisions.
        ready_s: (W,) when a worker that is not up will be, as far as is known, absolute; else infinite, and 0
            where it is up.
    """

    world: World
    now_s: float
    seed: int
    load_qps: Floats
    streams: Ints
    up: Bools
    queue: Floats
    throughput_qps: Floats
    delay_mean_s: Floats
    delay_p95_s: Floats
    measured_s: float
    links: Links = field(default=None)  # type: ignore[assignment]
    link: Floats = field(default=None)  # type: ignore[arg-type]
    bound: Bound | None = None
    ready_s: Floats = field(default=None)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.links is None:
            object.__setattr__(self, "links", self.world.links)
        if self.link is None:
            idle = np.zeros((3, self.world.link_bps.size))
            idle[LEFT] = self.world.link_bps
            object.__setattr__(self, "link", read_only(idle))
        if self.ready_s is None:
            object.__setattr__(self, "ready_s", read_only(np.where(self.up, 0.0, np.inf)))

    @property
    def age_s(self) -> float:
        """Age of the measured fields; inf when nothing was measured yet."""
        return self.now_s - self.measured_s

    @property
    def backlog_s(self) -> Floats:
        """(S, C) how long the busiest link of each way there has still to send, measured."""
        wait_s = self.link[UNSENT] / np.maximum(self.link[LEFT], 1.0)
        path = self.world.path
        return np.asarray(np.where(path >= 0, wait_s[path], 0.0).max(axis=2, initial=0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """A worker for each item, or a refusal.

    Attributes:
        worker: (Q,) index, -1 to refuse.
        reason: (Q,) `Violation` of each refusal, 0 where bound.
    """

    worker: Ints
    reason: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
