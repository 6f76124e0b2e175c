"""Requests and replicas in slots: many worlds in step, on arrays.

A slot that begins at time T goes: requests that arrived until T join their site's queue; those that cannot
end in time leave it; orchestration (at the start of a frame) adds and removes replicas; every site sends its
head to a station; stations work through [T, T + slot), event by event.

    worlds = ReplicaWorlds(system, requests, seeds=range(64))
    view = worlds.reset()
    while not worlds.done:
        if worlds.frame_begins:
            applied = worlds.scale(commands)       # (W, K, 2) -> (W, K) bool
        result = worlds.step(stations)             # (W, B) -> SlotResult; worlds.view is the next slot's
    outcome = worlds.outcome()
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.dispatch.request_policy import IMPOSSIBLE
from edgewise.core.guard import Guard
from edgewise.core.keyed import Key
from edgewise.core.one_world import batched
from edgewise.core.orchestrate import (
    ReplicaPolicy,
    ReplicaView,
    RequestPolicy,
    Requests,
    SlotResult,
    check_requests,
)
from edgewise.errors import PolicyError, ScenarioError
from edgewise.kernels.compiled import numba
from edgewise.model.orchestration import System
from edgewise.policies.requests.rules import KernelDispatch
from edgewise.sim.slots import replica_state as k
from edgewise.sim.slots.guarded import GuardedRequests
from edgewise.sim.slots.replica_slots import (
    Span,
    pass_all,
    passing,
    scale_all,
)


class ServiceOutcome(NamedTuple):
    """What a run came to; F frames. arrived = in_time + late + dropped + waiting, per world.

    Attributes:
        arrived, in_time, late, dropped: (W, F) requests by the frame in which it happened.
        waiting: (W,) requests that had not ended at the end: at sites, on the way, queued, worked on.
        forwarded_bytes: (W, F) payload sent to the cloud or to nodes of other sites.
        local_bytes: (W, F) payload sent to nodes of the own site.
        image_bytes: (W, F) image layers pulled.
    """

    arrived: Ints
    in_time: Ints
    late: Ints
    dropped: Ints
    waiting: Ints
    forwarded_bytes: Floats
    local_bytes: Floats
    image_bytes: Floats

    @property
    def throughput_rate(self) -> Floats:
        """(W,) Φ': requests done within their deadline / requests arrived; NaN where nothing arrived."""
        return _share(self.in_time.sum(axis=1), self.arrived.sum(axis=1))

    @property
    def frame_throughput_rate(self) -> Floats:
        """(W, F) Φ_f, the same per frame; NaN where nothing arrived, above 1 where older requests ended."""
        return _share(self.in_time, self.arrived)

    @property
    def cost_bytes(self) -> Floats:
        """(W, F) Φ_c: forwarded and image bytes."""
        return self.forwarded_bytes + self.image_bytes


def _share(part: Ints, whole: Ints) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0))


