"""Prometheus metrics of workers and gateways.

Streams and queues are read when asked, not counted twice. No label takes a value of a client's choice, so
that their number is bounded by the scenario.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Sequence
from itertools import compress

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from edgewise.core.dispatch.requests import RequestCore
from edgewise.runtime.backends.contract import Counted
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.gateway.served import OUTCOMES
from edgewise.runtime.gateway.session import UNKNOWN, Session
from edgewise.runtime.http import Response
from edgewise.runtime.protocol.triton import Statistics
from edgewise.runtime.watch.faults import Faults
from edgewise.runtime.watch.histograms import DELAYS_S, histograms

Family = CounterMetricFamily | GaugeMetricFamily
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class WorkerMetrics:
    """What a worker did, for one model.

    Args:
        model: its name, a label of every metric.
        queued: the queue's length now.
    """

    def __init__(self, model: str, queued: Callable[[], int] = int) -> None:
        self.registry = registry = CollectorRegistry()
        self._queries = Counter(
            "edgewise_worker_queries", "Queries answered.", ["model", "status"], registry=registry
        )
        self._model = model
        self._by_status: dict[int, Counter] = {}
        of_model = ("model", [model], registry)
        (self._wait,) = histograms("edgewise_worker_wait_seconds", "Time in the queue.", DELAYS_S, *of_model)
        (self._run,) = histograms(
            "edgewise_worker_run_seconds", "Time of a batch in ONNX Runtime.", DELAYS_S, *of_model
        )
        (self._batch,) = histograms(
            "edgewise_worker_batch_queries", "Queries of a batch.", BATCHES, *of_model
        )
        gauge = Gauge("edgewise_worker_queue", "Queries waiting or running.", ["model"], registry=registry)
        gauge.labels(model).set_function(queued)
        self.statistics = Statistics()

    def ran(self, run_s: float, waits_s: Sequence[float]) -> None:
        """A batch was run."""
        self._run.observe(run_s)
        self._batch.observe(len(waits_s))
        for wait_s in waits_s:
            self._wait.observe(wait_s)
        self.statistics.ran(run_s, waits_s)

    def answered(self, status: int, took_s: float) -> None:
        """A query was answered, so long after it came."""
        self.statistics.answered(status == 200, took_s)
        if (counter := self._by_status.get(status)) is None:  # to find one by labels takes a lock
            counter = self._by_status[status] = self._queries.labels(self._model, str(status))
        counter.inc()


class GatewayMetrics(Collector):
    """What a gateway's session knows, by task and by worker, at the moment of asking.

    Attributes:
        delays: of the answers of each worker, by its number.
        retries: queries that went to a second worker.
    """

    def __init__(self, session: Session, upstreams: Sequence[Upstream]) -> None:
        self._session, self._upstreams = session, upstreams
        self.registry = faults_in(session.faults)
        self.registry.register(self)
        self.delays = histograms(
            "edgewise_query_delay_seconds", "From a query's arrival to its answer.", DELAYS_S, "worker",
            session.world.worker_names, self.registry,
        )  # fmt: skip
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
        there = [target.up or target.wanted for target in self._upstreams]  # others may be started
        for name, (what, values) in figures.items():
            family = GaugeMetricFamily(f"edgewise_gateway_worker_{name}", what, labels=["worker", "variant"])
            yield _filled(family, compress(zip(workers, values, strict=True), there))
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

    def __init__(self, core: RequestCore, registry: CollectorRegistry) -> None:
        self._core = core
        registry.register(self)
        self.delays = histograms(
            "edgewise_request_delay_seconds",
            "From a request's arrival to its answer.",
            DELAYS_S,
            "service",
            core.services.names,
            registry,
        )

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
        yield _in_use("edgewise_request_policy", core.adviser.policy.name)


def _filled(family: Family, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """A family with a value for each tuple of labels."""
    for labels, value in samples:
        family.add_metric(list(labels), float(value))
    return family


def _in_use(name: str, policy: str) -> Metric:
    return _filled(GaugeMetricFamily(name, "1 for the policy in use.", labels=["policy"]), [((policy,), 1.0)])


class _FaultMetrics(Collector):
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def collect(self) -> Iterable[Metric]:
        what = "Decisions that were not the policy's own."
        family = CounterMetricFamily("edgewise_policy_faults", what, labels=["decision", "why"])
        yield _filled(family, list(self._faults.counts.items()))


class _CountsOfBackend(Collector):
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def collect(self) -> Iterable[Metric]:
        counted = self._counted
        family = CounterMetricFamily(counted.name, counted.about, labels=[counted.label])
        yield _filled(family, [((by,), value) for by, value in counted.counts.items()])


def faults_in(faults: Faults, counted: Iterable[Counted] = ()) -> CollectorRegistry:
    """A registry that says how often policies of a process failed, by decision and kind.

    Args:
        counted: what else it says.
    """
    registry = CollectorRegistry()
    for each in (_FaultMetrics(faults), *map(_CountsOfBackend, counted)):
        registry.register(each)
    return registry


def page(registry: CollectorRegistry) -> Response:
    """The metrics as Prometheus' text format."""
    return Response(
        200, generate_latest(registry), {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    )
