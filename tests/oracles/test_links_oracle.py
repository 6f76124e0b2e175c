"""Shared links, level by level, equal a naive list of events: on trees, in loops, with drops and changes."""

import numpy as np
import pytest
from naive_links import NaiveLinks

from edgewise.model.ways import Routes, levels
from edgewise.sim.links import advance
from edgewise.sim.links.net import FIFO, PS, new_net, with_room

SHARING = {"fifo": FIFO, "ps": PS}


def tree(draw, size):
    """Routes from each node of a random tree to its root: link k leads from node k + 1 to its parent."""
    parent = [int(draw.integers(0, k + 1)) for k in range(size)]
    routes = []
    for k in range(size):
        route, node = [], k + 1
        while node:
            route.append(node - 1)
            node = parent[node - 1]
        routes.append(route)
    return routes


def loops(draw, size):
    """Routes that go around in both directions, so that links precede each other in loops."""
    return [
        [int((begin + step * way) % size) for step in range(int(draw.integers(1, size)))]
        for begin in range(size)
        for way in (1, -1)
    ]


def made(draw, make, size, buffers):
    chains = make(draw, size)
    most = max(map(len, chains))
    link = np.array([chain + [-1] * (most - len(chain)) for chain in chains])
    shares = np.sort(draw.random(link.shape), axis=1)
    shares[:, 0] = 0.0
    rate = draw.uniform(0.5e6, 2e6, size)
    buffer = draw.uniform(2e3, 2e4, size) if buffers else np.full(size, np.inf)
    return Routes(tuple(f"link-{k}" for k in range(size)), rate, buffer, link, shares)


def carried(routes, sharing, sent, private_bps, changes, steps):
    """Every message's (when, held up), carried in windows that end at every change."""
    net = new_net(routes, private_bps, levels(len(routes.names), routes.link), SHARING[sharing], 1)
    route, leaves_s, there_s, bits = sent
    found, at, order = {}, 0, np.argsort(leaves_s, kind="stable")
    for until_s, change in sorted(
        [(t, None) for t in steps] + [(c[0], c) for c in changes], key=lambda e: e[0]
    ):
        ready = order[at : at + int((leaves_s[order[at:]] < until_s).sum())]
        at, done = at + ready.size, 0
        while done < ready.size:
            parts = (ready, route[ready], leaves_s[ready], there_s[ready], bits[ready])
            done = advance.send(net, done, *parts)
            if done < ready.size:
                net = with_room(net, net.messages.size)
        number, at_s, wait_s = advance.carry(net, until_s)
        found |= {int(n): both for n, *both in zip(number, at_s, wait_s, strict=True)}
        if change is not None:
            advance.reserve(net, change[1], until_s, net.links.capacity_bps[change[1]] - change[2],
                            net.links.capacity_bps[change[1]])  # fmt: skip
    return found, net


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("make", [tree, loops])
@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_times_and_drops_equal_a_naive_list_of_events(sharing, make, buffers):
    held_up = dropped = 0
    for seed in range(6):
        draw = np.random.default_rng(seed)
        size, count = int(draw.integers(2, 7)), 400
        routes = made(draw, make, size, buffers)
        route = draw.integers(0, len(routes.link), count)
        bits, there_s = draw.uniform(1e3, 2e4, count), draw.uniform(0.0, 0.02, count)
        leaves_s = np.sort(draw.uniform(0.0, 5.0 * count / 400, count))
        private_bps = np.full(len(routes.link), draw.choice([0.4e6, 1e6, 1e9]))
        changes = []
        for k, at_s in enumerate(np.sort(draw.uniform(0.5, 4.5, 6))):
            link = int(draw.integers(0, size))
            changes.append((float(at_s), link, float(routes.rate_bps[link] * (0.0, 0.3, 1.0)[k % 3])))
        changes += [(5.5, link, float(routes.rate_bps[link])) for link in range(size)]
        sent = (route, leaves_s, there_s, bits)
        found, _ = carried(routes, sharing, sent, private_bps, changes, [*draw.uniform(0, 9, 5), np.inf])
        naive = NaiveLinks(list(zip(routes.rate_bps, routes.buffer_bytes * 8.0, strict=True)), sharing)
        chains = [
            [(int(j), float(b)) for j, b in zip(*rows, strict=True) if j >= 0]
            for rows in zip(routes.link, routes.before, strict=True)
        ]
        messages = [(chains[r], *rest) for r, *rest in zip(*sent, strict=True)]
        wanted = naive.run(messages, private_bps[route], changes)
        assert found.keys() == wanted.keys() and len(found) == count
        for number, (at_s, wait_s) in wanted.items():
            assert found[number] == pytest.approx([at_s, wait_s], rel=1e-9, abs=1e-9), (seed, number)
        held_up += sum(wait_s > 1e-3 for _, wait_s in wanted.values())
        dropped += sum(np.isinf(at_s) for at_s, _ in wanted.values())
    assert held_up > 300 and (dropped > 30) == buffers


@pytest.mark.parametrize("make", [tree, loops])
@pytest.mark.parametrize("sharing", ["fifo", "ps"])
def test_windows_of_any_length_give_the_same_times_to_the_last_digit(sharing, make):
    draw = np.random.default_rng(3)
    routes = made(draw, make, 5, True)
    route = draw.integers(0, len(routes.link), 3000)
    bits, there_s = draw.uniform(1e3, 2e4, 3000), draw.uniform(0.0, 0.02, 3000)
    sent = (route, np.sort(draw.uniform(0.0, 30.0, 3000)), there_s, bits)
    private_bps = np.full(len(routes.link), 1e6)
    whole, net = carried(routes, sharing, sent, private_bps, (), [np.inf])
    parts, other = carried(routes, sharing, sent, private_bps, (), [*draw.uniform(0, 40, 300), np.inf])
    assert whole == parts and len(whole) == 3000
    assert (net.links.carried_bits == other.links.carried_bits).all()
    assert (net.links.dropped == other.links.dropped).all() and net.links.dropped.sum() > 0


@pytest.mark.parametrize("make", [tree, loops])
@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_who_has_not_begun_to_pass_a_link_uses_its_new_rate(make, factor):
    draw = np.random.default_rng(11)
    routes = made(draw, make, 4, False)
    (first, *others) = [int(j) for j in routes.link[np.argmax((routes.link >= 0).sum(axis=1))] if j >= 0]
    routes.rate_bps[:] = 8e6
    routes.rate_bps[first] = 1e6
    route = np.full(3, np.argmax((routes.link >= 0).sum(axis=1)))
    sent = (route, np.zeros(3), np.zeros(3), np.full(3, 1e6))
    changes = [(0.5, first, factor * 1e6)]
    private_bps = np.full(len(routes.link), np.inf)
    found, _ = carried(routes, "fifo", sent, private_bps, changes, [0.2, 0.7, np.inf])
    half = 0.5 / factor  # what the first one has left, at the new rate
    slowest = max(1.0 / factor, 0.125)
    wanted = [1.0, 0.5 + half + slowest, 0.5 + half + 1.0 / factor + slowest]
    assert len(others) > 0
    assert [float(found[k][0]) for k in range(3)] == pytest.approx(wanted, rel=0, abs=1e-9)
