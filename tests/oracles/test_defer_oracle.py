"""The compiled slot loop against the naive one, and its invariants under arbitrary starts."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from naive_defer import naive_run, objective

from edgewise import policies
from edgewise.core.defer import Trajectories, check
from edgewise.errors import PolicyError
from edgewise.sim.slots.defer import DeferralWorlds, simulate

RANKS = {
    "fifo": (lambda job, t: -job["g"], False),
    "sjf": (lambda job, t: -job["d"], False),
    "earliest-deadline": (lambda job, t: -job["l"], False),
    "hrrn": (lambda job, t: (t - job["e"] + job["d"]) / job["d"], False),
}


def random_worlds(seed, worlds=3, jobs=25, slots=14, kinds=1):
    rng = np.random.default_rng(seed)
    count = rng.integers(0, jobs + 1, worlds)
    submitted = np.sort(rng.integers(0, slots, (worlds, jobs)), axis=1)
    for row, n in zip(submitted, count, strict=True):
        row[:n].sort()
    earliest = submitted + rng.integers(0, 3, submitted.shape)
    latest = earliest + rng.integers(0, 4, submitted.shape)
    duration = rng.integers(1, 6, submitted.shape)
    demand = rng.integers(1, 6, (worlds, jobs, kinds)).astype(float)
    left = rng.integers(0, 16, (worlds, slots, kinds)).astype(float)
    total = np.full(kinds, 16.0)
    return Trajectories(count, submitted, earliest, latest, duration, demand, left, total, 1.0)


def as_dicts(worlds, w):
    columns = zip(
        worlds.submitted[w], worlds.earliest[w], worlds.latest[w], worlds.duration[w], worlds.demand[w],
        strict=True,
    )  # fmt: skip
    rows = [{**dict(zip("geld", row[:4], strict=True)), "c": row[4].tolist()} for row in columns]
    return rows[: worlds.jobs[w]]


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("seed", range(12))
def test_rules_match_the_naive_loop(name, seed):
    worlds = random_worlds(seed, kinds=1 + seed % 2)
    found = simulate(worlds, policies.load("defer", name))
    rank, skip = RANKS[name]
    for w in range(worlds.worlds):
        reward, starts = naive_run(as_dicts(worlds, w), worlds.left_over[w].tolist(), rank, skip=skip)
        assert {j: s for j, s in enumerate(found.start[w]) if s >= 0} == starts
        assert found.reward[w] == pytest.approx(reward)
        assert found.started[w] == len(starts)


@given(st.integers(0, 10_000), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_any_starts_keep_the_invariants(seed, kinds):
    worlds = random_worlds(seed, kinds=kinds)
    rng = np.random.default_rng(seed)
    loop = DeferralWorlds(worlds)
    rewards = np.zeros(worlds.worlds)
    ran = {}  # (world, job) → slots in which the pool showed it running
    while not loop.done:
        view = loop.view()
        for w, place in np.argwhere(view.ends > view.now):
            ran.setdefault((w, view.job[w, place]), []).append(view.now)
        assert (view.submitted[view.state > 0] <= view.now).all()  # nothing from the future is seen
        rewards += loop.step(view.startable & (rng.random(view.state.shape) < 0.4))
    out = loop.outcome()
    np.testing.assert_allclose(rewards, out.reward)
    for w in range(worlds.worlds):
        jobs = as_dicts(worlds, w)
        starts = {j: int(s) for j, s in enumerate(out.start[w]) if s >= 0}
        for j, s in starts.items():
            assert jobs[j]["e"] <= s <= jobs[j]["l"]
            after = range(s + 1, min(s + jobs[j]["d"], worlds.slots))
            assert ran.get((w, j), []) == list(after)  # uninterrupted
        left = worlds.left_over[w].tolist()
        assert out.reward[w] == pytest.approx(objective(jobs, starts, left, 2.0, 10.0, [1.0] * kinds))
        closed = sum(j not in starts and job["l"] < worlds.slots - 1 for j, job in enumerate(jobs))
        assert out.lost[w] == closed


def test_starting_what_may_not_start_is_refused_and_changes_nothing():
    loop = DeferralWorlds(random_worlds(3))
    with pytest.raises(PolicyError, match="not startable"):
        loop.step(loop.view().state != 2)
    assert loop.now == 0 and (loop.start == -1).all()
    with pytest.raises(PolicyError, match="booleans of shape"):
        loop.step(np.zeros((1, 1), dtype=bool))


def test_broken_worlds_are_refused():
    worlds = random_worlds(0)
    with pytest.raises(ValueError, match="submitted <= earliest"):
        check(worlds._replace(earliest=worlds.submitted - 1))
    with pytest.raises(ValueError, match="left_over"):
        DeferralWorlds(worlds._replace(left_over=-worlds.left_over - 1))
    with pytest.raises(ValueError, match="duration"):
        check(worlds._replace(duration=worlds.duration * 0))
