"""Image pulls: max-min fair rates beside flows, ends that are known, and no link above its capacity."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from edgewise.core.pulls import Pulls, max_min

LINKS, KEPT = 4, 0.1
SHARE = 1.0 - KEPT
PATHS = st.lists(st.sets(st.integers(0, LINKS - 1), min_size=1), max_size=6)
RATES = st.lists(st.sampled_from((0.0, 1e6, 3e6, 10e6)), min_size=LINKS, max_size=LINKS)


@settings(max_examples=300)
@given(RATES, PATHS)
def test_rates_are_max_min_fair(free_bps, paths):
    free, over = np.array(free_bps), [np.array(sorted(path)) for path in paths]
    rate = max_min(free, over)
    used = np.zeros(LINKS)
    for each, links in zip(rate, over, strict=True):
        used[links] += each
    assert (used <= free * (1 + 1e-12)).all()
    for f, links in enumerate(over):  # each has a full link on which nobody has more (Bertsekas, Gallager)
        full = [j for j in links.tolist() if used[j] >= free[j] * (1 - 1e-12)]
        assert any(
            all(rate[g] <= rate[f] * (1 + 1e-12) for g, other in enumerate(over) if j in other) for j in full
        )


def pulls(capacity_bps=(10e6, 10e6)):
    told = []
    made = Pulls(np.array(capacity_bps), KEPT, lambda now_s, bps: told.append((now_s, bps.tolist())))
    return made, told


def begin(made, now_s, links, bits, log, way=0):
    def done():
        log.append((links, bits))

    return made.begin(now_s, way, np.array(links), bits, done)


def test_a_pull_alone_takes_its_size_over_the_rate_that_flows_leave():
    made, told = pulls()
    made.set_flows(0.0, np.array([6e6, 0.0]))
    log = []
    begin(made, 1.0, [0, 1], 3e6, log)
    assert made.next_s() == pytest.approx(2.0)
    assert told[-1] == (1.0, [9e6, 3e6])  # the tenth of a link that is kept for messages is left to them
    made.end(1.5)
    assert not log
    made.end(made.next_s())
    assert log == [([0, 1], 3e6)]
    assert told[-1][1] == [6e6, 0.0] and made.next_s() == np.inf


def test_rates_change_with_flows_and_other_pulls_and_what_was_got_counts():
    made, _ = pulls()
    log = []
    begin(made, 0.0, [0], SHARE * 20e6, log)  # 2 s alone
    begin(made, 1.0, [0, 1], SHARE * 5e6, log)  # half of link 0 each: to 2 s
    assert made.next_s() == pytest.approx(2.0)
    made.end(made.next_s())
    assert len(log) == 1 and made.next_s() == pytest.approx(2.5)
    made.set_flows(2.0, np.array([10e6, 0.0]))  # nothing is left: it stands still
    assert made.next_s() == np.inf
    made.validate()
    made.set_flows(7.0, np.array([0.0, 0.0]))
    assert made.next_s() == pytest.approx(7.5)


def test_one_that_is_cancelled_leaves_its_rate_to_others_and_is_never_done():
    made, told = pulls()
    log = []
    first = begin(made, 0.0, [0], 1e9, log)
    begin(made, 0.0, [0], SHARE * 10e6, log)
    made.cancel(1.0, first)
    made.cancel(1.0, first)
    assert made.next_s() == pytest.approx(1.5)
    made.end(made.next_s())
    assert log == [([0], SHARE * 10e6)] and told[-1][1] == [0.0, 0.0]


def test_one_whose_way_is_down_stands_still_and_others_have_its_rate():
    made, told = pulls()
    log = []
    begin(made, 0.0, [0], SHARE * 10e6, log, way=7)  # 1 s alone
    begin(made, 0.0, [0], SHARE * 10e6, log, way=8)
    made.change(1.0, 7, up=False)  # both have half of it
    assert made.next_s() == pytest.approx(1.5) and told[-1][1] == [SHARE * 10e6, 0.0]
    made.end(made.next_s())
    assert made.next_s() == np.inf and told[-1][1] == [0.0, 0.0]
    begin(made, 2.0, [1], SHARE * 10e6, log, way=7)
    assert made.next_s() == np.inf
    made.change(4.0, 7, up=True)
    assert made.next_s() == pytest.approx(4.5)
    made.end(made.next_s())
    made.end(made.next_s())
    assert log == [([0], SHARE * 10e6)] * 2 + [([1], SHARE * 10e6)]
    made.validate()


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(("begin", "flows", "end", "cancel", "change")), st.integers(0, 99)),
        max_size=25,
    )
)
def test_no_link_is_exceeded_and_every_bit_is_pulled_once(events):
    capacity, told = np.array([10e6, 4e6, 8e6]), []
    made = Pulls(capacity, KEPT, lambda now_s, bps: told.append((now_s, bps)))
    draw, now_s, asked, done, cancelled = np.random.default_rng(1), 0.0, 0.0, [], 0.0
    got = 0.0
    for what, seed in events:
        later_s = min(now_s + 0.3, made.next_s())
        got += sum(pull.rate_bps for pull in made.pulls) * (later_s - now_s)
        now_s = later_s
        made.end(now_s)
        if what == "begin":
            links = np.unique(draw.integers(0, 3, 1 + seed % 3))
            bits = 1e5 * (1 + seed)
            made.begin(now_s, seed % 2, links, bits, lambda bits=bits: done.append(bits))
            asked += bits
        elif what == "flows":
            made.set_flows(now_s, capacity * (seed % 11) / 10)
        elif what == "change":
            made.change(now_s, seed % 2, up=seed % 3 > 0)
        elif what == "cancel" and made.pulls:
            pull = made.pulls[seed % len(made.pulls)]
            cancelled += pull.left_bits - pull.rate_bps * (now_s - pull.since_s)
            made.cancel(now_s, pull)
        made.validate()
        flows, used = np.minimum(made.flows_bps, capacity), made.reserved_bps
        assert (used <= np.maximum(flows, SHARE * capacity) * (1 + 1e-9)).all()  # messages have their part
        assert all(pull.end_s >= now_s * (1 - 1e-12) for pull in made.pulls)
        assert all(pull.rate_bps == 0.0 for pull in made.pulls if pull.way in made.down)
    made.set_flows(now_s, np.zeros(3))
    for way in (0, 1):
        made.change(now_s, way, up=True)
    while made.pulls:
        later_s = made.next_s()
        got += sum(pull.rate_bps for pull in made.pulls) * (later_s - now_s)
        now_s = later_s
        made.end(now_s)
    assert got == pytest.approx(asked - cancelled, rel=1e-6, abs=1.0)
    assert all((bps <= capacity * (1 + 1e-9)).all() for _, bps in told)
    assert [at_s for at_s, _ in told] == sorted(at_s for at_s, _ in told)
