"""`edgewise benchmark`: what policies score on the scenarios and seeds of their decision."""

from __future__ import annotations

from typing import Annotated

import typer

from edgewise import policies
from edgewise.cli.commands import verbs
from edgewise.cli.output import answer, out, show
from edgewise.cli.progress import SaidProgress
from edgewise.cli.results import refuse_undecided
from edgewise.cli.verbs import JobsOption, JsonOption, complete_policy, complete_scenario, parse_seeds, parted
from edgewise.errors import EdgewiseError
from edgewise.sweeps.benchmark import SEEDS, SUITE, Row, benchmark as scored, page_of

app = verbs()


@app.command(
    epilog="Examples: edgewise benchmark --policy mine.py:Mine; "
    "edgewise benchmark --policy defer=horizon --policy defer=fifo --seeds 0:3 --json"
)
def benchmark(
    policy: Annotated[
        list[str],
        typer.Option(
            help="[DECISION=]NAME, a row each; repeatable. A NAME alone is for dispatch, and may be "
            "file.py:Class or the path of a card; 'all': every name.",
            autocompletion=complete_policy,
        ),
    ],
    seeds: Annotated[
        str, typer.Option(help="Seeds A:B (B not included), or a single seed.")
    ] = f"{SEEDS.start}:{SEEDS.stop}",
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            help="A scenario in place of those of the decision, also NAME@EDITION; repeatable.",
            autocompletion=complete_scenario,
        ),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables for a page.")] = False,
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Score policies on the scenarios and seeds of their decision, with all it takes to do so again."""
    numbers, asked = parse_seeds(seeds), list(_asked(policy))
    for decision, name in asked:
        policies.find(decision, name)
    runs = sum(len(numbers) * len(scenario or SUITE[decision]) for decision, _ in asked)
    with SaidProgress() as bar:
        task = bar.add_task("runs", total=runs)
        rows = [
            scored(decision, name, numbers, scenario or (), lambda: bar.advance(task), jobs)
            for decision, name in asked
        ]
    if markdown and not as_json:
        print(page_of(rows), end="")
    else:
        answer([row.as_json() for row in rows], as_json, lambda: _show(rows))
    refuse_undecided(
        [
            f"{row.policy} decided nothing itself in {', '.join(s.scenario for s in row.scores if not s.own)}"
            for row in rows
            if not all(score.own for score in row.scores)
        ]
    )


def _asked(given: list[str]) -> list[tuple[str, str]]:
    """Decision and name of each policy, none twice."""
    found: list[tuple[str, str]] = []
    for each in given:
        stated, name = parted(each)
        decision = policies.check_decision(stated or "dispatch")
        if not name.strip():
            raise EdgewiseError(f"--policy {each or repr(each)}: names no policy; write [DECISION=]NAME")
        names = policies.names(decision) if name == "all" else [name]
        found += [(decision, one) for one in names]
    if len(set(found)) < len(found):
        raise EdgewiseError("--policy: one policy is given twice")
    return found


def _show(rows: list[Row]) -> None:
    for row in rows:
        scores = [(score.scenario, score.measure, score.shown) for score in row.scores]
        about = f"{row.decision}={row.policy}, hash {row.hash}, edgewise {row.version}, seeds {row.seeds}"
        show(("scenario", "measure", "mean"), scores, about)
        out.print(row.command, soft_wrap=True, highlight=False)
