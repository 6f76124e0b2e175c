"""Requests for services, drawn from a model of the Alibaba 2018 trace (KaiS, sections IV-A, V-A, V-D).

Patterns of the paper, 20 sequences each by seed:

    P1  the sum of CPU load of arrivals rises and falls with a period
    P2  the sum of memory load does
    P3  P1 at twice the frequency
    P4  raw: the trace's mix and its bursts

P1 to P3 are drawn "by service type": the shares of services lean towards heavy and light ones in turn,
share_w(t) ∝ share_w · exp(a · sin(2πt/period) · x_w), x the standardised load of a request of w. `a` is such
that the mean load of an arrival at the crest is (1 + swing)/(1 - swing) times that in the trough.

The trace's durations are seconds to days, and its arrivals seconds apart; a request's delay requirement is
`delay_scale` times the duration, clipped, and its execution takes 1/slack of that, undisturbed, on the
cores that it plans. Gaps are scaled so that requests arrive at `rate_qps`; bursts stay as they are.
Every draw is a hash of (seed, purpose, number of the request): a seed's arrivals are the same under every
policy.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, uniform
from edgewise.core.orchestrate import Requests
from edgewise.errors import ScenarioError
from edgewise.model.grammar.services import TracedRequestsSpec
from edgewise.workloads.batch_task import QUANTILES, BatchModel, BatchTasks

KINDS = ("P1", "P2", "P3", "P4")
SHOWN = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # quantiles
PHASES = 64  # steps into which a period is cut for the shares of services
GAPS, BATCHES, SERVICE, STICK, DURATION, SITE, PAYLOAD, SLACK, WORLD = range(30, 39)  # counters of draws
CORES = 5  # column of a sequence


@dataclass(frozen=True, slots=True)
class RequestPattern:
    """How sequences of requests are drawn.

    Attributes:
        kinds: segments of equal length, one after the other; one of them, or P1 → P4 as in KaiS's figure 11.
        horizon_s: length of a sequence.
        rate_qps: requests per second, all sites together.
        sites: the paper's eAPs, at which they arrive, each as likely.
        period_s: of P1 and P2; P3 has half of it.
        swing: of P1 to P3, in 0 … 1.
        delay_scale: delay requirement over the trace's duration.
        delay_least_s, delay_most_s: ends of what is required.
        slack_least, slack_most: delay requirement over undisturbed execution, uniform between.
        most_cores: a request needs no more than this; some of the trace need 4 cores.
        memory_bytes_per_share: bytes of one unit of plan_mem, which a replica holds.
        memory_in_work: of that, what a request needs besides, while it is worked on.
        payload_bytes: mean; a request's is uniform on 0.5 … 1.5 times it.
        load_spread, delay_spread: each sequence's rate and delays are scaled by uniform 1 ± spread.
    """

    kinds: tuple[str, ...] = ("P4",)
    horizon_s: float = 250.0
    rate_qps: float = 12.0
    sites: int = 5
    period_s: float = 100.0
    swing: float = 0.5
    delay_scale: float = 0.1
    delay_least_s: float = 2.0
    delay_most_s: float = 20.0
    slack_least: float = 1.5
    slack_most: float = 3.0
    most_cores: float = 1.0
    memory_bytes_per_share: float = 1e9
    memory_in_work: float = 0.1
    payload_bytes: float = 250e3
    load_spread: float = 0.0
    delay_spread: float = 0.0

    def __post_init__(self) -> None:
        strange = [kind for kind in self.kinds if kind not in KINDS]
        if strange or not self.kinds:
            raise ScenarioError(f"kinds {self.kinds}: use one or more of {', '.join(KINDS)}")
        for name in (
            "horizon_s",
            "rate_qps",
            "sites",
            "period_s",
            "delay_scale",
            "slack_least",
            "most_cores",
        ):
            if not getattr(self, name) > 0:
                raise ScenarioError(f"{name} {getattr(self, name)}: must be positive")
        for name in ("swing", "load_spread", "delay_spread"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ScenarioError(f"{name} {getattr(self, name)}: must be in 0 … 1, 1 left out")

    def sha256(self) -> str:
        """Hash of every parameter, for freezing."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@cache
def alibaba_2018() -> BatchModel:
    """The model that ships; docs/orchestration-learning.md shows how well it fits."""
    text = (files("edgewise") / "data/workloads/batch-task-2018.json").read_text(encoding="utf-8")
    return BatchModel.from_json(json.loads(text))


