"""Prometheus metrics of workers and gateways, and whether processes got the processor time they need.

Streams and queues are read when asked, not counted twice. No label takes a value of a client's choice, so
that their number is bounded by the scenario.

What was measured without processor time blames nobody. Three signs. An event loop comes late to what is due
(`Lag`, also a metric of gateways and workers). Threads that could run wait for a processor: the kernel counts
that for each. And a virtual machine's host takes processors away: "steal".
"""

import asyncio
import os
from bisect import bisect_left
from collections import Counter as Counts, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, compress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from edgewise.core.dispatch.requests import RequestCore
from edgewise.runtime import clock
from edgewise.runtime.backends.contract import Counted
from edgewise.runtime.gateway.forwarding import Upstream
from edgewise.runtime.gateway.served import OUTCOMES
from edgewise.runtime.gateway.session import UNKNOWN, Session
from edgewise.runtime.http import Response
from edgewise.runtime.protocol.triton import Statistics
from edgewise.runtime.store import Running
from edgewise.runtime.watch.faults import Faults

DELAYS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
Family = CounterMetricFamily | GaugeMetricFamily
BATCHES = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """Counts amounts by size, for one thread: without a lock, and the bucket is found by halving.

    The library's own takes a lock for every figure, which costs a query as much as its whole decision.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts, self._sum = [0] * (len(bounds) + 1), 0.0

    def observe(self, amount: float) -> None:
        """Count an amount."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """How many amounts are no greater than each bound, and the sum of all."""
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


class _Histograms(Collector):
    """A histogram for each value of a label."""

    def __init__(self, name: str, what: str, label: str, members: dict[str, Histogram]) -> None:
        self._about, self._label, self._members = (name, what), label, members

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(*self._about, labels=[self._label])
        for value, member in self._members.items():
            family.add_metric([value], *member.buckets())
        yield family


def histograms(
    name: str,
    what: str,
    bounds: Sequence[float],
    label: str,
    values: Sequence[str],
    registry: CollectorRegistry | None,
) -> list[Histogram]:
    """One histogram for each value of a label.

    Args:
        name, what: of the metric.
        bounds: upper, of the buckets.
        registry: where it can be read; None: nowhere.
    """
    members = {value: Histogram(bounds) for value in values}
    if registry is not None:
        registry.register(_Histograms(name, what, label, members))
    return list(members.values())


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


# Of gateways and workers, many of which share a machine: 0.02 was a third of an idle worker.
OWN_PERIOD_S = 0.25
CLOSELY_S, KEPT = 0.02, 30_000  # of who measures others
LATE_S = 0.02  # 95 of 100 wake-ups of an idle machine come within a thousandth of a second
# Above these a measurement says more about the machine than about a policy: the demo's shares were within
# two points of the simulated ones where threads waited for 40 to 65 % of their time, ten off at 82 %.
WAITED, STOLEN = 0.7, 0.05


class Lag:
    """How late an event loop comes to what is due.

    Args:
        name: of the process, a label of the metric.
        registry: of the metric; None for no metric.
        period_s: between two wake-ups.
    """

    def __init__(
        self, name: str, registry: CollectorRegistry | None = None, period_s: float = OWN_PERIOD_S
    ) -> None:
        what = "How late the event loop came to what was due."
        (self._lag,) = histograms(
            "edgewise_event_loop_lag_seconds", what, DELAYS_S, "process", [name], registry
        )
        self._period_s = period_s
        self.late_s: deque[float] = deque(maxlen=KEPT)  # the last ones

    async def keep(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = clock.monotonic_s() + self._period_s
            await asyncio.sleep(self._period_s)
            late_s = max(clock.monotonic_s() - due_s, 0.0)
            self._lag.observe(late_s)
            self.late_s.append(late_s)


@dataclass(frozen=True, slots=True)
class CpuTotals:
    """Totals since their beginnings: of some processes, and of the machine.

    Attributes:
        ran_s, waited_s: of all their threads: on a processor, and ready without one.
        stolen, ticks: of the machine: taken by its host, and all.
    """

    ran_s: float
    waited_s: float
    stolen: float
    ticks: float


def look(numbers: Sequence[int]) -> CpuTotals:
    """CpuTotals at processes by their numbers; zeros where the system does not tell."""
    ran_ns = waited_ns = 0
    for number in numbers:
        for file in Path(f"/proc/{number}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                ran, waited, _ = map(int, file.read_text().split())
                ran_ns, waited_ns = ran_ns + ran, waited_ns + waited
    stat = Path("/proc/stat")
    ticks = [float(n) for n in stat.read_text().split("\n", 1)[0].split()[1:9]] if stat.is_file() else []
    return CpuTotals(ran_ns / 1e9, waited_ns / 1e9, ticks[7] if len(ticks) > 7 else 0.0, sum(ticks))


@dataclass(slots=True)
class Watched:
    """What was seen of processes.

    Attributes:
        busy: why what they measured says little, None where they got their time.
        waited: share of the time that their threads could have run in which they waited for a processor.
    """

    busy: str | None = None
    waited: float = 0.0


@asynccontextmanager
async def watched(rows: Sequence[Running]) -> AsyncIterator[Watched]:
    """Watch processes of a live system on this machine, this one, and the event loop that this runs in.

    At the end it says whether they were starved.
    """
    numbers = [os.getpid(), *(int(row.handle.split(":")[0]) for row in rows if row.handle)]
    found, lag, before = Watched(), Lag("clients", period_s=CLOSELY_S), look(numbers)
    keeping = asyncio.create_task(lag.keep())
    try:
        yield found
    finally:
        keeping.cancel()
        after = look(numbers)
        found.busy, found.waited = starved(before, after, lag.late_s), waited_share(before, after)


def waited_share(before: CpuTotals, after: CpuTotals) -> float:
    """Share of the time that threads could have run, between two looks, in which they waited to."""
    ran_s, waited_s = after.ran_s - before.ran_s, after.waited_s - before.waited_s
    return waited_s / max(ran_s + waited_s, 1e-9)


def starved(before: CpuTotals, after: CpuTotals, late_s: Iterable[float]) -> str | None:
    """Why what was measured between two looks says little; None where the processes got their time.

    Args:
        late_s: how late the event loop of whoever measured came.
    """
    waited = waited_share(before, after)
    stolen = (after.stolen - before.stolen) / max(after.ticks - before.ticks, 1e-9)
    ordered = sorted(late_s)
    late = ordered[int(0.95 * len(ordered))] if ordered else 0.0
    signs = []
    if waited > WAITED:
        signs.append(f"its processes waited {100 * waited:.0f} % of the time that they could have run")
    if stolen > STOLEN:
        signs.append(f"the host took {100 * stolen:.0f} % of the processors")
    if late > LATE_S:
        signs.append(f"the clients' event loop came {1e3 * late:.0f} ms late")
    return f"this machine was too busy: {', '.join(signs)}" if signs else None
