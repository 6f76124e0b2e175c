"""Replicas are servers: one node with c of them is D/D/1 or M/M/c."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System
from edgewise.sim.slots.replicas import ReplicaWorlds, simulate


def _one_node(replicas: int, slot_s: float, frame_slots: int) -> System:
    return System(
        slot_s=slot_s,
        frame_slots=frame_slots,
        site_of=np.zeros(1, dtype=np.int64),
        first_machine=np.array([0, 1, 2]),
        cpu_cores=np.array([1.0, float(replicas)]),
        memory_bytes=np.array([1.0, float(replicas)]),
        disk_bytes=np.ones(2),
        service_memory_bytes=np.ones(1),
        service_cpu_cores=np.ones(1),
        replica_cpu_cores=np.zeros(1),
        layer_bytes=np.ones(1),
        needs_layer=np.ones((1, 1), dtype=bool),
        initial=np.array([[replicas]]),
        delay_s=np.array([[0.5, 0.125]]),
        rate_bps=np.full((1, 2), 1e9),
        deviation_s=np.zeros((1, 2)),
        start_delay_s=0.0,
        service_deviation=0.0,
        returns_cpu=True,
        drops=False,
    )


def _requests(arrival_s: np.ndarray, took_s: np.ndarray) -> Requests:
    shape = arrival_s.shape
    zeros, ones = np.zeros(shape), np.ones(shape)
    whole = np.zeros(shape, dtype=np.int64)
    count = np.full(shape[0], shape[1])
    return Requests(count, arrival_s, whole, whole.copy(), ones * np.inf, took_s, ones, zeros, zeros.copy())


def _to_the_node(system: System, drawn: Requests, slots: int) -> ReplicaWorlds:
    worlds = ReplicaWorlds(system, drawn, slots, range(drawn.worlds))
    policy = policies.load("requests", "deadline-queue")
    simulate(worlds, policy)
    assert (
        worlds.state.truth.request["station"][np.isfinite(worlds.state.truth.request["end_s"])] == 1
    ).all()
    return worlds


def test_deterministic_arrivals_and_service_end_when_they_must() -> None:
    """D/D/1: every 0.5 s one, 0.375 s of work, 0.125 s of delay: each ends 0.5 s after it arrived."""
    arrival = np.arange(40)[None] * 0.5
    worlds = _to_the_node(_one_node(1, 0.25, 100), _requests(arrival, np.full((1, 40), 0.375)), 100)
    np.testing.assert_allclose(worlds.state.truth.request["end_s"][0], arrival[0] + 0.5)


def test_mean_wait_is_erlang_c() -> None:
    """M/M/3 at 80 % load, mean service 1 s; slots are short beside all times."""
    c, load, slot_s, slots, count = 3, 0.8, 0.02, 20_000, 900
    rng = np.random.default_rng(0)
    arrival = np.cumsum(rng.exponential(1 / (c * load), (24, count)), axis=1)
    took = rng.exponential(1.0, (24, count))
    worlds = _to_the_node(_one_node(c, slot_s, slots), _requests(arrival, took), slots)
    wait = worlds.state.truth.request["end_s"] - took - arrival - 0.125 - slot_s / 2
    a = c * load
    tail = a**c / math.factorial(c) / (1 - load)
    waits = tail / (sum(a**i / math.factorial(i) for i in range(c)) + tail)
    # The first requests find an empty system, so the mean of so few lies a little below.
    assert np.nanmean(wait[:, 200:]) == pytest.approx(waits / (c * (1 - load)), rel=0.15)
