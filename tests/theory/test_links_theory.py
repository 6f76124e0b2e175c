"""A shared link against queueing theory: waits of M/D/1, processor sharing, loss of a short buffer."""

import numpy as np
import pytest

from edgewise.model.ways import Routes, levels
from edgewise.sim.links import advance
from edgewise.sim.links.net import FIFO, PS, new_net, with_room

RATE_BPS, MEAN_BITS, COUNT = 1e6, 1e4, 400_000


def one_link(sharing, bits, load, buffer_bytes=np.inf, seed=1):
    """When messages left, when they were there and how long they were held up on one link."""
    draw = np.random.default_rng(seed)
    leaves_s = np.cumsum(draw.exponential(MEAN_BITS / RATE_BPS / load, bits.size))
    link, before = np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1))
    routes = Routes(("link",), np.array([RATE_BPS]), np.array([buffer_bytes]), link, before)
    net = new_net(routes, np.array([np.inf]), levels(1, routes.link), sharing, 1)
    net = with_room(net, bits.size)
    who, zeros = np.arange(bits.size), np.zeros(bits.size)
    assert advance.send(net, 0, who, who * 0, leaves_s, zeros, bits) == bits.size
    came, at_s, wait_s = advance.carry(net, np.inf)
    order = np.argsort(came)
    return leaves_s, at_s[order], wait_s[order], net


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waits_are_those_of_pollaczek_and_khinchine(load):
    bits = np.full(COUNT, MEAN_BITS)
    _, _, wait_s, _ = one_link(FIFO, bits, load)
    service_s = MEAN_BITS / RATE_BPS
    assert wait_s.mean() == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)  # M/D/1
    mixed = np.random.default_rng(2).exponential(MEAN_BITS, COUNT)
    _, _, wait_s, _ = one_link(FIFO, mixed, load)
    assert wait_s.mean() == pytest.approx(load * service_s / (1 - load), rel=0.06)  # M/M/1


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_shared_at_once_a_sojourn_grows_with_size_alone(load):
    # E[sojourn | x] = x / (C (1 - load)) whatever the law of sizes (Kleinrock 1976, section 4.4)
    draw = np.random.default_rng(3)
    bits = np.where(draw.random(COUNT) < 0.9, MEAN_BITS / 2, MEAN_BITS * 5.5)
    leaves_s, at_s, _, _ = one_link(PS, bits, load)
    for size in (MEAN_BITS / 2, MEAN_BITS * 5.5):
        sojourn_s = (at_s - leaves_s)[bits == size]
        assert sojourn_s.mean() == pytest.approx(size / RATE_BPS / (1 - load), rel=0.06)


def test_a_short_buffer_loses_what_theory_says():
    # With no room beside the one that passes it is Erlang's loss formula, load / (1 + load).
    bits = np.full(COUNT, MEAN_BITS)
    leaves_s, at_s, _, net = one_link(FIFO, bits, 0.8, buffer_bytes=1e-9)
    lost = np.isinf(at_s)
    assert lost.mean() == pytest.approx(0.8 / 1.8, rel=0.02)
    assert net.links.dropped[0] == lost.sum()
    assert net.links.carried_bits[0] == pytest.approx((~lost).sum() * MEAN_BITS)
    assert net.links.carried_bits[0] <= RATE_BPS * (at_s[~lost].max() - leaves_s[0])
