"""The Python API: load a scenario, simulate a policy, compare policies.

Everything the command line does goes through here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from edgewise import policies
from edgewise.config import dump_scenario
from edgewise.config import load_scenario as load_scenario
from edgewise.core.policy import DispatchPolicy
from edgewise.errors import PolicyError, ScenarioError
from edgewise.model.scenario import Scenario
from edgewise.model.sections import SIMULATED, not_run
from edgewise.report import records
from edgewise.report.links import crowded, with_links
from edgewise.report.schema import STREAMS, WINDOWS
from edgewise.report.summary import by_seed
from edgewise.sim import simulate as sim
from edgewise.workloads import read_streams_csv

if TYPE_CHECKING:
    from edgewise.report import statistics

Policy = str | type | Callable[[], DispatchPolicy]
Progress = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Result:
    """Records of one or more runs of a scenario.

    Attributes:
        scenario: what was run.
        policies, seeds: which runs.
        streams, windows: record tables (`edgewise.report.schema` explains each column).
        command: how to repeat it.
        rival: the policy that the others are compared with, if any.
        faults: of each policy that had any: why the fallback decided for it, and how often over all seeds.
    """

    scenario: Scenario
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    streams: pa.Table
    windows: pa.Table
    command: str = ""
    rival: str | None = None
    faults: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def summary(self) -> list[dict[str, Any]]:
        """Success, failed and rejected shares for each policy and seed, and the links over 100 %."""
        return with_links(records.summarise(self.streams), crowded(self.scenario, self.streams))

    def success(self) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """(seeds,) share of queries answered in time, for each policy; seeds without queries left out."""
        return by_seed(records.summarise(self.streams), "success", self.policies)

    def save(self, folder: str | Path) -> Path:
        """Write scenario, manifest, Parquet records, summary, figures and report.html.

        Returns:
            The folder.
        Raises:
            RunError: it cannot be written.
        """
        from edgewise.report import figures, html  # slow to import, and only needed here

        folder = Path(folder)
        records.write_run(
            folder,
            scenario_yaml=dump_scenario(self.scenario),
            manifest={
                "scenario": self.scenario.name,
                "policies": list(self.policies),
                "seeds": list(self.seeds),
                "version": version("edgewise"),
                "command": self.command,
                "rival": self.rival,
                "faults": {policy: dict(found) for policy, found in self.faults.items()},
            },
            streams=self.streams,
            windows=self.windows,
            summary=self.summary(),
        )
        run = records.read_run(folder)
        images = figures.drawn(run)
        figures.save_all(run, folder, images=images)
        html.write_html(run, folder / "report.html", images=images)
        return folder


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies compared on the same seeds.

    Attributes:
        result: all records.
        rows: each policy against the rival, paired by seed, Holm-corrected.
    """

    result: Result
    rows: tuple[statistics.PairedComparison, ...]

    def __str__(self) -> str:
        lines = []
        for row in self.rows:
            interval = (
                ""
                if row.low is None or row.high is None
                else f" [{100 * row.low:+.2f}, {100 * row.high:+.2f}]"
            )
            lines.append(
                f"{row.policy}: success {100 * row.mean:.2f} %, {100 * row.difference:+.2f}{interval}"
                f" points against {row.rival}: {row.verdict}"
            )
        return "\n".join(lines)


def simulate(
    scenario: Scenario | str | Path,
    policy: Policy,
    seeds: Iterable[int] = (0,),
    *,
    progress: Progress = lambda: None,
    command: str = "",
) -> Result:
    """Simulate a scenario under one policy.

    Args:
        scenario: a loaded scenario, a file, or the name of a shipped one.
        policy: a name, `file.py:Class`, or a class or function that makes a policy.
        seeds: one run each.
        progress: called after each run.
    Raises:
        ScenarioError, PolicyError: they cannot be loaded.
    """
    return _simulate(scenario, [policy], seeds, progress, command)