class ReplicaWorlds:
    """W worlds of one system that go through their slots together.

    Args:
        system: sites, nodes, services.
        requests: W worlds of them.
        slots: how many; a multiple of `system.frame_slots`.
        seeds: (W,) key of each world's own draws (delays, service times).
        threads: how many `run` uses; None for all that numba has.
        nodes_per_frame: most nodes that change in a frame; None: all.
    Raises:
        ScenarioError: requests break a rule (order, range, sign), or slots is no multiple of a frame.
    """

    def __init__(
        self,
        system: System,
        requests: Requests,
        slots: int,
        seeds: Sequence[int],
        threads: int | None = 1,
        nodes_per_frame: int | None = None,
    ) -> None:
        if slots <= 0 or slots % system.frame_slots:
            raise ScenarioError(f"slots is {slots}; use a multiple of frame_slots, {system.frame_slots}")
        self.system, self.slots = system, slots
        self._most_nodes = system.nodes if nodes_per_frame is None else nodes_per_frame
        self._threads = threads or numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        self.reset(requests, seeds)

    def reset(self, requests: Requests | None = None, seeds: Sequence[int] | None = None) -> ReplicaView:
        """Back to slot 0, with other requests and seeds if they are given.

        Raises:
            ScenarioError: requests break a rule, or there is not one seed for each world.
        """
        if requests is not None:
            check_requests(self.system, requests)
            self._requests = requests
        if seeds is not None:
            self._seeds = np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64)
        if self._seeds.shape != self._requests.count.shape:
            raise ScenarioError(f"{self._seeds.size} seeds for {self._requests.worlds} worlds; give one each")
        self.slot = 0
        frames = self.slots // self.system.frame_slots
        self.state = k.new_worlds(self.system, self._requests, frames, self._seeds)
        pass_all(self.system, *self.state, np.zeros(self.view.site.shape, dtype=np.int64), -1, True)
        return self.view

    @property
    def view(self) -> ReplicaView:
        """What policies see in this slot; its arrays hold until the next `step`."""
        return self.state.seen

    @property
    def done(self) -> bool:
        """Whether all slots have passed."""
        return self.slot >= self.slots

    @property
    def frame_begins(self) -> bool:
        """Whether this slot is the first of a frame, when policies may scale."""
        return self.slot % self.system.frame_slots == 0

    def scale(self, commands: Ints) -> Bools:
        """Carry out (W, C, 2) `core.orchestrate.commands_of`; (W, C) which were valid.

        Raises:
            PolicyError: they do not have this shape.
        """
        if commands.ndim != 3 or commands.shape[0] != len(self._seeds) or commands.shape[2] != 2:
            raise PolicyError(f"commands must be of shape ({len(self._seeds)}, C, 2), got {commands.shape}")
        valid = np.zeros(commands.shape[:2], dtype=np.bool_)
        commands = np.ascontiguousarray(commands, dtype=np.int64)
        scale_all(self.system, *self.state, commands, self.slot, self._most_nodes, valid)
        return valid

    def step(self, stations: Ints, guard: Guard | None = None) -> SlotResult:
        """Dispatch every site's head, (W, B) station or HOLD, and let the slot pass.

        Args:
            guard: counts decisions that cannot be carried out; these requests go to the cloud.
        Raises:
            PolicyError: without a guard, a station does not exist, or does not host the service; nothing has
                changed then.
        """
        self._refuse_end()
        stations = np.ascontiguousarray(stations, dtype=np.int64)
        if stations.shape != self.view.site.shape:
            raise PolicyError(f"stations must be of shape {self.view.site.shape}, got {stations.shape}")
        self._grow()
        wrong, where = pass_all(self.system, *self.state, stations, self.slot, guard is None)
        if wrong and guard is None:
            raise PolicyError(self._impossible(where, stations))
        if wrong and guard is not None:
            guard.replaced(IMPOSSIBLE, wrong)
        self.slot += 1
        truth = self.state.truth
        return SlotResult(truth.ended[:, 0].copy(), truth.ended[:, 1].copy(), truth.links["imbalance"].copy())

    def run(self, rule: Any, memory: Any, until: int, guard: Guard | None = None) -> None:
        """Pass slots up to `until` (not included), with a compiled dispatch: no Python in between.

        Args:
            rule: kernel rule(system, view, world, b, memory) -> station or HOLD, for site b with a head.
            memory: arrays of the kernel's own.
            guard: counts decisions that cannot be carried out; these requests go to the cloud.
        Raises:
            PolicyError: the kernel raises, or without a guard: a decision cannot be carried out; the worlds
                are of no use then.
        """
        self._refuse_end()
        slots = np.full(len(self._seeds), self.slot)
        asked, wrong = np.zeros((2, len(self._seeds)), dtype=np.int64)
        stations = np.empty(self.view.site.shape, dtype=np.int64)
        while slots.min() < until:
            self._grow()
            try:
                self._in_threads(passing(rule), slots, until, memory, stations, asked, wrong, guard is None)
            except Exception as error:  # foreign code
                raise PolicyError(f"a compiled rule raised {type(error).__name__}: {error}") from error
            if guard is None and wrong.any():
                world = int(np.flatnonzero(wrong)[0])
                raise PolicyError(
                    f"world {world}, slot {slots[world]}: a station that cannot serve the head was chosen"
                )
        self.slot = until
        if guard is not None:
            guard.questions += int(asked.sum())
            if wrong.any():
                guard.replaced(IMPOSSIBLE, int(wrong.sum()))

    def outcome(self) -> ServiceOutcome:
        """What it came to so far."""
        t = self.state.truth.tally
        counts = t[:, :, : k.FORWARDED_BYTES].astype(np.int64)
        arrived, in_time, late, dropped = (counts[:, :, column] for column in range(4))
        waiting = (arrived - in_time - late - dropped).sum(axis=1)
        forwarded, local, image = (t[:, :, column].copy() for column in range(k.FORWARDED_BYTES, k.COLUMNS))
        return ServiceOutcome(arrived, in_time, late, dropped, waiting, forwarded, local, image)

    def _refuse_end(self) -> None:
        if self.done:
            raise PolicyError(f"all {self.slots} slots have passed; call reset()")

    def _impossible(self, at: int, stations: Ints) -> str:
        world, b = divmod(at, stations.shape[1])
        where = f"world {world}, slot {self.slot}, site {b}: station {stations[world, b]}"
        if self.view.head[world, b] < 0:
            return f"{where} for an empty queue; use {-1}"
        if not -1 <= stations[world, b] < self.system.stations:
            return f"{where} does not exist; use -1 … {self.system.stations - 1}"
        return f"{where} has no replica of service {self.view.head_service[world, b]}; see `hosts`"

    def _grow(self) -> None:
        t = self.state.truth
        stations = t.station.view(np.ndarray)  # fields of records are slow to read
        while int((stations["queued"] + stations["running"]).max()) + self.system.sites > t.place.shape[2]:
            t = k.enlarged(t)
            self.state = self.state._replace(truth=t)

    def _in_threads(self, run: Any, *arguments: Any) -> None:
        """Each thread passes as many worlds; worlds share nothing that is written."""
        worlds = len(self._seeds)
        ends = np.linspace(0, worlds, min(self._threads, worlds) + 1).astype(np.int64).tolist()

        def pass_some(first: int, end: int) -> None:
            run(self.system, *self.state, Span(first, end, *arguments))

        with ThreadPoolExecutor(len(ends)) as pool:
            list(pool.map(pass_some, ends[:-1], ends[1:]))


