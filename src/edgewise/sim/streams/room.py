"""How much switching between static policies could gain in a setting, before anything is trained.

A chooser that knows what comes rolls every policy forward at each window and keeps the best. It is
greedy, so not a bound; but where it gains nothing, a learned chooser has little to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgewise import policies
from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Items, Rows
from edgewise.core.world import World
from edgewise.errors import RunError
from edgewise.model.scenario import Scenario
from edgewise.policies.dispatch.meta import ALL
from edgewise.sim.streams.rollout import Bindings, EstimatedFuture, Rollout, Slice, empty_view
from edgewise.workloads.generate import generate_streams

PIECE_S = 0.6  # queries are simulated for so long in the middle of each window


class Room(NamedTuple):
    """Success of each static policy alone, of the chooser that knows what comes, and what it chose."""

    static: dict[str, float]
    switching: float
    chosen: tuple[str, ...]

    @property
    def gain(self) -> float:
        """Success above the best static policy."""
        return self.switching - max(self.static.values())


def room_for_switching(
    scenario: Scenario, seed: int, names: Sequence[str] = ALL, horizon_s: float = 75.0
) -> Room:
    """Roll the run of a seed under each static policy, and under the best of them for each window.

    Args:
        seed: a training seed; test seeds are for `edgewise reproduce`.
        names: static policies that numba can compile.
        horizon_s: how far the chooser looks.
    Raises:
        RunError: a policy cannot be rolled forward, or the scenario has changes on the way.
    """
    if scenario.timeline:
        raise RunError(f"scenario {scenario.name!r}: has a timeline, which rollouts do not follow; remove it")
    candidates = [_score_policy(name) for name in names]
    starts = np.arange(0.0, scenario.duration_s, scenario.window_s)
    middles = tuple(Slice(float(start) + scenario.window_s / 2.0, PIECE_S) for start in starts)
    rollout = _whole(scenario, seed, middles)
    static = {name: rollout.success(policy) for name, policy in zip(names, candidates, strict=True)}
    at, ok, total, chosen = rollout.begin(), 0.0, 0.0, list[str]()
    for middle in middles:
        end_s = middle.at_s + scenario.window_s / 2.0
        ways = (middle.at_s, end_s, min(middle.at_s + horizon_s, scenario.duration_s))
        best = int(np.argmax([_share(rollout, at.copy(), policy, ways) for policy in candidates]))
        chosen.append(names[best])
        at = rollout.play(at, candidates[best], middle.at_s)
        good, sent = rollout.serve(middle, at)
        ok, total = ok + good, total + sent
        at = rollout.play(at, candidates[best], end_s)
    return Room(static, ok / max(total, 1.0), tuple(chosen))


def _whole(scenario: Scenario, seed: int, slices: tuple[Slice, ...]) -> Rollout:
    """The whole run as a plan that begins with an empty world."""
    world = World.build(scenario.catalog, scenario.topology, scenario.sharing)
    streams = list(generate_streams(scenario, seed))
    open_s, close_s = (np.array([getattr(s, name) for s in streams]) for name in ("open_s", "close_s"))
    plan = EstimatedFuture(Rows.of(Items.of(world, streams).rows), open_s, close_s)
    return Rollout(empty_view(world), plan, slices, seed)


def _share(rollout: Rollout, at: Bindings, policy: ScorePolicy, times_s: Sequence[float]) -> float:
    """Success in slices at these times if the policy decides from here on."""
    ok = total = 0.0
    for time_s in times_s:
        at = rollout.play(at, policy, time_s)
        good, sent = rollout.serve(Slice(time_s, PIECE_S), at)
        ok, total = ok + good, total + sent
    return ok / max(total, 1.0)


def _score_policy(name: str) -> ScorePolicy:
    policy = policies.load("dispatch", name)
    if not isinstance(policy, ScorePolicy):
        raise RunError(
            f"policy {name!r}: only score policies can be rolled forward; use some of {', '.join(ALL)}"
        )
    return policy
