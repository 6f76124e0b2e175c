"""Whether a dispatcher of streams keeps its contract."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats
from edgewise.config import load_scenario
from edgewise.core import keyed
from edgewise.core.dispatch.events import (
    Bind,
    Measured,
    Refuse,
    Release,
    StreamClosed,
    StreamOpened,
    Telemetry,
    Tick,
)
from edgewise.core.dispatch.playing import CLOSE, OPEN, Batch
from edgewise.core.dispatch.policy import DispatchPolicy, assess
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import REASONS, Decisions, DispatchView, Items, Rows, Violation
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.model.work import Stream
from edgewise.policies.cards import Card
from edgewise.testing.worlds import small_world, some_streams


def check(make: Callable[[], DispatchPolicy], budget_s: float) -> None:
    """As `edgewise.testing.check_policy`."""
    own = _own_world(make())
    smalls = small_world(), small_world(wan_bps=20e6), small_world(workers=1), small_world(workers=40)
    worlds = smalls if own is None else (own,)
    for world in worlds:
        _check_decisions(make, world)
        assert _run(make(), world) == _run(make(), world), "same key and events, other decisions"
        later = [
            replace(s, site=1 - s.site, rate_qps=1.0) if s.open_s > 20.0 else s for s in _streams(world, 60)
        ]
        seen, others = (
            _run(make(), world, until_s=20.0, streams=these) for these in (_streams(world, 60), later)
        )
        assert seen == others, "other decisions because of what comes later"
        assert _played(make(), world) == _run(make(), world, ticks=False), "compiled and plain score differ"
    _check_latency(make, own or small_world(workers=200), budget_s)
    _check_state(make, worlds[0])


def _own_world(policy: DispatchPolicy) -> World | None:
    """The world that a policy was trained on, where its card is for no other; None where it takes any."""
    card = getattr(getattr(policy, "card", None), "card", None)
    if not isinstance(card, Card) or not card.part["workers"]:
        return None
    scenario = load_scenario(card.about["config"]["scenario"])
    return World.build(scenario.catalog, scenario.topology)


def _streams(world: World, count: int) -> list[Stream]:
    """As `some_streams`, of tasks that a world knows, and one that it does not."""
    names = dict(zip(("classify", "detect"), (*world.task_names, *world.task_names), strict=False))
    if not set(world.task_names).isdisjoint(names):
        return some_streams(count)
    return [replace(each, task=names.get(each.task, each.task)) for each in some_streams(count)]


def _views(world: World) -> Iterator[tuple[DispatchView, Items]]:
    """Views with different ledgers and measurements, with the items to decide."""
    zeros: Floats = np.zeros(world.workers)
    for load in (0.0, 0.5, 1.0):
        for up in (True, False):
            view = DispatchView(
                world=world,
                now_s=30.0,
                seed=1,
                load_qps=load * world.capacity_qps,
                streams=np.full(world.workers, int(8 * load), dtype=np.int64),
                up=np.full(world.workers, up),
                queue=zeros + 3 * load,
                throughput_qps=load * world.capacity_qps,
                delay_mean_s=world.fixed_s * (1 + load),
                delay_p95_s=world.fixed_s * (1 + 2 * load),
                measured_s=29.5,
                link=np.stack([world.link_bps, load * world.link_bps, load * world.link_bps]),
            )
            for array in _arrays(view):
                array.setflags(write=False)
            yield view, Items.of(world, _streams(world, 12))
            yield view, Items(())


def _arrays(view: DispatchView) -> list[NDArray[np.generic]]:
    fields = ("load_qps", "streams", "up", "queue", "throughput_qps", "delay_mean_s", "delay_p95_s", "link")
    return [getattr(view, name) for name in fields]


def _check_decisions(make: Callable[[], DispatchPolicy], world: World) -> None:
    for view, items in _views(world):
        policy = make()
        policy.reset(world, Key(1))
        before = [array.copy() for array in _arrays(view)]
        if (tick := getattr(policy, "tick", None)) is not None:
            tick(view)
        decisions = policy.decide(view, items)
        for old, new in zip(before, _arrays(view), strict=True):
            assert np.array_equal(old, new), "the policy changed its view"
        _check_answer(view, items, decisions)


def _check_answer(view: DispatchView, items: Items, decisions: Decisions) -> None:
    worker = np.asarray(decisions.worker)
    assert worker.shape == (len(items),), f"worker has shape {worker.shape} for {len(items)} items"
    assert np.issubdtype(worker.dtype, np.integer), f"worker has dtype {worker.dtype}, need integers"
    assert ((worker >= -1) & (worker < view.world.workers)).all(), "a worker index is out of range"
    for i, item in enumerate(items):
        violation = assess(view, item).violation
        if worker[i] >= 0:
            assert violation[worker[i]] == Violation.NONE, f"item {i} bound to an infeasible worker"
        else:
            assert decisions.reason.shape == worker.shape, "refusals need a reason for each item"
            assert decisions.reason[i] != Violation.NONE, f"item {i} refused without a reason"


def _played(policy: DispatchPolicy, world: World) -> list[object]:
    """The bindings and refusals of a small trace, played at once (compiled where it can be)."""
    core, streams = DispatchCore(world, policy, seed=3), _streams(world, 60)
    times = np.array([s.open_s for s in streams] + [s.close_s for s in streams])
    kinds = np.repeat([OPEN, CLOSE], len(streams))
    order = np.lexsort((kinds, times))
    rows = np.tile(np.arange(len(streams)), 2)
    worker, reason = np.full(len(streams), -1), np.zeros(len(streams), dtype=np.int8)
    core.play(
        Batch(times[order], kinds[order], rows[order]), Rows.of(Items.of(world, streams).rows), worker, reason
    )
    core.validate()
    assert not core.faults, f"the fallback had to decide: {core.faults}"
    pairs = zip(range(len(streams)), worker.tolist(), reason.tolist(), strict=True)
    return [Bind(i, w) if w >= 0 else Refuse(i, REASONS[Violation(r)]) for i, w, r in pairs]


def _run(
    policy: DispatchPolicy,
    world: World,
    ticks: bool = True,
    until_s: float = np.inf,
    streams: Sequence[Stream] = (),
) -> list[object]:
    """Drive a core over a small trace; every command until a time is returned, no fault is allowed.

    Args:
        ticks: with windows and measurements; otherwise only bindings and refusals are returned.
    """
    core, streams = DispatchCore(world, policy, seed=3), streams or _streams(world, 60)
    events: list[tuple[float, int, object]] = [(s.open_s, 2, s) for s in streams if s.open_s <= until_s]
    events += [(s.close_s, 0, s.id) for s in streams if s.close_s <= until_s]
    events += [(5.0 * k, 1, None) for k in range(10)] if ticks else []
    log: list[object] = []
    for at_s, kind, what in sorted(events, key=lambda e: (e[0], e[1])):
        if isinstance(what, Stream):
            log += core.handle(StreamOpened(at_s, what))
        elif kind == 0:
            log += core.handle(StreamClosed(at_s, int(what)))  # type: ignore[call-overload]
        else:
            figures = keyed.uniform(3, keyed.Purpose.SERVICE, np.arange(world.workers), int(at_s))
            links = np.stack([world.link_bps, 1e6 * (world.link_bps < 1e9)])
            core.handle(Measured(at_s, Telemetry(at_s, figures, figures, figures, figures, links)))
            log += core.handle(Tick(at_s))
    core.validate()
    assert not core.faults, f"the fallback had to decide: {core.faults}"
    return log if ticks else [command for command in log if not isinstance(command, Release)]


def _check_latency(make: Callable[[], DispatchPolicy], world: World, budget_s: float) -> None:
    policy = make()
    policy.reset(world, Key(1))
    view, items = next(_views(world))
    taken = []
    for item in items:
        started = time.perf_counter()
        policy.decide(view, Items((item,)))
        taken.append(time.perf_counter() - started)
    median = float(np.median(taken))
    assert median <= budget_s, (
        f"a decision takes {median:.3f} s at {world.workers} workers, budget {budget_s} s"
    )


def _check_state(make: Callable[[], DispatchPolicy], world: World) -> None:
    first, second = make(), make()
    dump, load = getattr(first, "state_dict", None), getattr(second, "load_state", None)
    assert (dump is None) == (load is None), "state_dict and load_state go together"
    if dump is None or load is None:
        return
    _run(first, world)
    load(dump())
    view, items = next(_views(world))
    same = np.array_equal(first.decide(view, items).worker, second.decide(view, items).worker)
    assert same, "a policy with loaded state decides differently"
