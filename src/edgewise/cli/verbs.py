"""The verbs of simulation: they take any scenario and any decision."""

import json
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise import api, config, policies
from edgewise.cli.commands import verbs
from edgewise.cli.lasting import lasting
from edgewise.cli.output import Json, answer, command, note, out, show
from edgewise.cli.progress import SaidProgress
from edgewise.cli.results import show_result
from edgewise.errors import EdgewiseError, RunError, extra
from edgewise.model.ranges import seeds_of
from edgewise.model.scenario import Scenario
from edgewise.report import records
from edgewise.run import assigning
from edgewise.run.result import Result, report as rewritten, report_beside
from edgewise.seeds import refuse_test_seeds

if TYPE_CHECKING:
    from edgewise.sweeps.limited import Try

app = verbs()


def complete_scenario(incomplete: str) -> list[str]:
    """Names of shipped scenarios and scenario files that begin so, for the shell."""
    known = (*config.shipped_scenarios(), *config.offered_scenarios())
    names = [name for name in known if name.startswith(incomplete)]
    return names + glob(f"{incomplete}*.yaml") + [f"{name}/" for name in glob(f"{incomplete}*/")]


def complete_policy(incomplete: str) -> list[str]:
    """What may follow in DECISION=NAME,NAME,… or NAME,NAME,…, for the shell."""
    before = incomplete[: max(incomplete.rfind("="), incomplete.rfind(",")) + 1]
    decision = incomplete.partition("=")[0] if "=" in incomplete else "dispatch"
    found = [before + name for name in policies.names(decision)] if decision in policies.DECISIONS else []
    found += [] if before else [f"{each}=" for each in policies.DECISIONS]
    return sorted(each for each in found if each.startswith(incomplete))


ScenarioArgument = Annotated[
    str,
    typer.Argument(help="A scenario file, or the name of a shipped one.", autocompletion=complete_scenario),
]
SeedsOption = Annotated[str, typer.Option(help="Seeds A:B (without B) or A..B (with it), or a single seed.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change the scenario, for example streams.arrivals.clients_per_min=80; repeatable."
    ),
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="DECISION=NAME, as defer=horizon; repeatable. A NAME alone is for dispatch, or for the one "
        "decision that the scenario knows. A name may also be file.py:Class or the path of a card.",
        autocompletion=complete_policy,
    ),
]
JobsOption = Annotated[
    int, typer.Option("--jobs", help="So many processes; the records are the same for any number.", min=1)
]
CureOption = Annotated[
    bool,
    typer.Option("--cure", help="Try by simulation, with few seeds, what would help against what limits."),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="Output folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")]