def simulate(
    worlds: ReplicaWorlds,
    dispatch: RequestPolicy,
    orchestrate: ReplicaPolicy | None = None,
    look: Callable[[ReplicaView], None] | None = None,
) -> ServiceOutcome:
    """Run two policies through every slot; a dispatcher that is a kernel `rule` runs compiled.

    Args:
        dispatch, orchestrate: may be under guard (`guarded`).
        look: is shown the view at the beginning of each frame, with the replicas that it has.
    Raises:
        PolicyError: a policy breaks its contract.
    """
    worlds.reset()
    key = Key(0)  # draws come from the views, which hold a key of each world
    dispatch, orchestrate = batched(dispatch), orchestrate and batched(orchestrate)
    dispatch.reset(worlds.system, key)
    if orchestrate is not None:
        orchestrate.reset(worlds.system, key)
    guard = _guard(dispatch)
    ruled: Any = dispatch.policy if isinstance(dispatch, GuardedRequests) else dispatch
    own = getattr(ruled.decide, "__func__", None) is not KernelDispatch.decide  # by more than it
    while not worlds.done:
        if orchestrate is not None:
            worlds.scale(orchestrate.decide(worlds.view))
        if look is not None:
            look(worlds.view)
        frame_end = worlds.slot + worlds.system.frame_slots
        if not own:
            worlds.run(ruled.rule, ruled.memory, frame_end, guard)
        while worlds.slot < frame_end:
            worlds.step(dispatch.decide(worlds.view), guard)
    return worlds.outcome()


def decision_s(worlds: ReplicaWorlds, dispatch: Any, orchestrate: Any) -> dict[str, float]:
    """Seconds per dispatch of a site and per orchestration of a world, over one frame (KaiS's Φ_d)."""
    view, (dispatch, orchestrate) = worlds.reset(), (batched(dispatch), batched(orchestrate))
    for policy in (dispatch, orchestrate):
        policy.reset(worlds.system, Key(0))
    began = time.perf_counter()
    worlds.scale(orchestrate.decide(view))
    scale_s, used_s, heads = (time.perf_counter() - began) / view.worlds, 0.0, 0
    for _ in range(worlds.system.frame_slots):
        began = time.perf_counter()
        stations = dispatch.decide(view)
        used_s += time.perf_counter() - began
        heads += int((stations >= 0).sum())
        worlds.step(stations, _guard(dispatch))
    return {"requests": used_s / max(heads, 1), "orchestrate": scale_s}


def _guard(dispatch: Any) -> Guard | None:
    """Of a policy that is under one."""
    return dispatch.guard if isinstance(dispatch, GuardedRequests) else None
