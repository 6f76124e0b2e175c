"""Rows of a benchmark: what a policy scores on named scenarios and seeds, and all it takes to score it again.

Each decision has a few shipped scenarios that are quick to simulate and ask something else of a policy each.
Seeds are validation seeds: nothing that ships was trained on them, and published figures come from others.
"""

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from edgewise import api, policies
from edgewise.config import edition, load_scenario
from edgewise.policies import cards
from edgewise.run import assigning
from edgewise.seeds import VALIDATION

SUITE: Mapping[str, tuple[str, ...]] = {
    "dispatch": ("three-tier", "cameras", "full-edge-scarce"),
    "requests": ("kais-live", "kais-demo"),
    "split": ("split-inception",),
    "place": ("recognition",),
    "orchestrate": ("kais-live", "kais-demo"),
    "defer": ("deferrable",),
}
"""The shipped scenarios on which each decision is scored where none are named."""
SEEDS = range(VALIDATION.start, VALIDATION.start + 3)


class Score(NamedTuple):
    """What a policy reached in one scenario.

    Attributes:
        scenario: its name and edition, see `config.edition`.
        measure: the first one of the decision's work, by which policies are compared.
        mean: over seeds; `shown` is how tables say it.
        values: by seed; seeds without a value are left out.
        own: whether the policy decided anything itself.
    """

    scenario: str
    measure: str
    mean: float | None
    shown: str
    values: tuple[float, ...]
    own: bool


class Row(NamedTuple):
    """A policy's scores.

    Attributes:
        policy: the name it goes by.
        hash: of its class and the file that has it, and of its card and network if it has one.
        version: of edgewise.
        seeds: A:B, B not included.
        command: prints this row.
    """

    decision: str
    policy: str
    hash: str
    version: str
    seeds: str
    command: str
    scores: tuple[Score, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return self._asdict() | {"scores": [score._asdict() for score in self.scores]}


def benchmark(
    decision: str,
    policy: str,
    seeds: Sequence[int] = SEEDS,
    scenarios: Sequence[str] = (),
    progress: api.Progress = lambda: None,
    jobs: int = 1,
) -> Row:
    """Simulate a policy of one decision in each scenario; the usual policies decide all else.

    Args:
        policy: a name, `file.py:Class` or the path of a card.
        seeds: in a row, one run each.
        scenarios: names of shipped ones, also with an edition, or files; else those of `SUITE`.
        progress: called after each run.
        jobs: so many processes; scores are the same for any number.
    Raises:
        ScenarioError, PolicyError: they cannot be loaded, or a scenario has nothing to decide.
    """
    name, _ = assigning.maker(decision, policy)
    found = [_score(decision, policy, each, seeds, progress, jobs) for each in scenarios or SUITE[decision]]
    said = f"{seeds[0]}:{seeds[-1] + 1}"
    where = "".join(f" --scenario {each}" for each in scenarios)
    command = f"edgewise benchmark --policy {decision}={policy} --seeds {said}{where}"
    about = fingerprint(decision, policy), version("edgewise"), said, command
    return Row(decision, name, *about, tuple(found))


def _score(
    decision: str, policy: str, name: str, seeds: Sequence[int], progress: api.Progress, jobs: int
) -> Score:
    scenario = load_scenario(name)
    result = api.simulate(scenario, {decision: policy}, seeds, progress=progress, jobs=jobs)
    measure, (values,) = result.measures[0], result.values().values()
    mean = float(values.mean()) if len(values) else None
    of = edition(scenario), measure.heading, mean, measure.shown(mean)
    return Score(*of, tuple(map(float, values)), not result.undecided())


def fingerprint(decision: str, policy: str) -> str:
    """The beginning of a hash of what a policy is made of: its class and that one's file, card, network.

    Raises:
        PolicyError: it cannot be loaded.
    """
    kind = type(policies.load(decision, policy))
    found = hashlib.sha256(kind.__qualname__.encode())
    for file in _files(decision, policy, kind):
        found.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return found.hexdigest()[:12]


def _files(decision: str, policy: str, kind: type) -> Iterator[Path]:
    yield Path(inspect.getfile(kind))
    card = cards.shipped(decision).get(policy, Path(policy))
    if card.suffix == ".json" and card.is_file():
        yield from sorted(card.parent.glob(f"{card.stem}.*"))


def page_of(rows: Sequence[Row]) -> str:
    """Rows as tables of Markdown, one for each decision, for a page with a heading above them."""
    tables = []
    for decision in dict.fromkeys(row.decision for row in rows):
        mine = [row for row in rows if row.decision == decision]
        scores = mine[0].scores
        heads = [f"`{score.scenario}`<br>{score.measure}" for score in scores]
        lines = [["policy", *heads, "hash"], ["---", *["---:"] * len(heads), "---"]]
        for row in mine:
            figures = [score.shown if score.own else "–" for score in row.scores]
            lines.append([f"`{row.policy}`", *figures, f"`{row.hash}`"])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        tables.append(f"### {decision}\n\nSeeds {mine[0].seeds}.\n\n{table}\n")
    return "\n".join(tables)
