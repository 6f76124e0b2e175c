"""What each static policy chooses, against brute force over the same view."""

import numpy as np
import pytest
from scipy import stats

from edgewise import policies
from edgewise.core.dispatch.events import StreamOpened
from edgewise.core.dispatch.policy import assess
from edgewise.core.dispatch.streams import DispatchCore
from edgewise.core.dispatch.views import DispatchView, Items
from edgewise.testing import small_world, some_streams

WORLD = small_world(workers=12)


def view_of(seed):
    rng = np.random.default_rng(seed)
    zeros = np.zeros(WORLD.workers)
    load = rng.uniform(0, 0.9, WORLD.workers) * WORLD.capacity_qps
    up = rng.uniform(size=WORLD.workers) > 0.1
    return DispatchView(
        WORLD, 1.0, seed, load, (load > 0).astype(np.int64), up, zeros, zeros, zeros, zeros, 0.0
    )


def harm(c, item, w):
    """What `least-harm` minimises, written down again for one worker."""
    answer_s = c.impedance_s[w] + c.backlog_s[w] + c.sending_s[w]
    slack_s, full = item.deadline_s - answer_s, (c.load_qps[w] + c.share_qps[w]) / c.capacity_qps[w]
    late = np.exp(-4 * max(slack_s, 0) * max(1.02 - full, 0.02) / c.processing_s[w])
    if c.link_load[w] > 0:
        held_up = np.exp(-2 * max(slack_s, 0) * max(1.02 - c.link_load[w], 0.02) / c.sending_s[w])
        late, full = max(late, held_up), max(full, c.link_load[w])
    return late + 0.1 * full**4 + (8 if c.link_load[w] > 0 else -0.4) * answer_s / item.deadline_s


KEYS = {
    "closest": lambda c, w: c.network_s[w],
    "farthest": lambda c, w: -c.network_s[w],
    "cheaper": lambda c, w: -(2 * c.network_s[w] + c.processing_s[w]),
    "least-impedance": lambda c, w: 2 * c.network_s[w] + c.processing_s[w],
    "load-balancing": lambda c, w: c.load_qps[w],
    "least-loaded-feasible": lambda c, w: (c.load_qps[w] + c.share_qps[w]) / c.capacity_qps[w],
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("seed", range(5))
def test_choice_is_the_brute_force_best(name, seed):
    view, items = view_of(seed), Items.of(WORLD, some_streams(40, seed))
    chosen = policies.load("dispatch", name).decide(view, items).worker
    for item, worker in zip(items, chosen, strict=True):
        candidates = assess(view, item)
        feasible = [w for w in range(WORLD.workers) if candidates.violation[w] == 0]
        if not feasible:
            assert worker == -1
        else:
            costs = {w: KEYS[name](candidates, w) for w in feasible}
            assert costs[worker] == pytest.approx(min(costs.values()), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("random-by-latency", lambda c: 1 / c.impedance_s),
        ("random-by-load", lambda c: c.capacity_qps / np.maximum(c.load_qps, 1e-3)),
    ],
)
def test_random_choice_has_the_stated_proportions(name, weight):
    view = view_of(3)
    template = next(
        i for i in Items.of(WORLD, some_streams(40)) if (assess(view, i).violation == 0).sum() >= 3
    )
    items = Items(tuple(template._replace(id=k) for k in range(6000)))
    chosen = policies.load("dispatch", name).decide(view, items).worker
    candidates = assess(view, template)
    share = np.where(candidates.feasible, weight(candidates), 0.0)
    expected = share / share.sum() * len(items)
    counts = np.bincount(chosen, minlength=WORLD.workers)
    kept = expected > 0
    assert counts[~kept].sum() == 0
    assert stats.chisquare(counts[kept], expected[kept]).pvalue > 1e-3


@pytest.mark.parametrize("world", [WORLD, small_world(workers=12, wan_bps=20e6)], ids=["apart", "shared"])
def test_least_harm_is_the_brute_force_least(world):
    """And never a full link where another has room: the core masks it, and a fuller one costs more."""
    core, shared = DispatchCore(world, policies.load("dispatch", "least-harm")), 0
    for at, stream in enumerate(some_streams(60, 4)):
        (item,) = Items.of(world, (stream,))
        candidates = assess(core.view(), item)
        costs = {w: harm(candidates, item, w) for w in np.flatnonzero(candidates.feasible)}
        shared += any(candidates.link_load > 0)
        core.handle(StreamOpened(float(at), stream))
        assert (stream.id in core.bindings) == bool(costs)
        if costs:
            assert costs[core.bindings[stream.id]] == pytest.approx(min(costs.values()), rel=1e-12)
    assert (shared > 0) == (world.link_bps.size > 0)


def test_power_of_two_never_picks_the_fullest_of_three():
    view = view_of(3)
    template = next(
        i for i in Items.of(WORLD, some_streams(40)) if (assess(view, i).violation == 0).sum() >= 3
    )
    items = Items(tuple(template._replace(id=k) for k in range(500)))
    candidates = assess(view, template)
    full = (candidates.load_qps + candidates.share_qps) / candidates.capacity_qps
    feasible = np.flatnonzero(candidates.feasible)
    chosen = set(policies.load("dispatch", "power-of-two").decide(view, items).worker.tolist())
    assert feasible[full[feasible].argmax()] not in chosen
    assert len(chosen) == feasible.size - 1
