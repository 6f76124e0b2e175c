"""The run of a live system as a result like that of a simulation: its store's rows in the same tables.

What there is to say of a kind of work is made by the very functions that make it of simulated outcomes
(each kind has a file beside this one), so that a report cannot tell where its records come from. The run
begins with the first work that came since the system was started, its policies or its scenario changed, and
all of its tables are whole; it ends now, or when the system did. Forbidden here: changing anything of the
system.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from edgewise import policies
from edgewise.config import load_scenario
from edgewise.errors import RunError, ScenarioError
from edgewise.kernels.trust import own_files
from edgewise.model.scenario import Scenario
from edgewise.report.schema import WORK
from edgewise.report.use import USE
from edgewise.run import assigning
from edgewise.run.graphs import lived_graphs
from edgewise.run.jobs import lived_jobs
from edgewise.run.lived_use import lived_use
from edgewise.run.pipelines import lived_pipelines
from edgewise.run.result import Result
from edgewise.run.services import lived_services
from edgewise.run.streams import lived_streams
from edgewise.run.tables import Tables, table
from edgewise.runtime import clock
from edgewise.runtime.clients.lived import Lived, lived
from edgewise.runtime.clients.reaching import store_of
from edgewise.runtime.store import DATABASE

FOLDER = "records"  # in the state, where nobody names another place
SEED = 0  # of all rows: nothing was drawn here
KINDS: Mapping[str, Callable[[Scenario, Lived], Tables | None]] = {
    "streams": lived_streams,
    "services": lived_services,
    "pipelines": lived_pipelines,
    "graphs": lived_graphs,
    "jobs": lived_jobs,
}


def is_live(folder: Path) -> bool:
    """Whether a folder is that of a live system."""
    return (folder / DATABASE).is_file()


def saved(state: Path, folder: Path | None = None, last_s: float | None = None) -> Path:
    """Write the run of a live system as a run folder, and return this.

    Args:
        state: folder of the system, which may be running.
        folder: where to; None: `records` in the state.
        last_s: only what came in so many last seconds.
    Raises:
        RunError: there is no system, nothing came, or the folder cannot be written.
    """
    with own_files():
        return live_run(state, last_s).save(folder or state / FOLDER)


def live_run(
    state: Path, last_s: float | None = None, between_s: tuple[float, float] | None = None
) -> Result:
    """The run of a live system.

    Args:
        state: folder of the system, which may be running.
        last_s: only what came in so many last seconds.
        between_s: only what was between two moments, Unix time.
    Raises:
        RunError: there is no system, or nothing came.
    """
    with closing(store_of(state)) as store:
        scenario = load_scenario(state / "scenario.yaml")
        seen = lived(store, scenario, clock.unix_s(), last_s, between_s)
    scenario = _lasting(scenario, state, seen)
    tables = {work: made for work, make in KINDS.items() if (made := make(scenario, seen)) is not None}
    if not tables:
        raise RunError(f"state {state}: no work came since {seen.why}; there is nothing to report")
    return _result(scenario, seen, {work: tables[work] for work in assigning.WORK if work in tables})


def _lasting(scenario: Scenario, state: Path, seen: Lived) -> Scenario:
    """The scenario, which lasts as long as the run did, with what happened to nodes."""
    duration_s, services = seen.duration_s, scenario.services
    if services is not None:  # whole frames, as in a recording
        duration_s = math.ceil(duration_s / services.frame_s) * services.frame_s
    changes = {
        "duration_s": duration_s,
        "window_s": min(scenario.window_s, duration_s),
        "timeline": [
            {"at_s": at_s, "node": node, "up": up}
            for at_s, node, up in ((at_s - seen.since_s, node, up) for at_s, node, up in seen.node_changes)
            if 0.0 <= at_s < duration_s
        ],
    }
    try:
        return load_scenario(state / "scenario.yaml", changes)
    except ScenarioError:  # its parts need the duration that it has
        return scenario


def _result(scenario: Scenario, seen: Lived, tables: Mapping[str, Tables]) -> Result:
    works, who = tuple(tables), {work: _label(scenario, seen, work) for work in tables}
    fixed = {decision: _short(name) for decision, name in seen.policies.items() if name}
    results = {
        work: Result(
            scenario,
            work,
            (who[work],),
            (SEED,),
            table(WORK[work].items, who[work], SEED, made.items),
            table(WORK[work].windows, who[work], SEED, made.windows),
            fixed,
        )
        for work, made in tables.items()
    }
    made_use = {
        name: table(USE[name], who[works[0]], SEED, columns)
        for name, columns in lived_use(scenario, seen).items()
        if columns
    }
    live = {"since_s": seen.since_s, "until_s": seen.until_s, "why": seen.why}
    first = results.pop(works[0])
    command = f"edgewise report {seen.state}"
    return replace(first, beside=results, use=made_use, live=live, command=command)


def _label(scenario: Scenario, seen: Lived, work: str) -> str:
    names = [seen.policies.get(decision, "") for decision in assigning.decisions(scenario, work)]
    return "+".join(_short(name) for name in names if name) or "as the scenario says"


def _short(name: str) -> str:
    """Of a policy: a file without its folder."""
    return Path(name).name if policies.is_file(name) else name
