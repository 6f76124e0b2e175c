"""Prometheus metrics of workers and gateways. Streams and queues are read when asked, not counted twice.

No label takes a value of a client's choice, so that their number is bounded by the scenario.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from edgewise.runtime.gateway.dispatching import Dispatching
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.gateway.session import OUTCOMES, UNKNOWN, Session
from edgewise.runtime.http import Response
from edgewise.runtime.protocol.triton import Statistics

DELAYS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
Family = CounterMetricFamily | GaugeMetricFamily
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
    """What a gateway's session knows, by task and by worker, at the moment of asking.

    Attributes:
        delays: of the answers of each worker, by its number.
        retries: queries that went to a second worker.
    """

    def __init__(self, session: Session, upstreams: Sequence[Upstream]) -> None:
        self._session, self._upstreams = session, upstreams
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self.delays = ThreadHistogram(
            "edgewise_query_delay_seconds", "From a query's arrival to its answer.", DELAYS_S, "worker",
            session.world.worker_names,
        )  # fmt: skip
        self.registry.register(self.delays)
        self.retries = Counter("edgewise_retries", "Queries sent to a second worker.", registry=self.registry)

    def collect(self) -> Iterable[Metric]:
        """Every family, filled from the session; by task, for streams have names of their clients' choice."""
        session, world, view = self._session, self._session.world, self._session.core.view()
        tasks = [*dict.fromkeys(world.task_names), UNKNOWN]
        yield _filled(
            CounterMetricFamily("edgewise_queries", "Queries of all streams.", labels=["task", "outcome"]),
            [((task, outcome), session.totals[task, outcome]) for task in tasks for outcome in OUTCOMES],
        )
        figures: dict[str, tuple[str, Iterable[float]]] = {
            "up": ("1 when the worker is up.", view.up),
            "refuses_token": (
                "1 when it answers, and does not take our token.",
                [target.refuses for target in self._upstreams],
            ),
            "load_qps": ("Normalised load that is reserved.", view.load_qps),
            "capacity_qps": ("Normalised load that it can take.", world.capacity_qps),
            "streams": ("Streams bound to it.", view.streams),
            "in_flight": ("Queries sent to it and not answered.", session.in_flight),
        }
        workers = list(zip(world.worker_names, world.variant_names, strict=True))
        for name, (what, values) in figures.items():
            family = GaugeMetricFamily(f"edgewise_gateway_worker_{name}", what, labels=["worker", "variant"])
            yield _filled(family, zip(workers, values, strict=True))
        for name, now in (("bound", session.core.bindings), ("refused", session.core.refused)):
            yield GaugeMetricFamily(f"edgewise_streams_{name}", f"Streams {name} now.", value=len(now))
        yield _in_use("edgewise_policy", session.core.policy.name)


class ServiceMetrics(Collector):
    """What a gateway knows of services and their replicas, at the moment of asking.

    Args:
        core: counts.
        registry: the gateway's.
    Attributes:
        delays: of the answers of each service, by its number.
    """

    def __init__(self, core: Dispatching, registry: CollectorRegistry) -> None:
        self._core = core
        registry.register(self)
        self.delays = ThreadHistogram(
            "edgewise_request_delay_seconds",
            "From a request's arrival to its answer.",
            DELAYS_S,
            "service",
            core.services.names,
        )
        registry.register(self.delays)

    def collect(self) -> Iterable[Metric]:
        """Every family, filled from the counts."""
        core, services = self._core, self._core.services
        places = (services.spec.cloud, *services.nodes)
        replicas = [(r, services.names[r.service], places[r.station]) for r in core.replicas.values()]
        states = Counts(
            (name, node, ("ready" if r.up else "starting") if r.wanted else "removing")
            for r, name, node in replicas
        )
        yield _filled(
            CounterMetricFamily(
                "edgewise_requests", "Requests of services that ended.", labels=["service", "outcome"]
            ),
            [
                ((name, outcome), ended[s])
                for s, name in enumerate(services.names)
                for outcome, ended in core.ended.items()
            ],
        )
        yield _filled(
            GaugeMetricFamily("edgewise_replicas", "Replicas.", labels=["service", "node", "state"]),
            states.items(),
        )
        yield _filled(
            GaugeMetricFamily(
                "edgewise_replica_requests", "Requests sent and not ended.",
                labels=["replica", "service", "node"],
            ),
            [((r.name, name, node), r.mine) for r, name, node in replicas],
        )  # fmt: skip
        yield _in_use("edgewise_request_policy", core.policy.name)


def _filled(family: Family, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """A family with a value for each tuple of labels."""
    for labels, value in samples:
        family.add_metric(list(labels), float(value))
    return family


def _in_use(name: str, policy: str) -> Metric:
    return _filled(GaugeMetricFamily(name, "1 for the policy in use.", labels=["policy"]), [((policy,), 1.0)])


def page(registry: CollectorRegistry) -> Response:
    """The metrics as Prometheus' text format."""
    return Response(
        200, generate_latest(registry), {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    )
