"""A scenario: what can be run, where it runs, and who asks for it.

`parse_scenario` is the only way in: it turns plain data (as YAML gives it) into frozen
dataclasses, or says everything that is wrong with it. Forbidden here: I/O
(`edgewise.config` reads files).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from edgewise.errors import ScenarioError
from edgewise.model.build import Problems, build_catalog, build_topology, check_applications
from edgewise.model.catalog import Catalog
from edgewise.model.problems import explain, listed, shown
from edgewise.model.spec import ApplicationSpec, ScenarioSpec
from edgewise.model.timeline import Change
from edgewise.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Application:
    """What clients run: each client opens one stream of one application.

    Attributes:
        rate_qps, deadline_s, length_s: (lowest, highest) of a stream's queries/s, tolerated
            end-to-end delay and length; drawn uniformly.
        size_bytes: payload of a query.
        min_accuracy: least accuracy of the model, in the task's metric.
        weight: relative share of the clients who run it.
        priority: larger is more important.
        arrivals: "periodic" or "poisson" queries within a stream.
    """

    name: str
    task: str
    rate_qps: tuple[float, float]
    size_bytes: float
    deadline_s: tuple[float, float]
    length_s: tuple[float, float]
    min_accuracy: float = 0.0
    weight: float = 1.0
    priority: int = 0
    arrivals: str = "periodic"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When clients come: a Poisson process at each site whose rate changes in steps.

    Attributes:
        steps: (start in s, clients per minute and site), in order, the first at 0.
    """

    steps: tuple[tuple[float, float], ...]

    def rate_per_min(self, time_s: float) -> float:
        """Clients per minute at each site at `time_s`."""
        return [rate for start, rate in self.steps if start <= time_s][-1]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a run needs besides a policy and a seed.

    Attributes:
        duration_s: length of a run.
        window_s: length of a window (ASET's T).
        telemetry_period_s, telemetry_lag_s: how often and how late measurements arrive.
        retry_refused: decide refused streams anew at each window.
        spec: the validated YAML form, to be written out again.
        timeline: changes of nodes and links, in order of time.
        decision_delay_s: from a stream's opening until its queries may leave the site.
    """

    name: str
    description: str
    duration_s: float
    window_s: float
    telemetry_period_s: float
    telemetry_lag_s: float
    retry_refused: bool
    catalog: Catalog
    topology: Topology
    applications: tuple[Application, ...]
    arrivals: Arrivals
    spec: ScenarioSpec
    timeline: tuple[Change, ...] = ()
    decision_delay_s: float = 0.0


def parse_scenario(data: Any, where: str) -> Scenario:
    """Check plain data and build the scenario it describes.

    Args:
        data: what YAML or JSON gave: a mapping with the keys of `ScenarioSpec`.
        where: file or name, to begin error messages with.
    Raises:
        ScenarioError: lists every problem with its dotted path, the bad value and the fix.
    """
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{where}: {shown(data)} is not a mapping; a scenario has the keys "
            f"{', '.join(ScenarioSpec.model_fields)}"
        )
    try:
        spec = ScenarioSpec.model_validate(data)
    except ValidationError as error:
        raise ScenarioError(listed(where, explain(error, ScenarioSpec))) from None
    problems: Problems = []
    catalog = build_catalog(spec.catalog, problems)
    topology = build_topology(spec, catalog, problems)
    check_applications(spec, catalog, problems)
    if problems:
        raise ScenarioError(listed(where, problems))
    return Scenario(
        name=spec.name,
        description=spec.description,
        duration_s=spec.duration_s,
        window_s=spec.window_s,
        telemetry_period_s=spec.telemetry.period_s,
        telemetry_lag_s=spec.telemetry.lag_s,
        retry_refused=spec.retry_refused,
        catalog=catalog,
        topology=topology,
        applications=tuple(_application(application) for application in spec.applications),
        arrivals=Arrivals(tuple((step.at_s, step.rate) for step in spec.arrivals.clients_per_min)),
        spec=spec,
    )


def _application(spec: ApplicationSpec) -> Application:
    return Application(
        name=spec.name,
        task=spec.task,
        rate_qps=spec.rate_qps,
        size_bytes=spec.size_bytes,
        deadline_s=spec.deadline_s,
        length_s=spec.length_s,
        min_accuracy=spec.min_accuracy,
        weight=spec.weight,
        priority=spec.priority,
        arrivals=spec.arrivals,
    )