def pattern(kind: str, base: RequestPattern | None = None) -> RequestPattern:
    """P1, P2, P3, P4, "P1-P4" (concatenated) or "sequences" (clips of P4 whose load and delays differ).

    Raises:
        ScenarioError: no such pattern.
    """
    base = base or RequestPattern()
    if kind in KINDS:
        return replace(base, kinds=(kind,))
    if kind == "P1-P4":
        return replace(base, kinds=KINDS)
    if kind == "sequences":
        return replace(base, kinds=("P4",), load_spread=0.3, delay_spread=0.2)
    raise ScenarioError(f"pattern {kind!r}: use one of {', '.join((*KINDS, 'P1-P4', 'sequences'))}")


def pattern_of(spec: TracedRequestsSpec, sites: int, horizon_s: float) -> RequestPattern:
    """The pattern that a scenario asks for."""
    figures = spec.model_dump(exclude={"pattern", "services"})
    return pattern(spec.pattern, RequestPattern(sites=sites, horizon_s=horizon_s, **figures))


def first_services(services: int) -> BatchModel:
    """The model that ships, of its most frequent services alone."""
    model = alibaba_2018()
    if services == model.share.size:
        return model
    names = ("kind", "cpu_cores", "memory_share", "duration_s")
    share = model.share[:services]
    return replace(model, share=share / share.sum(), **{x: getattr(model, x)[:services] for x in names})


def generate(what: RequestPattern, seeds: Sequence[int], model: BatchModel | None = None) -> Requests:
    """One world for each seed.

    Args:
        model: of the trace; the one that ships if None.
    """
    drawn = [_sequence(what, seed, model or alibaba_2018()) for seed in seeds]
    most = max(1, *(columns[0].size for columns in drawn))
    arrays = [np.zeros((len(drawn), most), dtype=column.dtype) for column in drawn[0]]
    for world, columns in enumerate(drawn):
        for array, column in zip(arrays, columns, strict=True):
            array[world, : column.size] = column
    arrays[CORES][:, :] = np.where(arrays[CORES] > 0.0, arrays[CORES], 1.0)  # unused rows
    return Requests(np.array([columns[0].size for columns in drawn]), *arrays)


def _sequence(what: RequestPattern, seed: int, model: BatchModel) -> tuple[NDArray[Any], ...]:
    """Columns of `Requests` of one world, `count` left out."""
    load, delay = (
        1.0 + spread * (2.0 * uniform(seed, Purpose.REQUEST, index, WORLD) - 1.0)
        for index, spread in enumerate((what.load_spread, what.delay_spread))
    )
    arrival = _arrivals(what, model, seed, what.rate_qps * load)
    number = np.arange(arrival.size)

    def draw(counter: int) -> Floats:
        return np.asarray(uniform(seed, Purpose.REQUEST, number, counter))

    service = _services(what, model, arrival, draw(SERVICE), draw(STICK))
    required = _required_s(what, _duration(model, service, draw(DURATION)))
    slack = what.slack_least + (what.slack_most - what.slack_least) * draw(SLACK)
    cores, memory_bytes = service_needs(what, model)
    return (
        arrival,
        np.minimum((draw(SITE) * what.sites).astype(np.int64), what.sites - 1),
        service,
        arrival + delay * required,
        required / slack * cores[service],
        cores[service],
        what.memory_in_work * memory_bytes[service],
        what.payload_bytes * (0.5 + draw(PAYLOAD)),
    )


def _required_s(what: RequestPattern, duration_s: Floats) -> Floats:
    """Delay requirement of requests whose tasks took so long."""
    return np.clip(what.delay_scale * duration_s, what.delay_least_s, what.delay_most_s)


def service_needs(what: RequestPattern, model: BatchModel | None = None) -> tuple[Floats, Floats]:
    """(W,) cores and (W,) bytes of a replica of each service."""
    model = model or alibaba_2018()
    return np.minimum(model.cpu_cores, what.most_cores), model.memory_share * what.memory_bytes_per_share


def _between(values: Floats, draws: Floats) -> Floats:
    """Quantiles, linear between those known."""
    return np.interp(draws, QUANTILES, values)


def _duration(model: BatchModel, service: Ints, draws: Floats) -> Floats:
    """Quantiles of each service's durations, log-linear between those known."""
    logs = np.log(model.duration_s)
    right = np.clip(np.searchsorted(QUANTILES, draws, side="right"), 1, len(QUANTILES) - 1)
    low, high = np.array(QUANTILES)[right - 1], np.array(QUANTILES)[right]
    part = (draws - low) / (high - low)
    found: Floats = np.exp((1.0 - part) * logs[service, right - 1] + part * logs[service, right])
    return found


