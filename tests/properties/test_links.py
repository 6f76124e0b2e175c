"""What holds on any shared links: work is conserved, order kept, and no link is above its rate."""

import numpy as np
from hypothesis import given, settings, strategies as st

from edgewise.model.ways import Routes, levels
from edgewise.sim.links import advance
from edgewise.sim.links.net import FIFO, PS, new_net, with_room

MESSAGES = st.lists(
    st.tuples(st.floats(0.0, 0.2), st.floats(1.0, 1e5), st.integers(0, 1)),
    min_size=1,
    max_size=60,
)


def sent(sharing, messages, rates, until_s=(np.inf,)):
    """Two links in a row and the second alone; (leaves_s, bits, route), and when each message was there."""
    gaps, bits, route = (np.array(column, dtype=np.float64) for column in zip(*messages, strict=True))
    leaves_s, route = np.cumsum(gaps), route.astype(np.int64)
    link = np.array([[0, 1], [1, -1]])
    routes = Routes(("a", "b"), np.array(rates), np.full(2, np.inf), link, np.zeros((2, 2)))
    net = new_net(routes, np.full(2, np.inf), levels(2, link), sharing, 1)
    net = with_room(net, route.size)
    advance.send(net, 0, np.arange(route.size), route, leaves_s, np.zeros(route.size), bits)
    at_s = np.full(route.size, np.nan)
    for end in until_s:
        who, there_s, _ = advance.carry(net, end)
        at_s[who] = there_s
    return leaves_s, bits, route, at_s, net


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.floats(1e4, 1e7), st.floats(1e4, 1e7), st.sampled_from([FIFO, PS]))
def test_every_message_comes_once_and_no_sooner_than_alone(messages, one, other, sharing):
    leaves_s, bits, route, at_s, net = sent(sharing, messages, (one, other))
    alone_s = leaves_s + bits / np.where(route == 0, min(one, other), other)
    assert np.isfinite(at_s).all() and (at_s >= alone_s).all()
    assert np.isclose(net.links.carried_bits, [bits[route == 0].sum(), bits.sum()], rtol=1e-12).all()
    assert (net.messages.number == -1).all()  # all are given back
    last_s = at_s.max() + bits.max() / min(one, other)  # its end may still be on links behind the slowest
    assert (
        net.links.carried_bits <= np.array([one, other]) * (last_s - leaves_s[0]) * (1 + 1e-9) + 1e-6
    ).all()
    assert (advance.links_now(net.links, last_s + 1e-6)[1] <= 1e-3).all()


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.floats(1e4, 1e7))
def test_first_come_first_served_keeps_order_and_never_idles(messages, rate):
    leaves_s, bits, _, at_s, _ = sent(FIFO, [(g, b, 1) for g, b, _ in messages], (1e9, rate))
    begins_s = at_s - bits / rate
    assert (np.diff(begins_s) >= -1e-9).all()
    assert (begins_s[1:] >= at_s[:-1] - 1e-9).all()  # one at a time
    busy = np.maximum(leaves_s[1:], at_s[:-1])
    assert np.allclose(begins_s[1:], busy, atol=1e-9)  # and at once when it is free


@settings(max_examples=60, deadline=None)
@given(MESSAGES, st.floats(1e4, 1e6))
def test_both_ways_of_sharing_end_busy_periods_together(messages, rate):
    one = [(g, b, 1) for g, b, _ in messages]
    fifo = sent(FIFO, one, (1e9, rate))[3]
    shared = sent(PS, one, (1e9, rate))[3]
    assert np.isclose(fifo.max(), shared.max(), rtol=1e-9)


@settings(max_examples=30, deadline=None)
@given(MESSAGES, st.lists(st.floats(0.0, 5.0), max_size=8), st.sampled_from([FIFO, PS]))
def test_a_window_may_end_anywhere(messages, ends, sharing):
    whole = sent(sharing, messages, (2e5, 1e5))[3]
    parts = sent(sharing, messages, (2e5, 1e5), (*sorted(ends), np.inf))[3]
    assert (whole == parts).all()
