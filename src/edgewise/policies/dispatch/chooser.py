"""A network that chooses the static policy of each window, run from an ONNX file and its card.

ASET (its paper) is this with seven candidates and algorithm 1 as printed; the cards that ship have nine.

A card says what its network decides on made-up views. These are the same on every machine. They catch a
network file that was changed, features that were changed, and a runtime that computes something else.

What it sees, ASET's state or one that fits any number of workers, is read from views only, so it is the same
in simulation and live. A network normalises by itself; nothing here depends on training.
"""

import hashlib
from collections import deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from edgewise.arrays import Floats, Floats32, Ints
from edgewise.core.dispatch.views import Bound, DispatchView, Rows
from edgewise.core.keyed import Key, Purpose, uniform
from edgewise.core.world import LARGEST, World
from edgewise.policies import cards
from edgewise.policies.cards import Card
from edgewise.policies.dispatch.meta import PAPER, MetaPolicy
from edgewise.policies.registry import policy

SECONDS = 25  # T: seconds of history in ASET's state
DEADLINES_S = (0.06, 0.2)  # N_delta = 3 intervals of tolerated delay: frames, interaction, the rest
RATES_QPS = (8.0, 18.0)  # N_rho = 3 intervals of data rate
GROUPS = (len(DEADLINES_S) + 1) * (len(RATES_QPS) + 1)
FEATURES = 3 + GROUPS
POOLED = 9 + GROUPS


def group_of(bound: Bound) -> Ints:
    """(N,) group of each stream: delay interval · N_rho + rate interval."""
    deadline = np.digitize(bound.items.deadline_s, DEADLINES_S)
    rate = np.digitize(bound.items.rate_qps, RATES_QPS)
    return np.asarray(deadline * (len(RATES_QPS) + 1) + rate, dtype=np.int64)


