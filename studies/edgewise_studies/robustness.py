"""The same comparison where the world is a little different: ±20 %, one thing at a time.

variations(scenario, STREAM_CHANGES)   the scenario itself and six others
suite(…)                               who wins in how many of them

Works for any kind of scenario: give functions that change it and one that measures it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from edgewise import api
from edgewise.errors import PolicyError
from edgewise.model.scenario import Scenario
from edgewise.model.topology import LinkChange
from edgewise.report.figures import forest
from edgewise.report.statistics import PairedComparison, as_family, compare

S = TypeVar("S")
STEP = 0.2


def scale_capacity(scenario: Scenario, factor: float) -> Scenario:
    """Workers that serve `factor` times the queries/s: capacity × factor, processing delay / factor."""

    variants = tuple(
        replace(
            variant,
            profile=replace(
                variant.profile,
                fixed_s=variant.profile.fixed_s / factor,
                per_byte_s=variant.profile.per_byte_s / factor,
            ),
            capacity_qps=variant.capacity_qps * factor,
        )
        for variant in scenario.catalog.variants
    )
    return replace(scenario, catalog=replace(scenario.catalog, variants=variants))


def scale_delay(scenario: Scenario, factor: float) -> Scenario:
    """Network delays × factor: of access and links, means and deviations, also those of the timeline."""
    topology = scenario.topology
    ways = tuple(
        replace(way, delay_s=way.delay_s * factor, deviation_s=way.deviation_s * factor)
        for way in topology.ways
    )
    sites = tuple(replace(site, access_delay_s=site.access_delay_s * factor) for site in topology.sites)
    timeline = tuple(
        replace(
            change,
            delay_s=change.delay_s and change.delay_s * factor,
            deviation_s=change.deviation_s and change.deviation_s * factor,
        )
        if isinstance(change, LinkChange)
        else change
        for change in scenario.timeline
    )
    return replace(scenario, topology=replace(topology, ways=ways, sites=sites), timeline=timeline)


def scale_load(scenario: Scenario, factor: float) -> Scenario:
    """Clients per minute × factor, at every time."""
    arrivals = scenario.streams.arrivals
    steps = tuple((start, rate * factor) for start, rate in arrivals.steps)
    return replace(scenario, streams=replace(scenario.streams, arrivals=replace(arrivals, steps=steps)))


# What varies in a scenario of streams. Its `spec` stays that of the base scenario.
STREAM_CHANGES: Mapping[str, Callable[[Scenario, float], Scenario]] = {
    "capacity": scale_capacity,
    "network delay": scale_delay,
    "load": scale_load,
}


@dataclass(frozen=True, slots=True)
class Suite:
    """One policy against one rival under every variation.

    Attributes:
        policy, rival: who is compared.
        names: of the variations; the first is the base.
        rows: one comparison for each, Holm-corrected together.
    """

    policy: str
    rival: str
    names: tuple[str, ...]
    rows: tuple[PairedComparison, ...]

    @property
    def wins(self) -> int:
        """Variations, the base among them, in which the policy wins."""
        return sum(row.verdict == "win" for row in self.rows)

    def __str__(self) -> str:
        others = [
            f"{count} {verdict}"
            for verdict in ("loss", "tie", "inconclusive")
            if (count := sum(row.verdict == verdict for row in self.rows))
        ]
        tail = f" ({', '.join(others)})" if others else ""
        return f"{self.policy} wins against {self.rival} in {self.wins} of {len(self.rows)}{tail}"

    def figure(self) -> Figure:
        """Forest plot of the differences."""
        return forest(
            self.rows, self.names, f"{self.policy} − {self.rival}: wins {self.wins} of {len(self.rows)}"
        )


def variations(base: S, changes: Mapping[str, Callable[[S, float], S]], step: float = STEP) -> dict[str, S]:
    """The base, and each change by 1 - step and 1 + step, one at a time.

    Args:
        base: a scenario of any kind.
        changes: name → function of (scenario, factor).
        step: in (0, 1).
    Returns:
        name → scenario: "base", "capacity ×0.8", "capacity ×1.2", …
    Raises:
        ValueError: step is out of range.
    """
    if not 0.0 < step < 1.0:
        raise ValueError(f"step is {step}; it must lie between 0 and 1, for example 0.2")
    found = {"base": base}
    for name, change in changes.items():
        for factor in (1.0 - step, 1.0 + step):
            found[f"{name} ×{factor:g}"] = change(base, factor)
    return found


def suite(
    base: S,
    changes: Mapping[str, Callable[[S, float], S]],
    measure: Callable[[S], Mapping[str, ArrayLike]],
    policy: str,
    rival: str,
    *,
    step: float = STEP,
    progress: Callable[[str], None] = lambda name: None,
    **rule: Any,
) -> Suite:
    """Compare a policy with its rival under every variation, paired by seed.

    Args:
        measure: per policy (n,) values of a scenario; index i is the same seed in all.
        progress: told the name of each variation before it is measured.
        rule: minimum_effect, level, ratio, lower_is_better of `statistics.compare`.
    Raises:
        PolicyError: policy or rival has no values.
    """
    found = variations(base, changes, step)
    rows = []
    for name, scenario in found.items():
        progress(name)
        values = measure(scenario)
        missing = [who for who in (policy, rival) if who not in values]
        if missing:
            raise PolicyError(f"{name}: {missing[0]!r} has no values; there are {', '.join(values)}")
        rows += compare({who: values[who] for who in (policy, rival)}, rival, **rule)
    return Suite(policy, rival, tuple(found), tuple(as_family(rows)))


def success_of(
    policies: Sequence[api.Policy], seeds: Sequence[int]
) -> Callable[[Scenario], Mapping[str, Any]]:
    """A `measure` for scenarios of streams: success of each policy, per seed."""

    def measure(scenario: Scenario) -> Mapping[str, Any]:
        return api.compare(scenario, policies, seeds).result.values()

    return measure
