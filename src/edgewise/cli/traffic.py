"""Traffic of a live system: made for a service, recorded, and played again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from edgewise import api
from edgewise.cli.commands import verbs
from edgewise.cli.controller import DEFAULT, Folder, call
from edgewise.cli.lasting import lasting
from edgewise.cli.output import Json, answer, check_folder, command, note, out, refuse_given, show
from edgewise.cli.results import show_result
from edgewise.cli.verbs import (
    JsonOption,
    OutOption,
    PolicyOption,
    by_decision,
    complete_scenario,
    listing,
)
from edgewise.config import load_scenario
from edgewise.errors import EdgewiseError
from edgewise.report import records
from edgewise.workloads.generate import BROUGHT

app = verbs()
CAME = ("streams", "requests", "queries", "pipelines", "jobs")
BECAME = ("came", "ok", "failed", "refused", "left")  # of work that was brought


@app.command(
    epilog="Examples: edgewise record runs/recorded --last 600; edgewise record runs/shop "
    "--from access.log.gz --scenario three-tier --as '/detect*=cars'"
)
def record(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(help="Folder to write to.")],
    folder: Folder = DEFAULT,
    last_s: Annotated[
        float | None, lasting("Only what came in the last so much time", "--last", least_s=1)
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Instead of the live system's: an access log of nginx, Apache or Envoy, the answer of "
            "Prometheus to a range query (JSON), or a text of metrics scraped again and again; also .gz.",
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            help="With --from: where it would run, and what is asked for.", autocompletion=complete_scenario
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--as", help="With --from: PATTERN=NAME, paths or models that are an application or service."
        ),
    ] = None,
    period_s: Annotated[
        float, lasting("With --from: between scrapes without times", "--period", least_s=0.001)
    ] = 15.0,
    as_json: Json = False,
) -> None:
    """Write what came, to the live system or to another one, as a scenario with traces, to replay it."""
    records.refuse_others("TARGET", target, "a recording")
    if source is not None:
        refuse_given(
            context, ("last_s", "folder"), "is of the live system's own traffic; leave it out with --from"
        )
        return _imported(source, scenario, target, names or [], period_s, as_json)
    from edgewise.runtime.clients import recording

    another = "is of another system's traffic; say where that is, --from FILE, or leave it out"
    refuse_given(context, ("scenario", "names", "period_s"), another)
    made = recording.record(folder, target, last_s)
    note(made.otherwise)
    if as_json:
        left = {"left_out": made.left_out, "later": made.later, "otherwise": made.otherwise}
        found = {"folder": str(target), "came": made.came, "duration_s": made.duration_s}
        return print(json.dumps(found | left, indent=1))
    left_out = f"; {made.left_out} of tasks or sites that it has not are left out" if made.left_out else ""
    left_out += f"; {made.later} jobs that start more than a day from now are left out" if made.later else ""
    came = ", ".join(f"{made.came[name]} {name}" for name in CAME)
    out.print(escape(f"{came} over {made.duration_s:.0f} s: {target}{left_out}"), soft_wrap=True)
    if made.came["faults"]:
        out.print(escape(f"policies failed: see {target / recording.FAULTS}"), style="red", soft_wrap=True)
    return None


def _imported(
    source: Path, scenario: str | None, target: Path, names: list[str], period_s: float, as_json: bool
) -> None:
    """See `record`: traffic of another system."""
    from edgewise.workloads.foreign import TrafficFile
    from edgewise.workloads.foreign_traces import import_traffic

    if scenario is None:
        raise EdgewiseError("--from needs --scenario: the places, models and applications that it would meet")
    given = [name.rpartition("=")[::2] for name in names]
    if wrong := [text for text, (pattern, name) in zip(names, given, strict=True) if not (pattern and name)]:
        raise EdgewiseError(f"--as {wrong[0]}: write PATTERN=NAME, for example '/detect*=cars'")
    check_folder("TARGET", target, "a recording")
    made = import_traffic(TrafficFile(source, period_s), load_scenario(scenario), target, given)
    said = escape(f"{made.written} {made.work} over {made.duration_s:.0f} s: {target}")
    answer(made._asdict() | {"folder": str(target)}, as_json, lambda: out.print(said, soft_wrap=True))
    left = [f"{what} ({count})" for what, count in list(made.left_out.items())[:5]]
    more = ", …" if len(made.left_out) > len(left) else ""
    note([f"left out, as the scenario has no name for it: {', '.join(left)}{more}; see --as"] if left else [])
    note([made.unread] if made.unread else [])


@app.command(epilog="Example: edgewise replay runs/recorded --policies closest,least-impedance")
def replay(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(help="What `edgewise record` wrote.")],
    chosen: Annotated[
        str | None, typer.Option("--policies", help="Of one decision, [DECISION=]NAME,NAME,…")
    ] = None,
    policy: PolicyOption = None,
    live: Annotated[bool, typer.Option("--live", help="Play it against the system that is up.")] = False,
    folder: Folder = DEFAULT,
    seed: Annotated[int, typer.Option(help="Keys delays and phases.")] = 0,
    target: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play what was recorded again: in simulation under any policy of any decision, or streams live."""
    if not live:
        refuse_given(
            context, ("folder",), "is of a live system; add --live to play it there, or leave it out"
        )
        records.check_place(target or Path("runs") / "any")
        listed = dict([listing(chosen)]) if chosen is not None else ()
        result = api.replay(source, listed, seed, fixed=by_decision(policy), command=command())
        place = target or Path("runs") / f"{source.absolute().name}-replay"
        beside = api.compared(result) if len(result.policies) > 1 else None
        show_result(result if beside is None else beside.result, beside, place, as_json)
        return None if as_json else _say_brought(source)
    with_live = (
        "is of a simulation; leave it out with --live, where the policy decides that `edgewise policy` sets"
    )
    refuse_given(context, ("chosen", "policy", "target"), with_live)
    policy = call(folder, "GET", "/v1/policies/dispatch")["policy"]
    from edgewise.runtime.clients import recording

    seen, busy = recording.play(folder, source, seed)
    totals = {name: sum(s.became[name] for s in seen) for name in ("ok", "failed", "rejected")}
    row = {"policy": f"{policy}, live", "queries": sum(totals.values()), **totals}
    if as_json:
        return print(json.dumps(row | {"busy": busy}))
    show(row, [list(row.values())])
    say_busy(busy)