class History:
    """ASET's state, (3 + N_delta · N_rho) × |W| × T, as (W, features, T).

    Index [w, f, t]; t = T - 1 is the newest second. Seconds before the first are 0.

        f = 0        number of streams of worker w
        f = 1        throughput, responses/s
        f = 2        load L_w / C_w, 0 … 1
        f = 3 + g    queries/s bound to w in group g = 3 · (delay interval) + (rate interval);
                     delays 0-60-200 ms and more, rates 0-8-18 queries/s and more

    A view lists the streams that are bound when the window begins: those that closed before
    are missing from f >= 3 in the seconds that they lasted.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Floats, Floats, Floats]] = deque(maxlen=SECONDS)

    def observe(self, view: DispatchView) -> None:
        """Keep one second; the core calls this at each measurement."""
        load = view.load_qps / view.world.capacity_qps
        self._samples.append((view.now_s, view.streams.astype(np.float64), view.throughput_qps, load))

    def state(self, view: DispatchView) -> Floats32:
        """(W, features, T) at the beginning of a window."""
        state = np.zeros((view.world.workers, FEATURES, SECONDS), dtype=np.float32)
        if not self._samples:
            return state
        first = SECONDS - len(self._samples)
        for k, (_, *columns) in enumerate(self._samples, first):
            state[:, :3, k] = np.array(columns).T
        if view.bound is not None and view.bound.worker.size:
            times = np.array([sample[0] for sample in self._samples])
            column = first + np.searchsorted(times, view.bound.opened_s)
            seen = column < SECONDS
            where = (view.bound.worker[seen], 3 + group_of(view.bound)[seen], column[seen])
            np.add.at(state, where, view.bound.items.rate_qps[seen].astype(np.float32))
            state[:, 3:] = np.cumsum(state[:, 3:], axis=2)
        return state


def pooled_state(view: DispatchView) -> Floats32:
    """(W, features) of each worker now; a network pools over workers, so any number of them fits.

    0        accuracy / 100
    1        log10 of the capacity in queries/s
    2        processing delay of one query at the largest input, in units of 10 ms
    3        least one-way network delay d + 2σ from any site, in units of 10 ms
    4        load L_w / C_w
    5        measured throughput / C_w
    6        measured mean delay at the worker, in units of 10 ms, at most 10
    7        1 when up
    8        share of all capacity for its accuracy or better that is free
    9 + g    queries/s of group g (see `History`) / C_w
    """
    world = view.world
    capacity = world.capacity_qps
    way = (view.links.delay_s + 2.0 * view.links.deviation_s).min(axis=0)
    state = np.zeros((world.workers, POOLED), dtype=np.float32)
    state[:, 0] = world.accuracy / 100.0
    state[:, 1] = np.log10(np.maximum(capacity, 1e-3))
    state[:, 2] = np.minimum(world.real[LARGEST] / 0.01, 100.0)
    state[:, 3] = np.minimum(way[world.cluster] / 0.01, 100.0)
    state[:, 4] = view.load_qps / capacity
    state[:, 5] = view.throughput_qps / capacity
    state[:, 6] = np.minimum(view.delay_mean_s / 0.01, 10.0)
    state[:, 7] = view.up
    order = np.argsort(-world.accuracy, kind="stable")
    free, whole = np.cumsum((capacity - view.load_qps)[order]), np.cumsum(capacity[order])
    state[order, 8] = free / whole
    if view.bound is not None and view.bound.worker.size:
        where = (view.bound.worker, 9 + group_of(view.bound))
        np.add.at(state, where, (view.bound.items.rate_qps / capacity[view.bound.worker]).astype(np.float32))
    return state


COUNT = 16
SEED = 20_260_101
SITES, CLUSTERS = 2, 3


def golden_states(state: str, workers: int) -> Floats32:
    """(16, W, …) states of 16 made-up views, from an idle to a full world.

    Args:
        state: "pooled" or "history".
    """
    world = _world(workers)
    found = []
    for k in range(COUNT):
        history = History()
        for second in range(25):
            history.observe(_view(world, k, 25 * k + second))
        view = _view(world, k, 25 * k + 24)
        found.append(history.state(view) if state == "history" else pooled_state(view))
    return np.stack(found)


def features_hash(state: str) -> str:
    """Of the features of the golden views of a small world: the same features, the same hash."""
    return hashlib.sha256(np.round(golden_states(state, 8), 3).astype(np.float32).tobytes()).hexdigest()[:16]


def fingerprint(world: World) -> str:
    """Of a topology: its workers' variants, where they are, and how many sites there are."""
    text = repr((world.variant_names, world.cluster.tolist(), len(world.site_names)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _draw(what: int, shape: Sequence[int], low: float, high: float) -> Floats:
    draws = uniform(SEED, Purpose.POLICY, what, np.arange(int(np.prod(shape))))
    return np.asarray(low + (high - low) * draws).reshape(shape)


def _world(workers: int) -> World:
    names = tuple(f"w{k}" for k in range(workers))
    zeros = np.zeros(workers, dtype=np.int64)
    cluster = np.arange(workers) % CLUSTERS
    capacity = _draw(1, (workers,), 20.0, 200.0)
    return World(
        worker_names=names,
        variant_names=names,
        cluster_names=tuple(f"c{k}" for k in range(CLUSTERS)),
        node_names=("n",),
        site_names=tuple(f"s{k}" for k in range(SITES)),
        task_names=("t",),
        task=zeros,
        accuracy=np.round(_draw(2, (workers,), 20.0, 60.0)),
        capacity_qps=capacity,
        largest_bytes=np.full(workers, 1e6),
        fixed_s=_draw(3, (workers,), 0.005, 0.1),
        per_byte_s=np.zeros(workers),
        batch_slope=np.ones(workers),
        deviation=np.zeros(workers),
        max_batch=zeros + 1,
        servers=zeros + 1,
        cluster=cluster,
        node=zeros,
        delay_s=_draw(4, (SITES, CLUSTERS), 0.002, 0.03),
        deviation_s=_draw(5, (SITES, CLUSTERS), 0.0, 0.002),
        bandwidth_bps=np.full((SITES, CLUSTERS), 1e9),
        access_delay_s=np.full(SITES, 0.001),
        uplink_bps=np.full(SITES, 1e8),
        distribution=zeros,
        batch_timeout_s=np.zeros(workers),
    )


def _view(world: World, k: int, second: int) -> DispatchView:
    workers = world.workers
    share = k / (COUNT - 1) * _draw(1000 + second, (workers,), 0.5, 1.0)
    load = share * world.capacity_qps
    count = 4 * workers * k // COUNT
    ids = np.arange(count, dtype=np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    columns = [_draw(10 + j, (count,), *ends) for j, ends in enumerate(((2.0, 25.0), (0.02, 0.6)))]
    rows = Rows(
        ids, ids % SITES, zeros, columns[0], np.full(count, 4e4), columns[1], np.full(count, 10.0), zeros
    )
    opened = _draw(20, (count,), 25.0 * k - 60.0, 25.0 * k + 24.0)
    return DispatchView(
        world=world,
        now_s=float(second),
        seed=SEED,
        load_qps=load,
        streams=np.full(workers, 4 * k // COUNT, dtype=np.int64),
        up=np.ones(workers, dtype=np.bool_),
        queue=10.0 * share,
        throughput_qps=0.9 * load,
        delay_mean_s=world.fixed_s * (1.0 + share),
        delay_p95_s=world.fixed_s * (1.0 + 2.0 * share),
        measured_s=second - 0.5,
        bound=Bound(rows, ids % workers, opened),
    )


GOLDEN_WORKERS = 8  # of the golden views of a network that takes any number of workers
DEFAULT = "chooser-any"  # where no card was trained on the topology


class Trained:
    """A Q-network in ONNX with its card, checked when it is loaded.

    Args:
        card: of it; the network lies beside it, as NAME.onnx.
    Raises:
        PolicyError: a file is missing or unreadable, it was made for other features, or it
            decides otherwise than its card says.
    """

    def __init__(self, card: Card) -> None:
        self.card, part = card, card.part
        self.state, self.actions = str(part["state"]), tuple(map(str, part["actions"]))
        self.workers = int(part["workers"])  # 0: any number
        card.check_features(features_hash(self.state))
        self._run = card.network()
        states = golden_states(self.state, self.workers or GOLDEN_WORKERS)
        card.check_golden(self.values(states).argmax(axis=1), part["golden"])

    def values(self, states: Floats32) -> Floats32:
        """(B, actions) of (B, W, …) states."""
        (values,) = self._run(states)
        return np.asarray(values)


def trained(path: Path) -> Trained:
    """The network of a card, loaded and checked."""
    return Trained(cards.read("dispatch", path))


def of_card(card: Card) -> "Chooser":
    """The policy with the network of a card."""
    made = Chooser()
    made.card, made.name = _loaded(card.path, card.stamps), card.name
    return made


@cache
def _loaded(path: Path, stamps: tuple[tuple[str, int, int], ...]) -> Trained:
    """The network of a card, which gateways of one process share."""
    return trained(path)


@cache
def _shipped(topology: str) -> Trained:
    """What ships for a topology, loaded once per process: files that ship do not change."""
    paths = cards.shipped("dispatch")
    read = {name: cards.read("dispatch", path) for name, path in paths.items()}
    fits = (card for name, card in read.items() if name != DEFAULT and card.part["topology"] == topology)
    return Trained(next(fits, read[DEFAULT]))


@policy("chooser")
class Chooser(MetaPolicy):
    """A network that chooses the static policy of each window.

    ASET (its paper) is this with seven candidates and algorithm 1 as printed.

    It takes the shipped network of its topology, and one that fits any number of workers where none
    was trained. A subclass runs a network of one's own: set `card` to its file.

    Attributes:
        card: path of a card, or what was loaded from one; None chooses among those that ship.
        trained: the network in use.
    """

    card: str | Path | Trained | None = None

    def __init__(self) -> None:
        super().__init__(PAPER)

    def reset(self, world: World, key: Key) -> None:
        """Load the network that fits the world.

        Raises:
            PolicyError: there is none, or it cannot be used.
        """
        self.trained = self._fitting(world)
        wanted = self.trained.workers
        if wanted not in (0, world.workers):
            raise self.trained.card.error(
                f"its network is for {wanted} workers, here are {world.workers}; use one with state 'pooled'"
            )
        if self.trained.actions != self.actions:
            MetaPolicy.__init__(self, self.trained.actions)
        self._history = History() if self.trained.state == "history" else None
        super().reset(world, key)

    def observe(self, view: DispatchView) -> None:
        """Keep a second of history, where the network takes it."""
        if self._history is not None:
            self._history.observe(view)

    def choose(self, view: DispatchView) -> int:
        """max_a Q(s, a)."""
        state = pooled_state(view) if self._history is None else self._history.state(view)
        return int(self.trained.values(state[None])[0].argmax())

    def _fitting(self, world: World) -> Trained:
        if self.card is None:
            return _shipped(fingerprint(world))
        return self.card if isinstance(self.card, Trained) else trained(Path(self.card))
