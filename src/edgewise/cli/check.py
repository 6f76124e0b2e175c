"""`edgewise check`: what a scenario has, what is asked of it, and what nobody can serve, before any run."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.output import note, out, show
from edgewise.cli.verbs import JsonOption, PolicyOption, ScenarioArgument, SetOption, by_decision, load
from edgewise.limits import in_words
from edgewise.limits.checked import CapacityLine, Checked, Serving
from edgewise.limits.words import percent, took
from edgewise.model.scenario import Scenario
from edgewise.model.topology import WayTable
from edgewise.model.ways import unused_cables
from edgewise.report.summary import rate
from edgewise.run import assigning

if TYPE_CHECKING:
    from edgewise.policies.split import SplitPlan
    from edgewise.policies.split.layout_optimum import LayoutPlan

app = verbs()
ROWS = 12  # of a table; the fullest are shown
NAMED = 3  # of who can serve an application; the nearest
HEADINGS = {"node": "nodes", "worker": "workers", "link": "links"}


@app.command(
    epilog="Examples: edgewise check three-tier; edgewise check site.yaml --set links.wan.bandwidth_bps=9Mbps"
)
def check(
    scenario: ScenarioArgument,
    policy: PolicyOption = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a scenario has and what is asked of it, who can serve whom, and what nobody can serve.

    Nothing is run. Exit status 1: an application at some site can be served by nobody.
    """
    loaded = load(scenario, changes)
    note(unused_cables(loaded.topology))
    work, chosen = assigning.assigned(loaded, by_decision(policy), "edgewise check")
    found = Checked(loaded)
    if as_json:
        print(json.dumps(found.as_json() | {"policies": chosen}, indent=1))
        raise typer.Exit(0 if found.servable else 1)
    out.print(f"[bold]{escape(loaded.name)}[/bold]: {escape(loaded.description)}", soft_wrap=True)
    nodes, sites = len(loaded.topology.nodes), len(loaded.topology.sites)
    out.print(f"{took(loaded.duration_s)}; {nodes} nodes, {sites} sites")
    _deciding(loaded, work, chosen)
    _capacity(found.lines())
    _in_cloud(found)
    _ways(loaded)
    _serving(found)
    if "graphs" in loaded.holds:
        print_plan(loaded, chosen.get("split", assigning.defaults(loaded, "graphs")["split"]))
    for limit in found.unserved:
        _say(limit.text)
    for line in in_words(found.loads) if found.loads else ():
        _say(line)
    raise typer.Exit(0 if found.servable else 1)


def _say(line: str) -> None:
    out.print(escape(line), highlight=False, soft_wrap=True)


def _deciding(scenario: Scenario, decided: str, chosen: dict[str, str]) -> None:
    """Who decides, and who else could."""
    rows, together = [], assigning.beside(scenario, decided)
    for work in scenario.holds:
        for decision, default in assigning.defaults(scenario, work).items():
            name = chosen.get(decision, default) if work in together else default
            others = [each for each in assigning.names(scenario, decision) if each != name]
            rows.append((work, decision, name, ", ".join(others)))
    show(("work", "decision", "policy", "others"), rows)


def _capacity(lines: list[CapacityLine]) -> None:
    """A table of nodes, one of workers, one of links."""
    for kind, mine in groupby(lines, key=lambda line: line.kind):
        listed = list(mine)
        rows = []
        for line in listed[:ROWS]:
            held = (
                (f"{percent(line.held)}{f' ({line.note})' if line.note else ''}",) if kind == "node" else ()
            )
            rows.append((line.name, line.has, *held, "–" if line.load is None else percent(line.load)))
        if len(listed) > ROWS:
            rows.append((f"and {len(listed) - ROWS} more", *[""] * (len(rows[0]) - 1)))
        held_by = ("workers hold",) if kind == "node" else ()
        show((HEADINGS[kind], "has", *held_by, "asked for, at best"), rows)


def _in_cloud(found: Checked) -> None:
    """What requests of services meet in the cloud; and which workers are not there."""
    met, services = found.in_cloud(), found.scenario.services
    pooled = [name for name, workers in met.items() if not workers]
    for name, workers in met.items():
        if workers:
            named = "one named worker" if len(workers) == 1 else f"{len(workers)} named workers"
            _say(f"in the cloud, requests of {name} meet {named}, with a queue of its own")
    for name, clusters in found.at_workers().items():
        shown = ", ".join(f"{cluster} ({count})" for cluster, count in clusters.items())
        _say(f"workers of {name} serve its requests, beside streams: {shown}, at most; it has no replicas")
    if pooled and services is not None:
        shown = ", ".join(pooled[:NAMED]) + (f" and {len(pooled) - NAMED} more" if pooled[NAMED:] else "")
        _say(f"in the cloud, requests of {shown} meet a pool: all replicas that fit {services.cloud}")
    if idle := found.scenario.idle:
        variants = ", ".join(dict.fromkeys(worker.variant for worker in idle))
        _say(f"nothing streams: {len(idle)} workers of {variants} are not there, and hold nothing")


