"""The loop of stations where split queries are decided as they come, and what their scheduler hears.

At the end of each period every server counts the tasks that ended there; the counts arrive after a lag. Of
counts that have arrived only the latest matter, for they go on from the beginning. Without a period the
scheduler knows at once how far each server is, even in the task under way: Nona's setting as published.
"""

import math
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.split import SplitState, book, count_arrival, hear
from edgewise.kernels.compiled import held, kernel
from edgewise.model.grammar.scenario import TelemetrySpec
from edgewise.policies.split.schedule import SplitRule, beside, place_beside
from edgewise.sim.stations.loop import advance_held
from edgewise.sim.stations.state import DECISION, REACHED, GraphTables, StationWorld


class SplitNews(NamedTuple):
    """Counts on their way to the scheduler: the last R of S servers, sample k in row k modulo R.

    Attributes:
        period_s: between samples; 0: all is known at once, and in row 0.
        lag_s: of a sample.
        worked_s, served: (R, S) as in `core.split.core.ServersTold`.
        at: (2,) samples taken; sample that was heard last, from 1.
    """

    period_s: float
    lag_s: float
    worked_s: Floats
    served: Ints
    at: Ints


def new_news(servers: int, telemetry: TelemetrySpec | None) -> SplitNews:
    """Of servers that have done nothing; None: all is known at once."""
    period_s, lag_s = (telemetry.period_s, telemetry.lag_s) if telemetry is not None else (0.0, 0.0)
    rows = math.ceil(lag_s / period_s) + 2 if period_s else 1
    shape = rows, servers
    return SplitNews(period_s, lag_s, np.zeros(shape), np.zeros(shape, np.int64), np.zeros(2, np.int64))


@kernel
def count_work(world: StationWorld, news: SplitNews, row: int, whole: bool) -> None:
    """What each server has worked off by now, and the number of tasks; `whole`: only tasks that ended."""
    now_s = world.clock[0].now_s
    for s in range(news.served.shape[1]):
        station = world.stations[s]
        worked_s = station.busy_s + (now_s - station.area_s) * min(station.serving, station.servers)
        if whole and station.serving > 0:
            worked_s -= now_s - world.slots[station.slot].start_s
        news.worked_s[row, s], news.served[row, s] = worked_s, station.served


@kernel
def latest_news(world: StationWorld, news: SplitNews) -> int:
    """The row of news that has arrived by now and was not yet heard of, or -1; it is heard now."""
    if news.period_s == 0.0:
        count_work(world, news, 0, False)
        return 0
    now_s, found = world.clock[0].now_s, -1
    for k in range(max(news.at[1], news.at[0] - news.served.shape[0]), news.at[0]):
        if (k + 1) * news.period_s + news.lag_s <= now_s:
            news.at[1], found = k + 1, k % news.served.shape[0]
    return int(found)


@kernel
def advance_to_query(p: GraphTables, world: StationWorld, until_s: float, news: SplitNews) -> int:
    """`advance_held`, with samples taken on the way."""
    c = world.clock[0]
    while True:
        sample_s = (news.at[0] + 1) * news.period_s if news.period_s > 0.0 else math.inf
        if c.events == 0 and c.pending < 0 and c.query == world.queries.size:
            sample_s = math.inf  # nothing is left
        status = advance_held(p, world, min(sample_s, until_s), world.changes)
        if c.now_s < sample_s or (status != REACHED and status != DECISION):
            return status
        count_work(world, news, news.at[0] % news.served.shape[0], True)
        news.at[0] += 1
        if status == DECISION:  # at the very instant
            return status


@kernel
def advance_hearing(plan: GraphTables, world: StationWorld, until_s: float, news: SplitNews) -> int:
    """On to the next query that waits to be placed, for a scheduler in Python."""
    return advance_to_query(held(plan), held(world), until_s, news)


class SplitMemory(NamedTuple):
    """A policy in arrays, what its scheduler keeps, and news on their way to it."""

    rule: SplitRule
    state: SplitState
    news: SplitNews


@kernel
def advance_splitting(plan: GraphTables, world: StationWorld, until_s: float, memory: SplitMemory) -> int:
    """`advance_deciding` with `SplitCore` and its policy built in, so that its code is kept on disk.

    Returns:
        As `advance`; DECISION only where rates have drifted, with the query placed.
    """
    p, x = held(plan), held(world)
    state, news = memory.state, memory.news
    given = beside(state.ledger)
    while True:
        status = advance_to_query(p, x, until_s, news)
        if status != DECISION:
            return status
        row = latest_news(x, news)
        if row >= 0:
            hear(state, news.worked_s[row], news.served[row])
        pending = x.clock[0].pending
        flight, servers = x.flights[pending], x.placement[pending]
        drifted = count_arrival(state.rates, flight.graph, x.clock[0].now_s)
        place_beside(memory.rule, state.ledger, given, flight.graph, flight.query, servers)
        tasks = memory.rule.graphs.tasks[flight.graph]
        book(state, servers[:tasks], memory.rule.graphs.work_ops[flight.graph, :tasks])
        if drifted:
            return int(DECISION)
