"""Networks, losses and exported policies of KaiS, on a made-up view; learning itself on a small system."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewise import policies
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import (
    HOLD,
    LAYER,
    MACHINE,
    POOL,
    REPLICAS,
    SITE,
    WORLD,
    ReplicaView,
    SlotResult,
    records,
)
from edgewise.errors import PolicyError
from edgewise.learn.harness import write_card
from edgewise.model.orchestration import System
from edgewise.policies.requests.features import changes_possible, draws, frame_draws, gumbel
from edgewise.policies.requests.learned import feature_hash
from edgewise_studies.training.kais.cmmac import (
    IMPROVED as BETTER_DISPATCH,
    DispatchConfig,
    Dispatcher,
    forwarded,
    reward_of,
)
from edgewise_studies.training.kais.gpg import (
    ScaleConfig,
    Scaler,
    first_changes,
    ordered_chance,
)

B, N, S, L = 2, 5, 3, 4


def system() -> System:
    return System(
        slot_s=0.25,
        frame_slots=4,
        site_of=np.array([0, 0, 0, 1, 1]),
        first_machine=np.array([0, 2, 3, 4, 5, 6, 7]),
        cpu_cores=np.array([4.0, 4.0, 1.0, 2.0, 1.0, 2.0, 2.0]),
        memory_bytes=np.array([16e9, 16e9, 2e9, 4e9, 2e9, 4e9, 4e9]),
        disk_bytes=np.full(N + 1, 3e11),
        service_memory_bytes=np.array([0.2e9, 0.4e9, 3e9]),
        service_cpu_cores=np.array([0.5, 1.0, 1.0]),
        replica_cpu_cores=np.zeros(3),
        layer_bytes=np.full(L, 1e8),
        needs_layer=np.eye(S, L, dtype=bool),
        initial=np.ones((N, S), dtype=np.int64),
        delay_s=np.full((B, N + 1), 0.002),
        rate_bps=np.full((B, N + 1), [1e8, *[1e9] * N]),
        deviation_s=np.zeros((B, N + 1)),
        start_delay_s=1.0,
        service_deviation=0.0,
        returns_cpu=True,
        drops=True,
    )


def a_view(seed: int = 0, worlds: int = 6) -> ReplicaView:
    rng = np.random.default_rng(seed)

    def whole(low: int, high: int, *shape: int) -> Any:
        return rng.integers(low, high, (worlds, *shape))

    head = whole(-1, 9, B)
    there = head >= 0
    view = ReplicaView(
        records((worlds,), WORLD),
        records((worlds, B), SITE),
        records((worlds, N + 1, S), REPLICAS),
        records((worlds, 7), MACHINE),
        np.full((worlds, N + 1), 1e11),
        records((worlds, N + 1, L), LAYER),
        whole(0, 9, S),
        records((worlds, 0), POOL),
    )
    view.replicas["may"] = 1
    by_service = (N + 1, S)
    values = {
        "clock_s": np.full(worlds, 3.0),
        "head": head,
        "head_service": np.where(there, whole(0, S, B), -1),
        "head_deadline_s": np.where(there, 3.0 + rng.random((worlds, B)) * 5, 0.0),
        "head_service_s": np.where(there, rng.random((worlds, B)), 0.0),
        "head_cpu_cores": np.where(there, 0.5, 0.0),
        "head_memory_bytes": np.where(there, 1e8, 0.0),
        "head_payload_bytes": np.where(there, 1e5, 0.0),
        "site_queue": np.where(there, 1, 0),
        "waiting": whole(0, 4, *by_service),
        "waiting_s": rng.random((worlds, *by_service)),
        "busy": whole(0, 2, *by_service),
        "ready": whole(0, 3, *by_service),
        "starting": whole(0, 2, *by_service),
        "free_cpu_cores": rng.random((worlds, 7)),
        "free_memory_bytes": rng.random((worlds, 7)) * 4e9,
        "cloud_delay_s": np.full(worlds, 0.05),
    }
    for name, value in values.items():
        getattr(view, name)[:] = value
    view.layer["on_disk"] = rng.random((worlds, N + 1, L)) < 0.5
    return view


@pytest.mark.parametrize("config", [DispatchConfig(), BETTER_DISPATCH], ids=["paper", "scored"])
def test_dispatch_obeys_the_mask_and_sums_to_one(config: DispatchConfig) -> None:
    agent, view = Dispatcher(system(), config, 0), a_view()
    seen = agent.see(view)
    with torch.no_grad():
        chances = agent.chances([seen]).exp()
    assert torch.allclose(chances.sum(dim=1), torch.ones(len(chances)), atol=1e-5)
    assert float(chances[~seen.allowed].max()) < 1e-12
    stations = agent.act(view)
    assert ((stations == HOLD) == (view.head < 0)).all()
    allowed = seen.allowed.numpy().reshape(-1, B, N + 1)
    for w, b in zip(*np.nonzero(view.head >= 0), strict=True):
        assert allowed[w, b, stations[w, b]]


def test_the_actor_is_normalised_relu_plus_one() -> None:
    """π(j) = p_j F_j / Σ p F with p = ReLU(…) + 1."""
    agent, view = Dispatcher(system(), DispatchConfig(), 0), a_view()
    seen = agent.see(view)
    with torch.no_grad():
        site = torch.eye(B).expand(seen.local.shape[0], -1, -1)
        p = torch.relu(agent.actor.body(torch.cat([seen.local, site], dim=2).flatten(0, 1))) + 1.0
        weighted = p * seen.allowed
        assert torch.allclose(
            agent.chances([seen]).exp(), weighted / weighted.sum(dim=1, keepdim=True), atol=1e-6
        )


def test_a_slot_decided_alone_or_with_others_is_the_same() -> None:
    agent = Dispatcher(system(), BETTER_DISPATCH, 0)
    seen = [agent.see(a_view(seed)) for seed in (1, 2)]
    with torch.no_grad():
        together = agent.chances(seen)
        alone = torch.cat([agent.chances([each]) for each in seen])
    assert torch.allclose(together, alone, atol=1e-5)


def test_one_step_advantages_are_the_papers() -> None:
    agent = Dispatcher(system(), DispatchConfig(gamma=0.9), 0)
    states = [agent.see(a_view(seed)) for seed in range(3)]
    reward = torch.rand(2, 6)
    gain, aim = agent.advantages(states, reward)
    with torch.no_grad():
        value = torch.stack([agent.critic(s.local, s.cloud) for s in states])
    assert torch.allclose(aim, reward[:, :, None] + 0.9 * value[1:], atol=1e-6)
    assert torch.allclose(gain, aim - value[:-1], atol=1e-6)


def test_reward_is_the_papers_and_is_one_at_most() -> None:
    result = SlotResult(np.array([3, 0]), np.array([1, 0]), np.array([0.0, 0.4]))
    u = reward_of(DispatchConfig(balance=1.0), result, np.zeros(2), 1.0)
    assert u[0] == pytest.approx(np.exp(-0.25 - 0.5))
    assert u[1] == pytest.approx(np.exp(-1.0 / (1.0 + np.exp(-0.4))))


def test_own_nodes_are_not_forwarding() -> None:
    view = a_view()
    own = np.where(view.head >= 0, np.array([1, 4]), HOLD)
    away = np.where(view.head >= 0, np.array([4, 0]), HOLD)
    assert forwarded(system(), view, own).sum() == 0.0
    assert forwarded(system(), view, away).sum() == view.head_payload_bytes.sum()


def test_learning_makes_rewarded_stations_likelier() -> None:
    """A bandit: stations of the own site are worth 1, others 0."""
    agent = Dispatcher(system(), DispatchConfig(scored=True, context="hosts", rate=5e-3), 3)
    shares = []
    for step in range(30):
        for slot in range(4):
            view = a_view(100 + 4 * step + slot)
            stations = agent.act(view)
            away = forwarded(system(), view, stations) / 1e5
            agent.memory.earn(1.0 - away / np.maximum((view.head >= 0).sum(axis=1), 1))
            shares.append(1.0 - away.sum() / (view.head >= 0).sum())
        agent.learn(a_view(7))
    assert np.mean(shares[-20:]) > np.mean(shares[:20]) + 0.2


def test_ordered_chances_add_up_to_one() -> None:
    values = torch.randn(1, 4)
    total = sum(
        float(ordered_chance(values, torch.tensor([pair])).exp()) for pair in permutations(range(4), 2)
    )
    assert total == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("body", ["graph", "stacked", "pairs"])
def test_orchestration_changes_what_it_can(body: str) -> None:
    agent, view = Scaler(system(), ScaleConfig(body=body), 0), a_view()
    possible = changes_possible(system(), view)
    for commands in (agent.act(view), agent.best(view)):
        assert commands.shape == (6, N if body == "pairs" else 2, 2)
        for world, rows in enumerate(commands):
            assert len(set(rows[:, 0])) == len(rows)
            assert all(possible[world, node, change + S] for node, change in rows)
    with torch.no_grad():
        frame = agent.frames[0]
        again, _ = agent.chance_of(frame.state, frame.possible, frame.nodes, frame.changes)
    assert torch.allclose(again, frame.chance, atol=1e-5)


def test_graph_embedding_follows_the_equation() -> None:
    """x_n = h1[Σ f1(x_n')] + s_n, those visited pass on their embedding; written out for site 1."""
    agent = Scaler(system(), ScaleConfig(), 0)
    body, state = agent.network.body, torch.rand(2, N, 5 + 2 * S)
    with torch.no_grad():
        found = body(state)
        first = body.h1(body.f1(state[:, 4])) + state[:, 3]
        second = body.h1(body.f1(first)) + state[:, 4]
        y = body.h2(body.f2(first) + body.f2(second))
    width = 5 + 2 * S
    assert torch.allclose(found[:, 3, :width], first, atol=1e-5)
    assert torch.allclose(found[:, 4, :width], second, atol=1e-5)
    assert torch.allclose(found[:, 4, width : 2 * width], y, atol=1e-5)
    assert torch.allclose(found[:, 0, 2 * width :], found[:, 4, 2 * width :])


def test_learning_orchestration_makes_rewarded_changes_likelier() -> None:
    """Adding replicas of service 0 is worth 1."""
    agent = Scaler(system(), ScaleConfig(rate=3e-3), 1)
    shares = []
    for episode in range(60):
        view = a_view(episode, worlds=16)
        commands = agent.act(view)
        agent.rewards.append(torch.from_numpy((commands[:, :, 1] == 1).mean(axis=1).astype(np.float32)))
        shares.append((commands[:, :, 1] == 1).mean())
        agent.learn()
    assert np.mean(shares[-10:]) > np.mean(shares[:10]) + 0.2


def test_first_changes_of_each_node() -> None:
    commands = np.array([[[1, 0], [1, 2], [1, -3], [4, -1]]])
    assert first_changes(system(), commands).tolist() == [[S, 2 + S, S, S, S - 1]]


def card_of(folder: Path, **halves: Dispatcher | Scaler) -> Path:
    parts = {name: half.export(folder / "mine") for name, half in halves.items()}
    return write_card(folder, "mine", {"features_sha256": feature_hash(), **parts})


@pytest.mark.parametrize("scored", [False, True])
def test_exported_policies_decide_as_trained_ones(scored: bool, tmp_path: Path) -> None:
    agent = Dispatcher(system(), DispatchConfig(scored=scored), 0)
    scaler = Scaler(system(), ScaleConfig(body="pairs" if scored else "graph"), 0)
    card = card_of(tmp_path, requests=agent, orchestrate=scaler)
    dispatch, scale = (
        policies.load("requests", str(card)),
        policies.load("orchestrate", str(card)),
    )
    dispatch.reset(system(), Key(0))
    scale.reset(system(), Key(0))
    for seed in range(5):
        view = a_view(seed)
        with torch.no_grad():
            chances = agent.chances([agent.see(view)]).numpy().reshape(6, B, N + 1)
        drawn = (chances + gumbel(draws(view, N + 1))).argmax(axis=2)
        assert np.array_equal(dispatch.decide(view), np.where(view.head >= 0, drawn, HOLD))
        assert np.array_equal(
            scale.decide(view), scaler.best(view) if scored else drawn_changes(scaler, view)
        )


def drawn_changes(scaler: Scaler, view: Any) -> Any:
    """GPG's H nodes and their changes, drawn from π by the policy's own draws."""
    state, possible = scaler.inputs(view)
    network: Any = scaler.network
    with torch.no_grad():
        embedded = network.body(state)
        value = network.heads.nodes(embedded).numpy() + gumbel(frame_draws(view, N))
        nodes = np.argsort(-value, axis=1)[:, : network.chosen]
        changes = network.scales(embedded, torch.from_numpy(nodes)).numpy()
    changes[~np.take_along_axis(possible.numpy(), nodes[:, :, None], axis=1)] = -np.inf
    changes = changes + gumbel(frame_draws(view, N + changes[0].size)[:, N:]).reshape(changes.shape)
    return np.stack([nodes, changes.argmax(axis=2) - S], axis=2)


def test_draws_of_a_frame_are_no_sites_draws_and_new_in_every_slot() -> None:
    view = a_view(0)
    of_frame = frame_draws(view, 40)
    assert of_frame.shape == (view.worlds, 40) and ((of_frame > 0) & (of_frame < 1)).all()
    assert not np.isin(of_frame, draws(view, N + 1)).any()
    view.world["clock_s"] += 1.0
    assert not np.isin(frame_draws(view, 40), of_frame).any()


def test_a_sites_decision_needs_no_other_sites_requests(tmp_path: Path) -> None:
    agent = Dispatcher(system(), DispatchConfig(), 0)
    view = a_view()
    other = view._replace(site=view.site.copy())
    other.head_service[:, 1] = (view.head_service[:, 1] + 1) % S
    other.head_deadline_s[:, 1] += 1.0
    other.site_queue[:, 1] += 5
    assert np.array_equal(agent.best(view)[:, 0], agent.best(other)[:, 0])


def test_changed_files_are_refused(tmp_path: Path) -> None:
    card = card_of(tmp_path, requests=Dispatcher(system(), BETTER_DISPATCH, 0))
    with pytest.raises(PolicyError, match="decides requests, not orchestrate"):
        policies.load("orchestrate", str(card))
    with open(tmp_path / "mine.requests.onnx", "ab") as file:
        file.write(b"x")
    with pytest.raises(PolicyError, match="is not the file of its card"):
        policies.load("requests", str(card))
    with pytest.raises(PolicyError, match="no requests policy 'nobody'"):
        policies.load("requests", "nobody")
