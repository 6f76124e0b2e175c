"""Sites that send requests to replicas as they come: textbook queues, event by event."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from edgewise import policies
from edgewise.core.orchestrate import Requests
from edgewise.model.orchestration import System
from edgewise.model.services import Services
from edgewise.sim.requests.news import News
from edgewise.sim.requests.sites import RequestSites
from edgewise.sim.slots.replica_state import IN_TIME

WAY_S = 0.125


def one_service(servers_in_cloud, replicas):
    system = System(
        slot_s=0.25, frame_slots=100, site_of=np.zeros(1, np.int64), first_machine=np.array([0, 1, 2]),
        cpu_cores=np.array([float(servers_in_cloud), 1.0]), memory_bytes=np.full(2, 1e6),
        disk_bytes=np.ones(2), service_memory_bytes=np.ones(1), service_cpu_cores=np.ones(1),
        replica_cpu_cores=np.zeros(1),
        layer_bytes=np.ones(1), needs_layer=np.ones((1, 1), dtype=bool), initial=np.array([[replicas]]),
        delay_s=np.array([[WAY_S, 0.0]]), rate_bps=np.full((1, 2), 1e9), deviation_s=np.zeros((1, 2)),
        start_delay_s=0.0, service_deviation=0.0, returns_cpu=True, drops=False,
    )  # fmt: skip
    spec = SimpleNamespace(answers=True, cloud="cloud", nodes_per_frame=None)
    return Services(spec, system, ("it",), ("node",), (0, 1), (), (), *[np.ones(1)] * 3, np.zeros(1))


def waits_s(services, policy, arrival_s, took_s, way_s):
    shape, whole = (1, arrival_s.size), np.zeros((1, arrival_s.size), dtype=np.int64)
    ones, none = np.ones(shape), np.zeros(shape)
    drawn = Requests(
        np.array([arrival_s.size]),
        arrival_s[None],
        whole,
        whole,
        1e9 + arrival_s[None],
        took_s[None],
        ones,
        none,
        none,
    )
    frames = int(arrival_s[-1] / 25.0) + 10  # until all are answered: what ends after the run is not counted
    sites = RequestSites(services, drawn, lambda: policies.load("requests", policy), 0, frames, News(25.0))
    sites.advance(np.inf)
    sites.cores[0].validate()
    assert (sites.rows.state == IN_TIME).all()
    return sites.rows.end_s - arrival_s - took_s - way_s


def test_one_replica_is_m_d_1():
    """Mean wait rho s / (2 (1 - rho)) at 70 % load, 1 s of work each."""
    rng = np.random.default_rng(1)
    arrival_s = np.cumsum(rng.exponential(1 / 0.7, 6000))
    wait_s = waits_s(one_service(1, 1), "deadline-queue", arrival_s, np.ones(6000), 0.0)
    assert np.mean(wait_s) == pytest.approx(0.7 / (2 * 0.3), rel=0.1)


def test_the_cloud_is_m_m_c():
    """Erlang's C: three machines' worth of cores at 80 % load, exponential work of 1 s in the mean."""
    c, load, count = 3, 0.8, 6000
    rng = np.random.default_rng(3)
    arrival_s, took_s = np.cumsum(rng.exponential(1 / (c * load), count)), rng.exponential(1.0, count)
    wait_s = waits_s(one_service(c, 0), "cloud-only", arrival_s, took_s, WAY_S)
    a = c * load
    tail = a**c / math.factorial(c) / (1 - load)
    waits = tail / (sum(a**i / math.factorial(i) for i in range(c)) + tail)
    assert wait_s.min() == pytest.approx(0.0, abs=1e-6)
    assert np.mean(wait_s) == pytest.approx(waits / (c * (1 - load)), rel=0.1)
