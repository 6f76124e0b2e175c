"""Workers and replicas in a joint run: who decides on them, and who has those that streams use, too.

Forbidden here: printing and files.
"""

from typing import Any

from edgewise import policies
from edgewise.core.orchestrate.core import orchestrating
from edgewise.model.pools import orchestrated
from edgewise.model.services import Services, serving
from edgewise.run.holding import workers_there
from edgewise.run.shared import Joined, Orchestrating, RunContext
from edgewise.sim.parts.streams import StreamsPart
from edgewise.sim.parts.workers import WorkersPart
from edgewise.sim.sites import simulation_of
from edgewise.sim.streams.guests import Guests
from edgewise.workloads.services import names_of


def orchestrate(run: RunContext, services: Services | None) -> Orchestrating:
    """The core that orchestrates services and pools of workers; how images come."""
    what = orchestrated(run.scenario, services)
    core = orchestrating(what, run.chosen["orchestrate"](), run.plane.ledger)
    run.plane.cores["orchestrate"] = core
    run.orchestrating = Orchestrating(what, core, run.images_to(what.system))
    return run.orchestrating


def pooled(run: RunContext) -> bool:
    """Whether workers come and go, of streams or of requests that they serve."""
    return bool(run.joined.keys() & {"streams", "workers"}) and bool(run.scenario.topology.pools)


def pools(run: RunContext) -> Joined | None:
    """These workers; None: there are none."""
    if not pooled(run):
        return None
    frames = run.orchestrating is None
    deciding = run.orchestrating or orchestrate(run, None)
    sites = None if frames else run.parts["services"].sites
    simulation = streams_workers(run).simulation
    part = WorkersPart(run.scenario, simulation, deciding.what, deciding.core, deciding.images, sites)
    return Joined(part, decided={"orchestrate": deciding.decided})


def hosting(run: RunContext, services: Services) -> Guests | None:
    """Requests at workers that streams use, too; None: no worker serves any."""
    named = [each.name for each in services.workers]
    return streams_workers(run).host(named) if named else None


def streams_workers(run: RunContext) -> StreamsPart:
    """The part that has streams' workers."""
    parts = run.parts
    part: StreamsPart = parts.get("streams") or parts["workers"]
    return part


def alone(run: RunContext) -> Joined | None:
    """Workers that serve requests where no streams come, whose part has them; None: there are none."""
    spec = run.scenario.served
    if "streams" in run.joined or not serving(spec, run.scenario.topology, names_of(run.scenario, spec)):
        return None
    name, given = policies.deciding(run.scenario)["dispatch"], {"streams": (), "wires": run.wires}
    part = StreamsPart(
        simulation_of(run.scenario, lambda: policies.load("dispatch", name), run.seed, **given)
    )

    def use() -> dict[str, Any]:
        found = workers_there(run.scenario, part.outcome.use["workers"], run.holders)
        return {"workers": {**found, "work": ["services"] * len(found["worker"])}}

    return Joined(part, use=use)