def _arrivals(what: RequestPattern, model: BatchModel, seed: int, rate_qps: float) -> Floats:
    """(Q,) times: batches with the trace's gaps and sizes, gaps scaled to the rate."""
    middle = (np.arange(4096) + 0.5) / 4096
    mean_batch = np.rint(_between(model.batch, middle)).mean()
    stretch = mean_batch / rate_qps / _between(model.gap_s, middle).mean()
    expected = what.horizon_s * rate_qps / mean_batch
    most = int(expected + 8.0 * np.sqrt(expected) * 2.0 + 64)
    batch = np.arange(most)
    gaps = stretch * _between(model.gap_s, np.asarray(uniform(seed, Purpose.REQUEST, batch, GAPS)))
    start = np.cumsum(gaps)
    draws = np.asarray(uniform(seed, Purpose.REQUEST, batch, BATCHES))
    size = np.rint(_between(model.batch, draws)).astype(np.int64)
    inside = start < what.horizon_s
    return np.repeat(start[inside], size[inside])


def _services(what: RequestPattern, model: BatchModel, arrival: Floats, draws: Floats, stick: Floats) -> Ints:
    """(Q,) service of each request: its segment's shares at that time, and the batch's memory."""
    segment = np.minimum((arrival / what.horizon_s * len(what.kinds)).astype(np.int64), len(what.kinds) - 1)
    service = np.empty(arrival.size, dtype=np.int64)
    for index, kind in enumerate(what.kinds):
        here = segment == index
        period = what.period_s / (2.0 if kind == "P3" else 1.0)
        phase = np.floor(arrival[here] / period % 1.0 * PHASES).astype(np.int64)
        table = np.cumsum(_shares(what, model, kind), axis=1)
        found = (draws[here, None] > table[phase]).sum(axis=1)
        service[here] = np.minimum(found, table.shape[1] - 1)
    first = np.diff(arrival, prepend=-1.0) > 0
    keeps = ~first & (stick < model.sticky)
    source = np.maximum.accumulate(np.where(keeps, 0, np.arange(arrival.size)))
    return service[source]


def _shares(what: RequestPattern, model: BatchModel, kind: str) -> Floats:
    """(PHASES, W) shares of services over a period."""
    if kind == "P4":
        return np.tile(model.share / model.share.sum(), (PHASES, 1))
    load = mean_work_core_s(what, model) if kind in ("P1", "P3") else model.memory_share
    centred = np.log(load) - np.log(load) @ model.share / model.share.sum()
    lean = centred / max(float(np.sqrt(centred**2 @ model.share)), 1e-9)
    wave = np.sin(2.0 * np.pi * (np.arange(PHASES) + 0.5) / PHASES)

    def shares(amplitude: float) -> Floats:
        weights = model.share * np.exp(amplitude * wave[:, None] * lean)
        found: Floats = weights / weights.sum(axis=1, keepdims=True)
        return found

    low, high = 0.0, 8.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        mean = shares(middle) @ load
        ratio = float(mean.max() / mean.min())
        low, high = (middle, high) if ratio < (1.0 + what.swing) / (1.0 - what.swing) else (low, middle)
    return shares(low)


def mean_work_core_s(what: RequestPattern, model: BatchModel) -> Floats:
    """(W,) mean core-seconds of a request of each service."""
    draws = np.tile((np.arange(256) + 0.5) / 256, (model.share.size, 1))
    services = np.repeat(np.arange(model.share.size)[:, None], 256, axis=1)
    duration = np.stack([_duration(model, s, d) for s, d in zip(services, draws, strict=True)])
    required = _required_s(what, duration).mean(axis=1)
    per_slack = np.log(what.slack_most / what.slack_least) / (what.slack_most - what.slack_least)
    found: Floats = required * per_slack * np.minimum(model.cpu_cores, what.most_cores)
    return found


def comparison(
    trace: BatchTasks, model: BatchModel, seed: int = 0, shown: tuple[float, ...] = SHOWN
) -> Mapping[str, tuple[Floats, Floats]]:
    """How well the model of a trace fits it (docs/orchestration-learning.md).

    Returns:
        Quantity → its quantiles in the trace and in as long a generated sequence, in the trace's
        units.
    """
    span_s = float(trace.start_s[-1] - trace.start_s[0])
    what = RequestPattern(
        horizon_s=span_s,
        rate_qps=trace.start_s.size / span_s,
        delay_scale=1.0,
        delay_least_s=1e-9,
        delay_most_s=1e9,
        most_cores=1e9,
        memory_bytes_per_share=1.0,
        memory_in_work=1.0,
    )
    drawn = generate(what, [seed], model)
    pairs = {
        "duration, s": (trace.duration_s, (drawn.deadline_s - drawn.arrival_s)[0]),
        "cores": (trace.cpu_cores, drawn.cpu_cores[0]),
        "memory share": (trace.memory_share, drawn.memory_bytes[0]),
        "time between arrivals, s": (np.diff(trace.start_s), np.diff(drawn.arrival_s[0])),
    }
    return {name: (np.quantile(a, shown), np.quantile(b, shown)) for name, (a, b) in pairs.items()}