def compare(
    scenario: Scenario | str | Path,
    policies: Sequence[Policy],
    seeds: Iterable[int] = range(10),
    *,
    rival: str | None = None,
    progress: Progress = lambda: None,
    command: str = "",
) -> Comparison:
    """Compare policies on the same arrivals and noise.

    Args:
        rival: the policy that the others are compared with; the first by default.
    Returns:
        Mean differences in success with 95 % intervals, Holm-corrected over the family.
    Raises:
        ScenarioError, PolicyError: they cannot be loaded, or there are fewer than two policies.
    """
    from edgewise.report import statistics  # slow to import, and only needed here

    if len(policies) < 2:
        raise PolicyError(f"policies: compare needs at least two, got {len(policies)}")
    names = list(_makers(policies))
    if rival is not None and rival not in names:
        raise PolicyError(f"rival: {rival!r} is not among {', '.join(names)}")
    result = _simulate(scenario, policies, seeds, progress, command)
    result = replace(result, rival=rival or result.policies[0])
    return Comparison(result, tuple(statistics.compare(result.success(), result.rival)))


def replay(folder: str | Path, policies: Sequence[Policy], seed: int = 0, *, command: str = "") -> Result:
    """Simulate recorded traffic under each policy.

    Args:
        folder: has scenario.yaml and streams.csv, as `edgewise record` writes them.
        seed: keys delays and phases; openings are as recorded.
    Raises:
        ScenarioError, PolicyError: something cannot be read or loaded.
    """
    folder = Path(folder)
    if not (folder / "scenario.yaml").is_file():
        raise ScenarioError(f"{folder}: no recording, it lacks scenario.yaml; edgewise record makes one")
    scenario = load_scenario(folder / "scenario.yaml")
    trace = read_streams_csv(folder / "streams.csv", scenario, seed)
    names, streams, windows = [], [], []
    faults: dict[str, Mapping[str, int]] = {}
    for make in _makers(policies).values():
        outcome = sim.Simulation(scenario, make(), seed, streams=trace).run()
        names.append(outcome.core.policy.name)
        if outcome.core.faults:
            faults[names[-1]] = outcome.core.faults
        streams.append(pa.table(outcome.streams, schema=STREAMS))
        windows.append(pa.table(outcome.windows, schema=WINDOWS))
    return Result(
        scenario,
        tuple(names),
        (seed,),
        pa.concat_tables(streams),
        pa.concat_tables(windows),
        command,
        faults=faults,
    )


def maker(policy: Policy) -> Callable[[], DispatchPolicy]:
    """A function that makes a new policy for each run."""
    if isinstance(policy, str):
        policies.load("dispatch", policy)  # fail now, with a clear message, rather than in the first run
        return lambda: policies.load("dispatch", policy)

    def make() -> DispatchPolicy:
        made: DispatchPolicy = policy()
        if not made.name:
            made.name = type(made).__name__
        return made

    return make


def _makers(chosen: Sequence[Policy]) -> dict[str, Callable[[], DispatchPolicy]]:
    """By the names that the policies go by; what cannot be run is said before anything runs.

    Raises:
        PolicyError: one cannot be loaded, or two have one name.
    """
    found: dict[str, Callable[[], DispatchPolicy]] = {}
    for policy in chosen:
        make = maker(policy)
        name = make().name
        if name in found:
            raise PolicyError(f"policies: {name!r} is given twice")
        found[name] = make
    return found


def _simulate(
    scenario: Scenario | str | Path,
    chosen: Sequence[Policy],
    seeds: Iterable[int],
    progress: Progress,
    command: str,
) -> Result:
    loaded = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    not_run(loaded.spec, SIMULATED, "the simulation of streams")
    seeds = tuple(seeds)
    if not seeds:
        raise PolicyError("seeds: none given; use for example --seeds 0:5")
    names: list[str] = []
    streams, windows = [], []
    faults: dict[str, Counter[str]] = {}
    for name, make in _makers(chosen).items():
        outcomes = sim.simulate(loaded, make, seeds, progress)
        names.append(name)
        if found := sum((Counter(outcome.core.faults) for outcome in outcomes), Counter[str]()):
            faults[name] = found
        streams += [pa.table(outcome.streams, schema=STREAMS) for outcome in outcomes]
        windows += [pa.table(outcome.windows, schema=WINDOWS) for outcome in outcomes]
    return Result(
        loaded,
        tuple(names),
        seeds,
        pa.concat_tables(streams),
        pa.concat_tables(windows),
        command,
        faults=faults,
    )