@app.command(
    epilog="Examples: edgewise simulate full-edge --set topology.antennas=2 --policy closest; "
    "edgewise simulate kais-demo --policy requests=greedy --policy orchestrate=marginal"
)
def simulate(
    scenario: ScenarioArgument,
    policy: PolicyOption = None,
    seeds: SeedsOption = "0:3",
    changes: SetOption = None,
    jobs: JobsOption = 1,
    cure: CureOption = False,
    folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a scenario under one policy for each decision, and write records, figures and a report."""
    numbers, loaded = begun(scenario, seeds, changes, folder)
    work, chosen = assigning.assigned(loaded, by_decision(policy), "edgewise simulate")
    note(assigning.notes(loaded, work, "edgewise simulate"))
    with SaidProgress() as bar:
        task = bar.add_task(", ".join(map(str, chosen.values())), total=len(numbers))
        result = api.simulate(
            loaded, chosen, numbers, progress=lambda: bar.advance(task), command=command(), jobs=jobs
        )
    tried = _tried(result, scenario, changes, chosen) if cure else ()
    name = "-".join(Path(label).stem for label in result.policies[0].split("+"))
    show_result(result, None, folder or Path("runs") / f"{Path(scenario).stem}-{name}", as_json, tried)


def _tried(
    result: Result, scenario: str, changes: list[str] | None, chosen: dict[str, Any]
) -> "tuple[Try, ...]":
    """Cures of what limits, by simulation of the same seeds, a few of them."""
    from edgewise.sweeps.limited import SEEDS, tried  # slow to import, and not always asked for

    given, seeds = parsed(changes), result.seeds[:SEEDS]
    return tuple(
        tried(
            result,
            lambda more: config.load_scenario(scenario, {**given, **more}),
            lambda loaded: api.simulate(loaded, chosen, seeds),
        )
    )


@app.command(
    epilog="Examples: edgewise compare three-tier --policies closest,mine.py:Mine --rival closest; "
    "edgewise compare deferrable --policies defer=fifo,horizon"
)
def compare(
    scenario: ScenarioArgument,
    chosen: Annotated[
        str,
        typer.Option(
            "--policies",
            help="DECISION=NAME,NAME,… to compare; 'all': every name.",
            autocompletion=complete_policy,
        ),
    ] = "all",
    policy: PolicyOption = None,
    seeds: SeedsOption = "0:10",
    rival: Annotated[
        str | None,
        typer.Option(
            help="Compare the others with this one; default: the first named; of 'all', the usual one."
        ),
    ] = None,
    changes: SetOption = None,
    jobs: JobsOption = 1,
    folder: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare policies of one decision on the same arrivals and noise, paired by seed."""
    numbers, loaded = begun(scenario, seeds, changes, folder)
    decision, listed = listing(chosen)
    fixed = by_decision(policy)
    work, assigned = assigning.assigned(loaded, fixed, "edgewise compare", decision)
    varied = decision or next(iter(assigned))
    names = [
        each for name in listed for each in (assigning.names(loaded, varied) if name == "all" else [name])
    ]
    note(assigning.notes(loaded, work, "edgewise compare"))
    with SaidProgress() as bar:
        task = bar.add_task("runs", total=len(numbers) * len(names))
        comparison = api.compare(
            loaded, {varied: names}, numbers, fixed=fixed, rival=rival, progress=lambda: bar.advance(task),
            command=command(), jobs=jobs,
        )  # fmt: skip
    show_result(
        comparison.result, comparison, folder or Path("runs") / f"{Path(scenario).stem}-compare", as_json
    )


@app.command(
    epilog="Examples: edgewise report runs/three-tier-compare; edgewise report runs/before runs/after"
)
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RUN [RUN]", help="A run folder or the state of a live system; or two."),
    ],
    page: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Of two runs: the page; else RUN-beside-RUN.html. Of a live system: the run folder.",
        ),
    ] = None,
    last: Annotated[
        float | None, lasting("Of a live system: what came in so many last seconds", least_s=1e-3)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write figures and report.html of a run folder anew; of two, one page with both.

    Of a live system, which may be running, its records are written as a run folder first.
    """
    if len(folders) > 2:
        raise RunError(
            f"edgewise report: {len(folders)} runs are given; name one, or two to see side by side"
        )
    alone_live = len(folders) == 1 and _is_live(folders[0])
    if len(folders) == 1 and page is not None and not alone_live:
        raise RunError("--out: is the page of two runs; of one it is report.html in its folder")
    if last is not None and not any(map(_is_live, folders)):
        raise RunError("--last: is of live systems; a run folder is reported as a whole")
    first, *others = [_recorded(each, page if alone_live else None, last) for each in folders]
    if alone_live:
        written = first / "report.html"
    else:
        written = report_beside(first, others[0], page) if others else rewritten(first)
    answer(
        {"report": str(written)}, as_json, lambda: out.print(str(written), soft_wrap=True, highlight=False)
    )


def _is_live(folder: Path) -> bool:
    return (folder / "state.sqlite").is_file()


def _recorded(folder: Path, place: Path | None, last_s: float | None) -> Path:
    """A run folder; of a live system its records are written as one."""
    if not _is_live(folder):
        return folder
    with extra("live", "records of a live system"):
        from edgewise.run import live
    return live.saved(folder, place, last_s)


@app.command(epilog="Example: edgewise scenarios")
def scenarios(as_json: Json = False) -> None:
    """List the shipped scenarios, by the work that they hold."""
    known = (*config.shipped_scenarios(), *config.offered_scenarios())
    forms = [config.scenario_form(name) for name in known]
    rows = [(form.name, ", ".join(form.holds), form.description) for form in forms]
    rows.sort(key=lambda row: row[1])
    found = [{"scenario": form.name, "holds": form.holds, "what": form.description} for form in forms]
    answer(found, as_json, lambda: show(("scenario", "holds", "what"), rows))


@app.command(name="policies", epilog="Example: edgewise policies orchestrate")
def list_policies(
    decision: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(policies.DECISIONS)}; default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List every policy that can be named, by what it decides."""
    chosen = list(policies.DECISIONS) if decision is None else [policies.check_decision(decision)]
    rows = [
        {
            "decision": each,
            "of": policies.DECISIONS[each],
            "policy": name,
            "what": assigning.about(each, name),
        }
        for each in chosen
        for name in policies.names(each)
    ]
    if as_json:
        return print(json.dumps(rows, indent=1))
    for each in chosen:
        mine = [(row["policy"], row["what"]) for row in rows if row["decision"] == each]
        show((f"{each} ({policies.DECISIONS[each]})", "what"), mine)


@app.command(epilog="Example: edgewise schema > scenario.schema.json")
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    print(json.dumps(config.scenario_schema(), indent=2))


def begun(
    scenario: str, seeds: str, changes: list[str] | None, folder: Path | None
) -> tuple[range, Scenario]:
    """Seeds and scenario of runs; a folder that cannot be written is said before any of them."""
    numbers = parse_seeds(seeds)
    records.check_place(folder or Path("runs") / "any")
    return numbers, load(scenario, changes)


def load(scenario: str, changes: list[str] | None) -> Scenario:
    """A scenario with changes of the form PATH=VALUE."""
    return config.load_scenario(scenario, parsed(changes))


def parsed(changes: list[str] | None) -> dict[str, Any]:
    """Changes of the form PATH=VALUE, by path."""
    return dict(config.parse_setting(change) for change in changes or [])


def by_decision(given: Sequence[str] | None) -> dict[str | None, Any]:
    """Policies of DECISION=NAME by decision; by None where there is no decision.

    Raises:
        EdgewiseError: one decision is given twice, or a policy is not named.
    """
    found: dict[str | None, Any] = {}
    for each in given or ():
        decision, names = parted(each)
        if not names.strip():
            raise EdgewiseError(f"--policy {each or repr(each)}: names no policy; write [DECISION=]NAME")
        if decision in found:
            raise EdgewiseError(f"--policy {each}: {decision or 'dispatch'} is given twice")
        found[decision] = names
    return found


def listing(given: str) -> tuple[str | None, list[str]]:
    """Decision (None: not said) and names of DECISION=NAME,NAME,….

    Raises:
        EdgewiseError: another decision is named in the middle, or no policy is named.
    """
    decision, names = parted(given)
    found = [name.strip() for name in names.split(",") if name.strip()]
    for name in found:
        if parted(name)[0] is not None:
            raise EdgewiseError(f"--policies {given}: is of one decision; hold others with --policy {name}")
    if not found:
        raise EdgewiseError(
            f"--policies {given or repr(given)}: names no policy; write [DECISION=]NAME,NAME,…"
        )
    return decision, found


def parted(given: str) -> tuple[str | None, str]:
    """Decision (None: not said) and the rest of DECISION=REST."""
    head, found, name = given.partition("=")
    return (head.strip(), name) if found else (None, given)


def parse_seeds(text: str) -> range:
    """Seeds as `model.ranges.seeds_of`, test seeds excluded.

    Raises:
        EdgewiseError: anything else, an empty range, or a test seed.
    """
    seeds = seeds_of(text)
    refuse_test_seeds(seeds)
    return seeds
