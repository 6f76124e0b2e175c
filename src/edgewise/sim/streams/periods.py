"""Periods of telemetry: what is measured at the end of each, and who has yet to hear of it.

Forbidden here: rules, and what becomes of what is measured.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.dispatch.events import Measured, Telemetry
from edgewise.core.telemetry import p95_s, rate_and_mean
from edgewise.kernels.compiled import held, kernel
from edgewise.sim.streams.state import Workers
from edgewise.sim.streams.telemetry import count_all_answers

# At equal times: gateways have counted their requests, capacity returns, then things break, then news
# arrives, then windows begin, then clients come.
COUNTED, CLOSED, CHANGED, SAMPLE, NEWS, TICK, OPENED = range(7)
PERIODS, SAMPLED, HEARD_OF, COUNTED_TO, COUNTS = range(5)  # in `Periods.many`
QUEUE, THROUGHPUT, DELAY_MEAN, DELAY_P95 = range(4)  # in a row of `Periods.told`


class Periods(NamedTuple):
    """Telemetry of a run: W workers, L links, S gateways; R periods at most are under way at a time.

    Attributes:
        period_s, lag_s: see `TelemetrySpec`.
        many: PERIODS of the run; SAMPLED so far; HEARD_OF by gateways; COUNTED_TO are those at whose news
            they have counted their requests, if they do (COUNTS).
        told: (R, 4, W) QUEUE, THROUGHPUT, DELAY_MEAN and DELAY_P95 of each, see `Telemetry`.
        left_bps: (R, S, L) what is left of links to each gateway.
        unsent_bits: (R, L) that links have still to send.
    """

    period_s: float
    lag_s: float
    many: Ints
    told: Floats
    left_bps: Floats
    unsent_bits: Floats


def new_periods(
    period_s: float, lag_s: float, duration_s: float, workers: int, gateways: int, links: int
) -> Periods:
    """Nothing is measured yet."""
    room = math.ceil(lag_s / period_s) + 2
    return Periods(
        period_s, lag_s, np.array([int(duration_s / period_s), 0, 0, 0, 0]),
        np.zeros((room, 4, workers)), np.zeros((room, gateways, links)), np.zeros((room, links)),
    )  # fmt: skip


@kernel(allocates=False)
def next_period(p: Periods) -> tuple[float, int]:
    """When what is next of SAMPLE, COUNTED and NEWS; infinite: nothing is."""
    many, at_s, what = p.many, np.inf, SAMPLE
    if many[SAMPLED] < many[PERIODS]:
        at_s = (many[SAMPLED] + 1) * p.period_s
    if many[HEARD_OF] < many[SAMPLED]:
        news_s = (many[HEARD_OF] + 1) * p.period_s + p.lag_s
        if news_s < at_s:
            at_s, what = news_s, NEWS
    if many[COUNTS] and many[COUNTED_TO] < many[SAMPLED]:
        news_s = (many[COUNTED_TO] + 1) * p.period_s + p.lag_s
        if news_s <= at_s:
            at_s, what = news_s, COUNTED
    return at_s, what


@kernel
def measure(p: Periods, queue: Floats, links: Floats, declared_bps: Floats, workers: Workers) -> None:
    """A period ends: note what workers counted in it, who begin anew, and what is left of links.

    Beside what is reserved, what other gateways' streams declare is not left of a link.

    Args:
        queue: (W,) queries waiting or in service.
        links: (2, L) bit/s that are left of each, and bits that it has still to send.
        declared_bps: (S, L) by the streams of each gateway.
    """
    w = held(workers)
    row = p.many[SAMPLED] % len(p.told)
    p.many[SAMPLED] += 1
    count_all_answers(p.many[SAMPLED] * p.period_s, w)
    told, answered = p.told[row], np.empty(queue.size, dtype=np.int64)
    for k in range(queue.size):
        each = w.each[k]
        answered[k] = each.answered
        told[QUEUE, k] = queue[k]
        told[THROUGHPUT, k], told[DELAY_MEAN, k] = rate_and_mean(each.answered, each.delay_sum_s, p.period_s)
        each.answered, each.delay_sum_s = 0, 0.0
    told[DELAY_P95] = p95_s(answered, w.histogram)
    w.histogram[:] = 0
    for j in range(links.shape[1]):
        total_bps = 0.0
        for s in range(len(declared_bps)):
            total_bps += declared_bps[s, j]
        for s in range(len(declared_bps)):
            others_bps = total_bps - declared_bps[s, j]
            p.left_bps[row, s, j] = max(links[0, j] - others_bps, 0.0)
        p.unsent_bits[row, j] = links[1, j]


def measured_for(p: Periods, gateway: int) -> Measured:
    """What a gateway hears of the next period."""
    number = int(p.many[HEARD_OF])
    row, ended_s = number % len(p.told), (number + 1) * p.period_s
    links = np.stack([p.left_bps[row, gateway], p.unsent_bits[row]]) if p.unsent_bits.size else None
    queue, throughput_qps, delay_mean_s, delay_p95_s = p.told[row].copy()
    return Measured(
        ended_s + p.lag_s, Telemetry(ended_s, queue, throughput_qps, delay_mean_s, delay_p95_s, links)
    )


def ended_s(p: Periods) -> float:
    """All has happened up to there, when the last moment of these periods was taken."""
    return float(
        max(p.many[SAMPLED] * p.period_s, p.many[COUNTED_TO] and p.many[COUNTED_TO] * p.period_s + p.lag_s)
    )