def _ways(scenario: Scenario) -> None:
    """Who reaches whom; of generated topologies, whose sites are alike, the first site."""
    topology = scenario.topology
    generated = isinstance(topology.ways, WayTable)
    count = len(topology.clusters) if generated else len(topology.ways)
    rows = [
        (way.site, way.cluster, took(way.delay_s), rate(way.bandwidth_bps), " ".join(way.over))
        for way in topology.ways[: min(count, ROWS)]
    ]
    if len(topology.ways) > len(rows):
        rows.append((f"and {len(topology.ways) - len(rows)} more", "", "", "", ""))
    if rows:
        show(("from site", "to cluster", "one way", "bandwidth", "over"), rows)


def _serving(found: Checked) -> None:
    """Which variants can serve each application in time, sites with the same ones in one row."""
    rows: dict[tuple[str, tuple[str, ...]], list[Serving]] = {}
    for each in found.serving():
        rows.setdefault((each.of, tuple(each.variants)), []).append(each)
    every, shown = len(found.scenario.topology.sites), []
    for (of, variants), same in rows.items():
        named = [f"{name} ({_range([each.variants[name] for each in same])})" for name in variants]
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        sites = [each.site for each in same]
        at = "every site" if len(sites) == every else ", ".join(sites[:NAMED])
        at += f" and {len(sites) - NAMED} more" if NAMED < len(sites) < every else ""
        shown.append((of, at, ", ".join(named[:NAMED]) + more or "nobody"))
    if shown:
        heading = "variants that answer in time and are accurate enough (a query takes)"
        show(("application", "at", heading), sorted(shown, key=lambda row: row[0]))


def _range(delays: list[tuple[float, bool]]) -> str:
    low, high = (took(end(delay_s for delay_s, _ in delays)) for end in (min, max))
    return (low if low == high else f"{low} to {high}") + (
        "" if all(ever for _, ever in delays) else ", at times"
    )


def print_plan(scenario: Scenario, policy: str) -> None:
    """Sizes, plan, forecast and certified gap of a scenario's graphs under a policy."""
    from edgewise.policies.split import local, plan_of, split_policy
    from edgewise.policies.split.layout_optimum import LayoutPlan
    from edgewise.splitting import splitting

    found = splitting(scenario)
    plan = plan_of(split_policy(policy, found.program))
    for small in found.contracted:
        out.print(f"{small.before} tasks, {small.after} after contraction")
    if isinstance(plan, LayoutPlan):
        return _print_layout(plan)
    if plan is None:
        return out.print(f"{policy} draws from no plan")
    _print_groups(plan)
    whole = local(plan.program).forecast
    out.print(
        f"forecast {1e3 * plan.forecast.mean_s:.4g} ms, whole on one server {1e3 * whole.mean_s:.4g} ms; "
        f"link {plan.forecast.load:.1%} busy, a message waits {1e6 * plan.forecast.wait_s:.3g} µs; "
        f"certified gap {plan.gap:.1e}"
    )
    if found.overload:
        note([f"the forecast does not hold: {found.overload}"])


def _print_groups(plan: SplitPlan) -> None:
    """How likely each placement of each kind of sub-graph is."""
    groups, start = plan.program.groups, plan.program.arrays.start
    out.print(f"{plan.program.variables} probabilities in {len(groups)} kinds of sub-graphs")
    rows = []
    for number, group in enumerate(groups):
        for k in range(start[number + 1] - start[number]):
            chance, row = plan.theta[start[number] + k], group.lines.part[k]
            if chance > 1e-9:
                parts = " + ".join(f"{int((row[:-1] == p).sum())}" for p in range(int(row.max()) + 1))
                end = "" if row[-1] == 0 else ", ends away"
                rows.append((number, len(group.subgraphs), f"{chance:.3f}", parts + end))
    if rows:
        show(("sub-graph", "times", "probability", "branches by server"), rows)


def _print_layout(plan: LayoutPlan) -> None:
    layout = plan.program.layout
    names = [*layout.links, *(group.name for group in layout.groups)]
    found = zip(names, plan.load, plan.wait_s, strict=True)
    rows = ((name, f"{load:.1%}", f"{1e3 * wait:.3g}") for name, load, wait in found)
    show(("resource", "busy", "waits ms"), rows)
    out.print(
        f"forecast {1e3 * plan.mean_s:.4g} ms; {plan.program.variables} probabilities; "
        f"certified gap {plan.gap:.1%}"
    )
