"""Sources: as many as said, at their hours, from within a period; and nothing moves another's draws."""

from typing import Any

from hypothesis import given, settings, strategies as st

from edgewise.core.keyed import Purpose, uniform
from edgewise.model.parsing import parse_scenario
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.runtime.clients.traffic import send_times_s
from edgewise.workloads.generate import generate_streams

H = 3600.0
DATA: dict[str, Any] = {
    "name": "sources", "window_s": 600, "sharing": "none",
    "catalog": {
        "models": [{"name": "m", "task": "t", "accuracy": 1}],
        "variants": [{"name": "v", "model": "m", "profile": {"fixed_s": 0.01}, "largest_bytes": 1000}],
    },
    "clusters": [{"name": "box", "tier": 0, "nodes": [{"name": "n", "resources": {"cpu_cores": 1}}]}],
    "links": [{"site": "*", "cluster": "*"}], "workers": [{"variant": "v", "node": "n"}],
}  # fmt: skip
CLIENTS = {
    "applications": [
        {"name": "a", "task": "t", "rate_qps": [1, 2], "size_bytes": 1, "deadline_s": 1, "length_s": [9, 99]}
    ],
    "arrivals": {"clients_per_min": 0.5},
}
hour = st.integers(0, 47).map(lambda half: half / 2.0)
spans = st.tuples(hour, hour).filter(lambda span: span[0] != span[1]).map(list)
sources = st.fixed_dictionaries(
    {"count": st.integers(0, 4), "rate_qps": st.floats(0.001, 0.01), "hours": st.lists(spans, max_size=2),
     "priority": st.integers(-2, 2)}
)  # fmt: skip


def made(listed: list[dict[str, Any]], sites: int, hours: float, begins_h: float, **more: Any) -> Scenario:
    named = [
        {"name": f"s{k}", "task": "t", "size_bytes": 1, "deadline_s": 1} | each
        for k, each in enumerate(listed)
    ]
    streams = {"sources": named, "begins_at_s": begins_h * H} | more
    places = {"sites": [{"name": "site", "count": sites}], "duration_s": hours * H}
    return parse_scenario(DATA | places | {"streams": streams}, "sources")


def without_id(stream: Stream) -> tuple[Any, ...]:
    """All of a stream of a source but its place in the run; it is not what keys its draws."""
    return (stream.source, stream.site, stream.open_s, stream.close_s, stream.rate_qps, stream.key)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(sources, min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 40), hour, st.integers(0, 99)
)
def test_as_many_as_said_are_open_at_their_hours(
    listed: list[dict[str, Any]], sites: int, lasts_h: int, begins_h: float, seed: int
) -> None:
    """At the middle of every quarter of an hour, by the clock on the wall."""
    scenario = made(listed, sites, lasts_h, begins_h)
    streams = generate_streams(scenario, seed)
    assert [stream.id for stream in streams] == list(range(len(streams)))
    assert generate_streams(scenario, seed) == streams
    assert len({stream.key for stream in streams}) == len(streams)
    for k, each in enumerate(listed):
        for quarter in range(0, 4 * lasts_h, 3):
            at_s = (quarter + 0.5) * H / 4
            clock = (begins_h + at_s / H) % 24
            on = not each["hours"] or any(
                a <= clock < b if a < b else clock >= a or clock < b for a, b in each["hours"]
            )
            here = [s.site for s in streams if s.application == f"s{k}" and s.open_s <= at_s < s.close_s]
            assert sorted(here) == sorted(list(range(sites)) * each["count"] if on else [])


@settings(max_examples=30, deadline=None)
@given(st.lists(sources, min_size=1, max_size=2), st.integers(1, 12), hour, st.integers(0, 99))
def test_queries_begin_within_a_period_and_come_evenly(
    listed: list[dict[str, Any]], lasts_h: int, begins_h: float, seed: int
) -> None:
    for stream in generate_streams(made(listed, 2, lasts_h, begins_h), seed):
        period_s, times_s = 1.0 / stream.rate_qps, send_times_s(stream, seed)
        phase_s = period_s * uniform(seed, Purpose.PHASE, stream.key)
        assert 0.0 < phase_s < period_s
        expected = [stream.open_s + phase_s + n * period_s for n in range(len(times_s))]
        assert all(abs(a - b) < 1e-6 for a, b in zip(times_s, expected, strict=True))
        last_s = expected[-1] if expected else stream.open_s + phase_s - period_s
        assert last_s < stream.close_s <= last_s + period_s + 1e-6


@settings(max_examples=30, deadline=None)
@given(st.lists(sources, max_size=2), sources, st.integers(0, 99), st.booleans())
def test_a_source_moves_nobodys_draws(
    listed: list[dict[str, Any]], added: dict[str, Any], seed: int, with_clients: bool
) -> None:
    more = CLIENTS if with_clients or not listed else {}
    before = generate_streams(made(listed, 2, 3, 8, **more), seed)
    after = generate_streams(made([*listed, added], 2, 3, 8, **more), seed)
    mine = f"s{len(listed)}"
    assert [s for s in after if not s.source] == [s for s in before if not s.source]
    kept = {without_id(stream) for stream in after if stream.source and stream.application != mine}
    assert kept >= {without_id(stream) for stream in before if stream.source}
    raised = [each | {"count": each["count"] + 1} for each in listed]
    if raised:
        again = {without_id(s) for s in generate_streams(made(raised, 2, 3, 8, **more), seed)}
        assert again >= {without_id(stream) for stream in before if stream.source}
