"""Linear dispatch, marginal-value orchestration, the shadow schedule and the exact flow."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import HOLD, ReplicaView, hosts
from edgewise.errors import PolicyError
from edgewise.model.orchestration import System
from edgewise.policies.orchestrate.marginal import MarginalValue, Terms, at_least
from edgewise.policies.requests import flow
from edgewise.policies.requests.features import STATION_FEATURES, draws, station_rows
from edgewise.policies.requests.rules import Weighted
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate
from edgewise_studies.training.kais.settings import SETTINGS, TrainingSetting, setting

SEEDS = range(500_000, 500_004)


@pytest.fixture(scope="module")
def small() -> TrainingSetting:
    return setting("scarce-small", frames=2, frame_slots=40)


def worlds_of(where: TrainingSetting) -> ReplicaWorlds:
    return ReplicaWorlds(where.system, where.draw(SEEDS), where.slots, SEEDS)


def views(where: TrainingSetting, slots: int = 60) -> list[tuple[System, ReplicaView]]:
    """The live view after each of some slots under greedy dispatch; compare at once, arrays are reused."""
    worlds, greedy = worlds_of(where), policies.load("requests", "greedy")
    greedy.reset(where.system, Key(0))
    for _ in range(slots):
        yield where.system, worlds.view
        worlds.step(greedy.decide(worlds.view))


def test_the_compiled_score_is_that_of_the_rows(small: TrainingSetting) -> None:
    """One by one inside the engine, or all rows at once as networks read them: the same station."""
    weights = np.random.default_rng(3).normal(size=len(STATION_FEATURES) + 1)
    policy, compared = Weighted(weights), 0
    policy.reset(small.system, Key(0))
    for system, view in views(small):
        allowed = hosts(view)
        rows = station_rows(system, view, allowed)
        values = np.full(allowed.size, -np.inf)
        values[rows.cell] = rows.values.astype(np.float64) @ weights[:-1]
        values -= np.exp(weights[-1]) * np.log(-np.log(draws(view, system.stations).reshape(-1)))
        best = np.where(view.head >= 0, values.reshape(allowed.shape).argmax(axis=2), HOLD)
        assert np.array_equal(policy.decide(view), best)
        compared += int((view.head >= 0).sum())
    assert compared > 30


def test_the_exact_flow_is_the_cheapest_of_all_assignments(small: TrainingSetting) -> None:
    """Two heads: every pair of ends is tried by hand."""
    seen = 0
    for system, view in views(small):
        for w in np.flatnonzero((view.head >= 0).all(axis=1)):
            arcs = flow.arcs_of(system, view, w, 2)
            found = flow.cheapest(system, view, w, arcs)
            least = np.inf
            for pair in product(range(arcs.cost.shape[1]), repeat=2):
                ends = np.array(pair)
                if all(flow.takes(system, view, w, arcs, ends, h, ends[h]) for h in range(2)):
                    least = min(least, float(arcs.cost[np.arange(2), ends].sum()))
            assert arcs.cost[np.arange(2), found].sum() == pytest.approx(least)
            seen += 1
    assert seen > 3


def test_the_tail_is_that_of_scipy() -> None:
    nbinom = pytest.importorskip("scipy.stats").nbinom
    for mean, dispersion in ((0.3, 0.5), (2.0, 1.0), (6.0, 0.2)):
        size = 1.0 / dispersion
        for count in range(12):
            tail = nbinom.sf(count - 1, size, size / (size + mean))
            assert at_least(count, mean, dispersion) == pytest.approx(tail, abs=1e-12)


def test_marginal_value_serves_more_than_replicas_that_stay(small: TrainingSetting) -> None:
    greedy = policies.load("requests", "greedy")
    stay = simulate(worlds_of(small), greedy, policies.load("orchestrate", "none"))
    moved = simulate(worlds_of(small), greedy, policies.load("orchestrate", "marginal"))
    assert moved.in_time.sum() > stay.in_time.sum()


def test_the_images_of_a_frame_stay_within_the_budget(small: TrainingSetting) -> None:
    policy = MarginalValue(Terms(budget=12.0, image_price=0.0, memory_price=0.0))
    outcome = simulate(worlds_of(small), policies.load("requests", "greedy"), policy)
    frame_s = small.system.slot_s * small.system.frame_slots
    assert outcome.image_bytes.max() <= 12.0 * small.system.rate_bps[0, 0] / 8.0 * frame_s
    assert outcome.image_bytes.sum() > 0.0


def test_other_services_than_known_are_refused(small: TrainingSetting) -> None:
    policy = MarginalValue(Terms(), np.ones(3), np.ones(3))
    with pytest.raises(PolicyError, match="knows 3 services"):
        policy.reset(small.system, Key(0))
    with pytest.raises(PolicyError, match="weights, use"):
        Weighted(np.zeros(3))


def test_the_shadow_schedule_respects_replicas_and_the_way_to_the_cloud(small: TrainingSetting) -> None:
    policy, drawn = policies.load("requests", "gsp-ss"), small.draw(SEEDS)
    policy.know(drawn, small.system, small.slots * small.system.slot_s)
    policy.reset(small.system, Key(0))
    view = worlds_of(small).view
    policy.decide(view)
    rate, time_s, payload_bytes = policy.known
    for w, shares in enumerate(policy.shares):
        assert (shares.sum(axis=1) <= rate[w] + 1e-9).all()
        assert 8.0 * payload_bytes * shares[:, 0].sum() <= small.system.rate_bps[0, 0] * (1 + 1e-9)
        assert (shares[:, 1:].T * time_s[w] <= view.ready[w, 1:] + 1e-9).all()


def test_settings_differ_by_name() -> None:
    assert {setting(name).system.rate_bps[0, 0] for name in SETTINGS} == {20e6, 40e6, 80e6, 100e6, 250e6}
