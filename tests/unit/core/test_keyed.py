"""Counter-based randomness: reproducible, independent of order, and random enough."""

import hashlib
import io
import os
import sys
from contextlib import redirect_stdout
from subprocess import run

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from edgewise.core import keyed
from edgewise.core.keyed import Purpose

words = st.integers(0, 2**62)


@given(words, st.sampled_from(list(Purpose)), words, words)
def test_kernel_equals_array_version(seed, purpose, entity, counter):
    one = keyed.uniform_of(np.uint64(seed), int(purpose), entity, counter)
    assert one == keyed.uniform(seed, purpose, entity, counter)
    assert 0.0 < one < 1.0


def test_many_at_once_equal_the_array_version():
    made = keyed.uniforms_of(np.uint64(2**64 - 1), int(Purpose.ARRIVAL), 1000, 54)
    assert made.tolist() == keyed.uniform(-1, Purpose.ARRIVAL, np.arange(1000), 54).tolist()


def test_known_values_never_change():
    # Recorded runs replay only as long as these hold.
    assert keyed.uniform(3, 2, 1, 7) == 0.502040987591968
    assert keyed.uniform(3, 2, np.arange(2), 7).tolist() == [0.38222819954289483, 0.502040987591968]


def test_uniform_over_counters_entities_seeds_and_purposes():
    n = 100_000
    k = np.arange(n)
    draws = [
        keyed.uniform(0, 1, k, 0),
        keyed.uniform(0, 1, 0, k),
        keyed.uniform(1, 1, 0, k),
        keyed.uniform(0, 2, 0, k),
    ]
    for x in draws:
        assert stats.kstest(x, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.015
    for a in range(4):
        for b in range(a):
            assert abs(np.corrcoef(draws[a], draws[b])[0, 1]) < 0.015


N = 1_000_000
LAWS = {
    "normal": (keyed.normal, keyed.normal_of, "norm"),
    "exponential": (keyed.exponential, keyed.exponential_of, "expon"),
}


@pytest.fixture(scope="module")
def million():
    """Of each law a million draws over counters, and a million over entities."""
    k = np.arange(N)
    return {name: (law[0](5, 4, 7, k), law[0](5, 4, k, 7)) for name, law in LAWS.items()}


@pytest.mark.parametrize("name", LAWS)
def test_a_million_draws_have_their_law(name, million):
    for x in million[name]:
        assert stats.kstest(x, LAWS[name][2]).pvalue > 1e-3
        law = getattr(stats, LAWS[name][2])
        for moment in range(1, 5):
            spread = np.sqrt(law.moment(2 * moment) - law.moment(moment) ** 2)
            assert abs(np.mean(x**moment) - law.moment(moment)) < 4 * spread / np.sqrt(N)


LEAST = 1e-5  # 64 comparisons


def test_tails_to_four_and_a_half_deviations(million):
    for x in million["normal"]:
        for edge in (2.5, 3.0, 3.5, keyed.NORMAL_TAIL, 4.0, 4.5):
            for beyond in (x > edge, x < -edge):
                expected = N * stats.norm.sf(edge)
                assert stats.poisson.cdf(beyond.sum(), expected) > LEAST
                assert stats.poisson.sf(beyond.sum() - 1, expected) > LEAST
    for x in million["exponential"]:
        for edge in (5.0, keyed.EXPONENTIAL_TAIL, 9.0, 10.0):  # beyond the lowest layer it starts anew
            assert LEAST < stats.poisson.cdf((x > edge).sum(), N * np.exp(-edge)) < 1 - LEAST


def test_the_tail_itself_is_normal():
    # Only one word of 4,000 gets there: all of these do.
    words = keyed.bits(3, 4, 0, np.arange(200_000))
    x = np.array([keyed.normal_tail(word) for word in words])
    beyond = stats.truncnorm(keyed.NORMAL_TAIL, keyed.LARGEST_NORMAL)
    assert stats.kstest(x, beyond.cdf).pvalue > 1e-3 and x.max() < keyed.LARGEST_NORMAL
    assert [keyed.normal_tail(word) for word in words[:300]] == x[:300].tolist()


@pytest.mark.parametrize("name", LAWS)
def test_neighbours_in_counter_entity_seed_and_purpose_do_not_depend_on_each_other(name, million):
    draw, k = LAWS[name][0], np.arange(N)
    by_counter, by_entity = million[name]
    others = [by_entity, draw(6, 4, 7, k), draw(5, 5, 7, k), draw(5, 4, 8, k)]
    pairs = [(x[:-lag], x[lag:]) for x in million[name] for lag in (1, 2, 256)]
    for a, b in pairs + [(by_counter, other) for other in others]:
        for f in (np.asarray, np.square):  # squares too: of values that are not correlated they may be
            assert abs(np.corrcoef(f(a), f(b))[0, 1]) < 4.5 / np.sqrt(N)


@pytest.mark.parametrize("name", LAWS)
def test_one_draw_at_a_time_is_the_draw_of_the_array(name, million):
    # Enough for every layer, the wedges and the tail.
    k = np.arange(100_000)
    one = LAWS[name][1]
    assert [one(np.uint64(5), 4, 7, i) for i in k] == million[name][0][k].tolist()
    assert LAWS[name][0](5, 4, 7, 3) == million[name][0][3]
    assert (
        LAWS[name][0](5, 4, np.arange(6).reshape(2, 3), 7).tolist()
        == million[name][1][:6].reshape(2, 3).tolist()
    )


def test_plain_python_draws_the_same():
    code = (
        "import numpy as np; from edgewise.core import keyed as k; s = np.uint64(5)\n"
        "print([(k.normal_pair_of(s, 4, 7, i), k.exponential_of(s, 4, 7, i)) for i in range(3000)])\n"
        "print([k.normal_tail(word) for word in k.bits(1, 1, 0, np.arange(100))])"
    )
    plain = run(
        [sys.executable, "-c", code],
        env=os.environ | {"EDGEWISE_JIT": "0"},
        text=True,
        capture_output=True,
        check=True,
    )
    compiled = io.StringIO()
    with redirect_stdout(compiled):
        exec(code, {})
    assert plain.stdout == compiled.getvalue()


def test_normal_pairs_are_standard_and_independent(million):
    pairs = np.array([keyed.normal_pair_of(np.uint64(5), 4, 7, i) for i in range(50_000)])
    assert pairs[:, 0].tolist() == million["normal"][0][:50_000].tolist()
    assert stats.kstest(pairs[:, 1], "norm").pvalue > 1e-3
    for f in (np.asarray, np.square):
        assert abs(np.corrcoef(f(pairs).T)[0, 1]) < 0.02


def test_the_layers_are_those_of_marsaglia_and_tsang_on_every_machine():
    for edges, law in (
        (keyed.NORMAL_EDGE, lambda x: np.exp(-x * x / 2)),
        (keyed.EXPONENTIAL_EDGE, lambda x: np.exp(-x)),
    ):
        areas = edges[1:-1] * np.diff(law(edges[1:]))
        assert areas == pytest.approx(edges[0] * law(edges[1]), rel=1e-6)  # the last closes on the top
    digest = hashlib.sha256(keyed.NORMAL_EDGE.tobytes() + keyed.EXPONENTIAL_EDGE.tobytes()).hexdigest()
    assert digest.startswith("b32a676abe1d4f37")


def test_known_draws_never_change():
    assert keyed.normal(3, 2, 1, np.arange(3)).tolist() == [
        -0.600718614285155,
        1.8972330836489357,
        1.4929833761340086,
    ]
    assert keyed.exponential(3, 2, 1, np.arange(3)).tolist() == [
        0.25258086444479044,
        2.7820022814562373,
        1.629856933199794,
    ]
