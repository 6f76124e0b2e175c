"""What the kinds of work of a joint run share, and what each of them brings to it.

Forbidden here: printing and files.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edgewise.core.guard import Decided
from edgewise.core.holders import Holders
from edgewise.core.ledger import NodeLedger
from edgewise.core.orchestrate.core import OrchestrateCore
from edgewise.core.plane import HoldsChanged, Plane
from edgewise.model.orchestration import System
from edgewise.model.pools import Orchestrated, image_cluster
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.run.holding import held_for_life, holders_of
from edgewise.run.tables import Columns, Make, Tables
from edgewise.sim.images import Images, Outages, outages
from edgewise.sim.links.wires import Wires
from edgewise.sim.parts.part import WorkPart
from edgewise.sim.parts.pulls import PullsPart

if TYPE_CHECKING:
    from edgewise.splitting import GraphsToRun


def _no_use() -> Mapping[str, Columns]:
    return {}


class Joined(NamedTuple):
    """A kind of work in a joint run.

    Attributes:
        part: on the clock.
        tables: once the run is over; None: its records are those of other work.
        decided: by decision how often its policy was to decide, and did not, so far.
        use: columns of tables of `report.use`, once the run is over; those of workers are put together.
    """

    part: WorkPart
    tables: Callable[[], Tables] | None = None
    decided: Mapping[str, Callable[[], Decided]] = {}
    use: Callable[[], Mapping[str, Columns]] = _no_use


class Orchestrating(NamedTuple):
    """Who decides on replicas and workers of pools, and on which; and how their images come."""

    what: Orchestrated
    core: OrchestrateCore
    images: Images | Outages

    def decided(self) -> Decided:
        """How often the policy was to decide, and did not, so far."""
        return self.core.guard.decided(self.core.policy)


class RunContext:
    """What the kinds of work of a joint run share: nodes, links, a plane that decides, and each other.

    Args:
        works: kinds of work that are run.
        empty: no worker holds anything for life: other work stands for them.
    Attributes:
        chosen: what makes each policy, by decision.
        trace: streams in place of drawn ones.
        graphs: what is split, where it has been read already.
        wires: links that messages of all kinds share; None where each has its own.
        reserved: what flows and image pulls have of these.
        holders: who held what.
        joined: the kinds of work that are there so far, by name.
        orchestrating: None: nobody decides on replicas and workers so far.
    """

    def __init__(
        self,
        scenario: Scenario,
        works: Sequence[str],
        chosen: Mapping[str, Make],
        seed: int,
        trace: Sequence[Stream] | None,
        graphs: "GraphsToRun | None",
        empty: bool,
    ) -> None:
        self.scenario, self.chosen, self.seed = scenario, chosen, seed
        self.trace, self.graphs = trace, graphs
        links = (scenario.sharing, scenario.topology, scenario.duration_s)
        self.wires = None if scenario.sharing == "none" else Wires(*links)
        self.reserved = None if self.wires is None else PullsPart(scenario, self.wires)
        self.plane = Plane(NodeLedger(scenario.topology.nodes))
        for_life = {} if empty else held_for_life(scenario, works)
        self.plane.handle(HoldsChanged(tuple(for_life)), 0.0)
        self.holders: Holders = holders_of(scenario, self.plane.ledger, for_life)
        self.joined: dict[str, Joined] = {}
        self.orchestrating: Orchestrating | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """By kind of work, those that are there so far."""
        return {work: each.part for work, each in self.joined.items()}

    def images_to(self, system: System) -> Images | Outages:
        """How images come to nodes."""
        if self.reserved is None:
            return outages(self.scenario)
        return self.reserved.images(system.site_of, image_cluster(self.scenario))