def say_busy(why: str | None) -> None:
    """Say that what was measured says little, where it does."""
    if why is not None:
        text = f"note: these figures say little: {why}; end other programs and try again"
        out.print(text, style="yellow", highlight=False, soft_wrap=True)


def _all_work(folder: Path, seed: int, as_json: bool) -> None:
    """See `load`."""
    from edgewise.runtime.clients import all_work

    found = all_work.bring(folder, seed, say=lambda text: note([text]))
    if as_json:
        seen = {"figures": found.figures, "median_s": found.median_s, "busy": found.busy}
        return print(json.dumps(seen, indent=1, default=dict))
    show(("work", *BECAME, "median ms"), brought_rows(found.figures, found.median_s))
    if found.sources:
        rows = [(name, *(counts[key] for key in BECAME[:-1])) for name, counts in found.sources.items()]
        show(("source", *BECAME[:-1]), rows)
    out.print("streams, services and graphs count queries; ok: answered in time, or done")
    return say_busy(found.busy)


def _say_brought(recording: Path) -> None:
    """Beside a simulation of what was recorded: what became of it live, where `edgewise load` brought it."""
    if (recording / BROUGHT).is_file():
        found = json.loads((recording / BROUGHT).read_text())
        rows = brought_rows(found["figures"], found["median_s"])
        show(("live, by its clients", *BECAME, "median ms"), rows)
        say_busy(found["busy"])


def brought_rows(
    figures: Mapping[str, Mapping[str, int]], median_s: Mapping[str, float]
) -> list[tuple[Any, ...]]:
    """What became of each kind of work, a line each."""
    medians = {work: f"{1e3 * delay_s:.0f}" for work, delay_s in median_s.items()}
    return [
        (work, *(counts[name] for name in BECAME), medians.get(work, "")) for work, counts in figures.items()
    ]


@app.command(epilog="Examples: edgewise load; edgewise load camera --rate-qps 60 --seconds 20")
def load(
    context: typer.Context,
    service: Annotated[
        str | None,
        typer.Argument(help="A service of the scenario; without any, all work that the scenario says comes."),
    ] = None,
    rate_qps: Annotated[float, typer.Option("--rate-qps", help="Requests/s, Poisson.", min=0.01)] = 10.0,
    seconds: Annotated[float, lasting("Of a service: how long", least_s=0.1)] = 20.0,
    deadline_s: Annotated[
        float | None,
        lasting("Of each request, the service's own by default", "--deadline-s", least_s=0.001),
    ] = None,
    site: Annotated[str | None, typer.Option(help="Where they enter; all sites in turn by default.")] = None,
    seed: Annotated[int, typer.Option(help="Keys the gaps between requests.")] = 0,
    folder: Folder = DEFAULT,
    as_json: Json = False,
) -> None:
    """Send requests to the live system that is up, or all work of its scenario, and say what became of it.

    All work: streams, requests, queries of split models, pipelines, jobs, and nodes that fail and come back,
    for as long as the scenario says.
    """
    from edgewise.runtime.clients import traffic

    if service is None:
        why = "is of the requests of one service; name it, as `edgewise load SERVICE`, or leave it out"
        refuse_given(context, ("rate_qps", "seconds", "deadline_s", "site"), why)
        return _all_work(folder, seed, as_json)

    seen = traffic.load(folder, service, rate_qps, seconds, deadline_s, site, seed)
    if as_json:
        became = {"became": dict(seen.became), "delays_s": seen.delays_s, "deadline_s": seen.deadline_s}
        return print(json.dumps(became | {"why": seen.why, "busy": seen.busy}, indent=1))
    headings = ("requests", "in time", "late", "refused", "dropped", "failed", "median ms", "95 % ms")
    counts = [seen.became[name] for name in headings[1:6]]
    delays = (
        [f"{s * 1e3:.0f}" for s in np.quantile(seen.delays_s, [0.5, 0.95])] if seen.delays_s else ["", ""]
    )
    show(headings, [(sum(counts), *counts, *delays)])
    out.print(f"in time: within {seen.deadline_s:g} s")
    if seen.why:
        out.print(f"last error: {seen.why}", markup=False)
    say_busy(seen.busy)
    return None
