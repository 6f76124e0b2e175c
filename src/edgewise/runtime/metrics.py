"""Prometheus metrics of workers and gateways. Streams and queues are read when asked, not counted twice.

No label takes a value of a client's choice, so that their number is bounded by the scenario.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from edgewise.runtime.gateway.dispatching import Dispatching
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.gateway.session import OUTCOMES, UNKNOWN, Session
from edgewise.runtime.http import Response
from edgewise.runtime.protocol.triton import Statistics

DELAYS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class ThreadHistogram(Collector):
    """A histogram for one thread: no lock, and the bucket is found by halving.

    Args:
        name, what: of the metric.
        bounds: upper, of the buckets.
        label: its one label, and the values that it takes.
    """

    def __init__(
        self, name: str, what: str, bounds: Sequence[float], label: str, values: Sequence[str]
    ) -> None:
        self._name, self._what, self._label = name, what, label
        self._bounds, self._values = bounds, values
        self._counts = [[0] * (len(bounds) + 1) for _ in values]
        self._sums = [0.0] * len(values)

    def note(self, amount: float, which: int = 0) -> None:
        """Count an amount, for the label's value number `which`."""
        self._counts[which][bisect_left(self._bounds, amount)] += 1
        self._sums[which] += amount

    def collect(self) -> Iterable[Metric]:
        """The family."""
        family = HistogramMetricFamily(self._name, self._what, labels=[self._label])
        for value, counts, total in zip(self._values, self._counts, self._sums, strict=True):
            bounds = [*map(str, map(float, self._bounds)), "+Inf"]
            family.add_metric([value], list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family


class WorkerMetrics:
    """What a worker did, for one model.

    Args:
        model: its name, a label of every metric.
    """

    def __init__(self, model: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._queries = Counter(
            "edgewise_worker_queries", "Queries answered.", ["model", "status"], registry=registry
        )
        self._model = model
        self._by_status: dict[int, Counter] = {}
        of_model = ("model", [model])
        self._wait = ThreadHistogram(
            "edgewise_worker_wait_seconds", "Time in the queue.", DELAYS_S, *of_model
        )
        self._run = ThreadHistogram(
            "edgewise_worker_run_seconds", "Time of a batch in ONNX Runtime.", DELAYS_S, *of_model
        )
        self._batch = ThreadHistogram(
            "edgewise_worker_batch_queries", "Queries of a batch.", BATCHES, *of_model
        )
        for tally in (self._wait, self._run, self._batch):
            registry.register(tally)
        self.statistics = Statistics()

    def watch_queue(self, length: Callable[[], int]) -> None:
        """Report `length()` as the queue's length."""
        gauge = Gauge(
            "edgewise_worker_queue", "Queries waiting or running.", ["model"], registry=self.registry
        )
        gauge.labels(self._model).set_function(length)

    def ran(self, run_s: float, waits_s: Sequence[float]) -> None:
        """A batch was run."""
        self._run.note(run_s)
        self._batch.note(len(waits_s))
        for wait_s in waits_s:
            self._wait.note(wait_s)
        self.statistics.ran(run_s, waits_s)

    def answered(self, status: int, took_s: float) -> None:
        """A query was answered, so long after it came."""
        self.statistics.answered(status == 200, took_s)
        if status not in self._by_status:
            self._by_status[status] = self._queries.labels(self._model, str(status))
        self._by_status[status].inc()


class GatewayMetrics(Collector):
    """What a gateway's session knows, by task and by worker, at the moment of asking."""

    def __init__(self, session: Session, upstreams: Sequence[Upstream]) -> None:
        self._session, self._upstreams = session, upstreams
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._delays = ThreadHistogram(
            "edgewise_query_delay_seconds", "From a query's arrival to its answer.", DELAYS_S, "worker",
            session.world.worker_names,
        )  # fmt: skip
        self.registry.register(self._delays)
        self._retries = Counter(
            "edgewise_retries", "Queries sent to a second worker.", registry=self.registry
        )

    def answered(self, worker: int, delay_s: float) -> None:
        """A worker answered a query."""
        self._delays.note(delay_s, worker)

    def retried(self) -> None:
        """A query goes to a second worker."""
        self._retries.inc()

    def collect(self) -> Iterable[Metric]:
        """Every family, filled from the session."""
        yield from self._queries()
        yield from self._workers()
        session = self._session
        families = {name: GaugeMetricFamily(f"edgewise_streams_{name}", f"Streams {name} now.")
                    for name in ("bound", "refused")}  # fmt: skip
        families["bound"].add_metric([], len(session.core.bindings))
        families["refused"].add_metric([], len(session.core.refused))
        yield from families.values()
        policy = GaugeMetricFamily("edgewise_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([session.core.policy.name], 1)
        yield policy

    def _queries(self) -> Iterable[Metric]:
        """By task, not by stream: streams come and go, and what they are called is their clients' choice."""
        names, totals = [*dict.fromkeys(self._session.world.task_names), UNKNOWN], self._session.totals
        family = CounterMetricFamily(
            "edgewise_queries", "Queries of all streams.", labels=["task", "outcome"]
        )
        for task in names:
            for outcome in OUTCOMES:
                family.add_metric([task, outcome], totals[task, outcome])
        yield family

    def _workers(self) -> Iterable[Metric]:
        world, view = self._session.world, self._session.core.view()
        figures = {
            "up": ("1 when the worker is up.", view.up),
            "refuses_token": (
                "1 when it answers, and does not take our token.",
                np.array([target.refuses for target in self._upstreams]),
            ),
            "load_qps": ("Normalised load that is reserved.", view.load_qps),
            "capacity_qps": ("Normalised load that it can take.", world.capacity_qps),
            "streams": ("Streams bound to it.", view.streams),
            "in_flight": ("Queries sent to it and not answered.", self._session.in_flight),
        }
        for name, (what, values) in figures.items():
            family = GaugeMetricFamily(f"edgewise_gateway_worker_{name}", what, labels=["worker", "variant"])
            for who, variant, value in zip(world.worker_names, world.variant_names, values, strict=True):
                family.add_metric([who, variant], float(value))
            yield family


class ServiceMetrics(Collector):
    """What a gateway knows of services and their replicas, at the moment of asking.

    Args:
        core: counts.
        registry: the gateway's.
    """

    def __init__(self, core: Dispatching, registry: CollectorRegistry) -> None:
        self._core = core
        registry.register(self)
        names = core.services.names
        self._of = {name: s for s, name in enumerate(names)}
        self._delays = ThreadHistogram(
            "edgewise_request_delay_seconds",
            "From a request's arrival to its answer.",
            DELAYS_S,
            "service",
            names,
        )
        registry.register(self._delays)

    def answered(self, service: str, delay_s: float) -> None:
        """A replica answered a request."""
        self._delays.note(delay_s, self._of[service])

    def collect(self) -> Iterable[Metric]:
        """Every family, filled from the counts."""
        core, services = self._core, self._core.services
        requests = CounterMetricFamily(
            "edgewise_requests", "Requests of services that ended.", labels=["service", "outcome"]
        )
        for s, service in enumerate(services.names):
            for outcome, ended in core.ended.items():
                requests.add_metric([service, outcome], float(ended[s]))
        yield requests
        yield from self._replicas()
        policy = GaugeMetricFamily("edgewise_request_policy", "1 for the policy in use.", labels=["policy"])
        policy.add_metric([core.policy.name], 1)
        yield policy

    def _replicas(self) -> Iterable[Metric]:
        core, services = self._core, self._core.services
        places = (services.spec.cloud, *services.nodes)
        number = GaugeMetricFamily("edgewise_replicas", "Replicas.", labels=["service", "node", "state"])
        held = GaugeMetricFamily(
            "edgewise_replica_requests", "Requests sent and not ended.", labels=["replica", "service", "node"]
        )
        found: dict[tuple[str, str, str], int] = {}
        for r in core.replicas.values():
            name, node = services.names[r.service], places[r.station]
            state = ("ready" if r.up else "starting") if r.wanted else "removing"
            found[name, node, state] = found.get((name, node, state), 0) + 1
            held.add_metric([r.name, name, node], r.mine)
        for labels, value in found.items():
            number.add_metric(list(labels), value)
        yield number
        yield held


def page(registry: CollectorRegistry) -> Response:
    """The metrics as Prometheus' text format."""
    return Response(
        200, generate_latest(registry), {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    )
