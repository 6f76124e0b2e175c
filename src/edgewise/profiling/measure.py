"""Measure a network on this machine: delays, memory, and the rate that it sustains."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnxruntime

from edgewise.arrays import Floats
from edgewise.errors import ProfileError
from edgewise.model.topology import CPU, Profile
from edgewise.profiling import law
from edgewise.profiling.law import Fit, MeasuredPoint, fit_profile
from edgewise.profiling.network import OnnxNetwork, peak_bytes
from edgewise.profiling.quiet import BUSY, Watch, disturbances, lines

CPUINFO = Path("/proc/cpuinfo")
WARM_UP = 2
LEAST_RUNS = 5
MOST_RUNS = 500
DELAY_SHARE = 0.5  # of the time; the rest goes to the test under load

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A network under Poisson load, in real time, and its profile under the same arrivals.

    Attributes:
        measured_qps, predicted_qps: highest rate whose 95 % quantile of the sojourn stays below
            `bound_s`; 0 when none did.
        long_run_qps: the same by the profile over many queries; short trials flatter, as no long
            queue has time to grow.
        queries: in the trial at the measured rate, about.
    """

    measured_qps: float
    predicted_qps: float
    long_run_qps: float
    bound_s: float
    queries: int

    @property
    def capacity_qps(self) -> float:
        """The long run's rate, less the share by which the network fell short of its profile."""
        fell_short = self.measured_qps / self.predicted_qps if self.predicted_qps else 1.0
        return self.long_run_qps * min(fell_short or 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that was measured of one network.

    Attributes:
        largest_bytes: payload of one query at the largest size.
        max_batch: largest batch that runs.
        memory_bytes: growth of the resident memory up to its peak, with the largest batch and size.
        notes: what the reader must know, in words.
        busy: what disturbed it, in words; then it says little of the hardware.
        providers: execution providers that ran it, the first as far as it could.
    """

    points: tuple[MeasuredPoint, ...]
    fit: Fit
    load: LoadTest
    threads: int
    largest_bytes: int
    max_batch: int
    memory_bytes: float
    notes: tuple[str, ...]
    busy: tuple[str, ...] = ()
    providers: tuple[str, ...] = (CPU,)


def measure(
    file: Path,
    batches: Sequence[int] = (1, 2, 4, 8),
    sizes: Sequence[int] = (),
    axes: Mapping[str, int] | None = None,
    threads: int = 1,
    seconds: float = 20.0,
    seed: int = 0,
    progress: Progress = lambda share, text: None,
    providers: Sequence[str] = (CPU,),
) -> Measurement:
    """Measure the network in `file` for about `seconds`; a slow network takes longer.

    Args:
        file: an ONNX file.
        batches: batch sizes; 1 is always measured.
        sizes, axes: what sets the free axes, as for `inputs.resolve`.
        threads: of one run.
        seconds: half for the delays, half for the load.
        seed: of tensors and arrivals.
        progress: called with (share done, what is going on).
        providers: execution providers that are wanted, the best first.
    Raises:
        ProfileError: the network cannot be loaded or run.
    """
    network = OnnxNetwork(file, threads, sizes, axes, seed, providers)
    watch = Watch()
    cells, notes = _cells(network, batches)
    progress(0.0, "delays")
    points = _delays(
        network, cells, seconds * DELAY_SHARE, lambda done: progress(DELAY_SHARE * done, "delays")
    )
    fit = fit_profile(points, source(threads, network.providers))
    side, max_batch = cells[-1]
    progress(DELAY_SHARE, "memory")
    peak = peak_bytes(file, threads, max_batch, side, sizes, axes or {}, providers)
    largest = network.inputs.payload_bytes(side)
    budget = seconds * (1 - DELAY_SHARE)
    trial = budget / law.STEPS
    load = _load(
        network, fit.profile, side, max_batch, trial, seed,
        lambda step: progress(DELAY_SHARE + (1 - DELAY_SHARE) * step / law.STEPS, "load"),
    )  # fmt: skip
    if not fit.holds:
        notes.append(f"the linear law is off by up to {fit.max_error:.0%}; measure the batches you will use")
    busy = disturbances(watch, points, fit.profile.batch_slope)
    if busy:
        said = f"{fit.profile.source}, {BUSY}: {'; '.join(busy)}"
        fit = replace(fit, profile=replace(fit.profile, source=said))
    if missing := [name for name in providers if name not in network.providers]:
        notes.append(f"{' and '.join(missing)} is not there; {network.providers[0]} was measured")
    said_of_it = (*network.inputs.notes, *notes)
    return Measurement(
        tuple(points), fit, load, threads, largest, max_batch, peak, said_of_it, busy, network.providers
    )


def _cells(network: OnnxNetwork, batches: Sequence[int]) -> tuple[list[tuple[int | None, int]], list[str]]:
    """(size, batch) pairs that run, smallest first, each warmed up; and notes on those that do not."""
    wanted = sorted({1, *batches}) if network.inputs.batch is not None else [1]
    notes: list[str] = []
    largest = wanted[-1]
    for side in network.inputs.sides:
        for batch in wanted:
            if batch > largest:
                break
            try:
                arrays = network.arrays(batch, side)
                for _ in range(WARM_UP):
                    network.run(arrays)
            except ProfileError as error:
                if batch == 1:
                    raise
                largest = max(b for b in wanted if b < batch)
                notes.append(f"batches above {largest} do not run: {error}")
                break
    sides = sorted(network.inputs.sides, key=lambda side: side or 0)
    return [(side, batch) for side in sides for batch in wanted if batch <= largest], notes


def _delays(
    network: OnnxNetwork,
    cells: Sequence[tuple[int | None, int]],
    seconds: float,
    progress: Callable[[float], None],
) -> list[MeasuredPoint]:
    """Measure all cells in turns, so that a disturbance does not hit one of them alone."""
    arrays = [network.arrays(batch, side) for side, batch in cells]
    delays: list[list[float]] = [[] for _ in cells]
    began = time.perf_counter()
    for turn in range(MOST_RUNS):
        for tensors, mine in zip(arrays, delays, strict=True):
            start = time.perf_counter()
            network.run(tensors)
            mine.append(time.perf_counter() - start)
        spent = time.perf_counter() - began
        progress(min(spent / seconds, 1.0))
        if spent > seconds and turn + 1 >= LEAST_RUNS:
            break
    points = []
    for (side, batch), mine in zip(cells, delays, strict=True):
        low, median, high, p95 = np.quantile(mine, [0.16, 0.5, 0.84, 0.95]).tolist()
        size = network.inputs.payload_bytes(side)
        points.append(MeasuredPoint(size, batch, len(mine), median, low, high, p95, side))
    return points


class RealClock:
    """Real time: a batch is assembled from single queries and run."""

    def __init__(self, network: OnnxNetwork, side: int | None) -> None:
        self._network = network
        self._query = network.arrays(1, side)
        self._batched = network.inputs.batch is not None
        self._start = time.perf_counter()

    def wait(self, until_s: float) -> float:
        """Sleep until then."""
        left = until_s - (time.perf_counter() - self._start)
        if left > 0:
            time.sleep(left)
        return time.perf_counter() - self._start

    def work(self, batch: int) -> float:
        """Put the tensors of `batch` queries together and run them."""
        names = self._network.inputs.batched
        together = {
            name: np.concatenate([array] * batch) if name in names and batch > 1 else array
            for name, array in self._query.items()
        }
        self._network.run(together)
        return time.perf_counter() - self._start


def _load(
    network: OnnxNetwork,
    profile: Profile,
    side: int | None,
    max_batch: int,
    seconds: float,
    seed: int,
    progress: Callable[[int], None],
) -> LoadTest:
    """Search the highest rate in real time, then with the profile under the same arrivals."""
    size = network.inputs.payload_bytes(side)
    bound = law.bound_s(profile, size, max_batch)
    steps = 0

    def real(rate_qps: float) -> Floats:
        nonlocal steps
        steps += 1
        progress(steps)
        arrivals = law.poisson_arrivals(rate_qps, seconds, seed)
        return law.sojourns(arrivals, max_batch, RealClock(network, side), law.HOPELESS * bound)

    measured = law.highest_rate_qps(real, law.saturation_qps(profile, size, max_batch), bound)
    predicted = law.predicted_rate_qps(profile, size, max_batch, 0, seed, law.STEPS, seconds)
    long_run = law.predicted_rate_qps(profile, size, max_batch)
    return LoadTest(measured, predicted, long_run, bound, int(measured * seconds))


def source(threads: int, providers: Sequence[str] = (CPU,)) -> str:
    """Where and when: "measured on <processor>, N threads, onnxruntime X, date"; X with its provider."""
    plural = "thread" if threads == 1 else "threads"
    today = datetime.now(UTC).date().isoformat()
    by = "" if providers[0] == CPU else f" with {providers[0]}"
    return (
        f"measured on {processor()}, {threads} {plural}, onnxruntime {onnxruntime.__version__}{by}, {today}"
    )


def processor() -> str:
    """Name of this machine's processor."""
    names = [line.partition(":")[2].strip() for line in lines(CPUINFO) if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
