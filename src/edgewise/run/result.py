"""What runs leave: their records, tables and figures, and a comparison of them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgewise.config import dump_scenario, edition
from edgewise.core.guard import Decided
from edgewise.errors import EdgewiseError
from edgewise.limits.words import Limit
from edgewise.model.scenario import Scenario
from edgewise.model.setting import setting
from edgewise.report import records
from edgewise.report.decided import ByPolicy, as_json, lines, nothing
from edgewise.report.schema import Measure, measures_of
from edgewise.report.sources import by_source
from edgewise.report.summary import LinkLoad, by_seed, crowded, refusals, summary_of, with_links
from edgewise.report.use import Use, delays_of, use_of
from edgewise.report.verdicts import verdict_in_words

if TYPE_CHECKING:
    import pandas

    from edgewise.report import statistics


@dataclass(frozen=True)  # without slots: what is found once is kept
class Result:
    """Records of one or more runs of a scenario.

    Attributes:
        scenario: what was run.
        work: which kind of its work: streams, services, pipelines, graphs or jobs.
        policies, seeds: which runs.
        items, windows: record tables (`edgewise.report.schema` explains each column).
        fixed: the policies of decisions that are the same in all runs, by decision.
        command: how to repeat it.
        rival: the policy that the others are compared with, if any.
        decided: by label and decision how often the policy was to decide over all seeds, how often the
            fallback did in its place, and why.
        decision_s: of each policy the mean time of a decision on this machine, where it is measured.
        beside: results of other work that ran on the same nodes at the same time, by its kind.
        use: who used what, by the name of the table (`edgewise.report.use` explains each column).
        live: of the run of a live system, from when to when it was, Unix time; empty where it was simulated.
    """

    scenario: Scenario
    work: str
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    items: pa.Table
    windows: pa.Table
    fixed: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    rival: str | None = None
    decided: ByPolicy = field(default_factory=dict)
    decision_s: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    beside: "Mapping[str, Result]" = field(default_factory=dict)
    use: Mapping[str, pa.Table] = field(default_factory=dict)
    live: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What the summary says of each run; policies are compared by the first."""
        return measures_of(self.work, self._rows)

    @property
    def settings(self) -> dict[str, str]:
        """Of each kind of work that was run, whether it was as live or by which keys as published."""
        return {work: setting(self.scenario, work) for work in (self.work, *self.beside)}

    def summary(self) -> list[dict[str, Any]]:
        """The measures of each policy and seed; of streams with the links over 100 %."""
        if self.work == "streams":
            return with_links(self._rows, self._crowded)
        return [dict(row) for row in self._rows]

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        return summary_of(self.work, self.items, self.windows)

    @cached_property
    def _crowded(self) -> list[LinkLoad]:
        return crowded(self.scenario, self.items) if self.scenario.sharing == "none" else []

    @property
    def faults(self) -> dict[str, dict[str, int]]:
        """Of each label with a policy that had any: the kinds of its faults, and how often each was."""
        of = {
            label: {kind: n for one in each.values() for kind, (n, _) in one.faults.items()}
            for label, each in self.all_decided.items()
        }
        return {label: found for label, found in of.items() if found}

    def said(self) -> list[str]:
        """What the fallback decided, a sentence for each policy that failed at something."""
        return lines(self.all_decided)

    def undecided(self) -> list[str]:
        """A sentence for each policy of which no decision is its own: nothing can be said of it."""
        return nothing(self.all_decided)

    @property
    def all_decided(self) -> ByPolicy:
        """Of all kinds of work together."""
        found: dict[str, dict[str, Decided]] = {}
        for each in (self, *self.beside.values()):
            for label, of in each.decided.items():
                found.setdefault(label, {}).update(of)
        return found

    def values(self, measure: str = "") -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
        """(seeds,) values of a measure, or of the first, for each policy; seeds without a value left out."""
        return by_seed(self._rows, measure or self.measures[0].key, self.policies)

    def delays(self) -> dict[str, list[dict[str, Any]]]:
        """Quantiles of delays of each kind of work, see `report.use.delays_of`."""
        runs_of = {self.work: self, **self.beside}
        return {work: delays_of(work, one.items, self.use.get("delays")) for work, one in runs_of.items()}

    def used(self) -> list[Use]:
        """How far nodes, links and workers were used, policy by policy."""
        return [one for policy in self.policies for one in use_of(self.use, policy)]

    @cached_property
    def limits(self) -> dict[str, list[Limit]]:
        """By policy what limited its runs, of all work that was run, the first to break first."""
        from edgewise.limits.found import limits_of  # slow to import, and not always asked for

        every = {self.work: self, **self.beside}
        found = {}
        for k, policy in enumerate(self.policies):
            items = {work: _of(one.items, one.policies[k]) for work, one in every.items()}
            use = {name: _of(table, policy) for name, table in self.use.items()}
            found[policy] = limits_of(self.scenario, items, use, len(self.seeds))
        return found

    def refusals(self) -> list[dict[str, Any]]:
        """Why streams were refused, and how many."""
        streams = {self.work: self, **self.beside}.get("streams")
        return [] if streams is None else refusals(streams.items)

    def sources(self) -> list[dict[str, Any]]:
        """What became of the sources, see `report.sources.by_source`."""
        streams = {self.work: self, **self.beside}.get("streams")
        return [] if streams is None else by_source(streams.items)

    def to_pandas(self, table: str = "items") -> "pandas.DataFrame":
        """The "items", "windows" or "summary" of the runs as a data frame.

        Raises:
            EdgewiseError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise EdgewiseError("to_pandas needs pandas: pip install pandas") from error
        if table == "summary":
            return pandas.DataFrame(self.summary())
        return {"items": self.items, "windows": self.windows}[table].to_pandas()

    @cached_property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """Policies whose records are identical, of all work that was run: they decided alike."""
        found: list[tuple[list[pa.Table], list[str]]] = []
        for policy in self.policies:
            mine = [_of_policy(table, policy) for table in self._tables()]
            for known, names in found:
                if all(one.equals(other) for one, other in zip(mine, known, strict=True)):
                    names.append(policy)
                    break
            else:
                found.append((mine, [policy]))
        return tuple(tuple(names) for _, names in found if len(names) > 1)

    @property
    def digest(self) -> str:
        """Of the records of all runs, whatever their policies are called."""
        found = hashlib.sha256()
        for table in self._tables():
            plain = table.drop_columns(["policy"]).combine_chunks()
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, plain.schema) as stream:
                stream.write_table(plain)
            found.update(sink.getvalue())
        return found.hexdigest()[:16]

    def _tables(self) -> list[pa.Table]:
        """Records of all work that was run."""
        return [table for one in (self, *self.beside.values()) for table in (one.items, one.windows)]

    def save(self, folder: str | Path) -> Path:
        """Write scenario, manifest, Parquet records, summary, figures and report.html.

        Returns:
            The folder.
        Raises:
            RunError: it cannot be written.
        """
        folder = Path(folder)
        records.write_run(
            folder,
            scenario_yaml=dump_scenario(self.scenario),
            manifest={
                "scenario": self.scenario.name,
                "edition": edition(self.scenario),
                "settings": self.settings,
                "work": self.work,
                **({"beside": list(self.beside)} if self.beside else {}),
                "policies": list(self.policies),
                "fixed": dict(self.fixed),
                "seeds": list(self.seeds),
                "version": version("edgewise"),
                "command": self.command,
                "rival": self.rival,
                **({"live": dict(self.live)} if self.live else {}),
                "decided": as_json(self.all_decided),
                "limits": {policy: [one.as_json() for one in found] for policy, found in self.limits.items()},
                "decision_s": {policy: dict(found) for policy, found in self.decision_s.items()},
            },
            items=self.items,
            windows=self.windows,
            summary=self.summary(),
            beside={work: (each.items, each.windows) for work, each in self.beside.items()},
            use=self.use,
        )
        report(folder)
        return folder


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies compared on the same seeds.

    Attributes:
        result: all records.
        rows: each policy against the rival, paired by seed, Holm-corrected.
    """

    result: Result
    rows: "tuple[statistics.PairedComparison, ...]"

    def __str__(self) -> str:
        measure = self.result.measures[0]
        lines = []
        for row in self.rows:
            ends = [] if row.low is None or row.high is None else [row.low, row.high]
            interval = f" [{', '.join(f'{100 * end:+.2f}' for end in ends)}]" if ends else ""
            mean, difference = (
                measure.shown(row.mean),
                f"{100 * row.difference:+.2f}{interval} {measure.unit}",
            )
            lines.append(
                f"{row.policy}: {measure.heading} {mean}, {difference} against {row.rival}: "
                + verdict_in_words(row, measure.unit)
            )
        return "\n".join([*lines, *said_alike(self.result.alike)])


def _of(table: pa.Table, policy: str) -> pa.Table:
    return table.filter(pc.equal(table["policy"], policy))


def _of_policy(table: pa.Table, policy: str) -> pa.Table:
    """Records of a policy, without its name."""
    return _of(table, policy).drop_columns(["policy"])


def said_alike(groups: Iterable[Iterable[str]]) -> list[str]:
    """A sentence for each group of policies that decided alike."""
    return [f"{' and '.join(names)} decided alike: identical records" for names in groups]


def report(folder: str | Path) -> Path:
    """Write figures and report.html of a run folder anew from its records, and return the page.

    Raises:
        RunError: it is no run folder, or cannot be written.
    """
    from edgewise.report import figures, html  # slow to import, and only needed here

    run = records.read_run(folder)
    images = figures.drawn(run)
    figures.save_all(run, folder, images=images)
    page = Path(folder) / "report.html"
    records.write_whole(page, html.render(run, images=images), "report")
    return page


def report_beside(first: str | Path, second: str | Path, page: str | Path | None = None) -> Path:
    """Write a page with two runs side by side, and return it.

    Args:
        page: where; None: beside the first folder, called after both.
    Raises:
        RunError: one is no run folder, or the page cannot be written.
    """
    from edgewise.report import beside  # slow to import, and only needed here

    runs = records.read_run(first), records.read_run(second)
    place = Path(first).parent / f"{runs[0].name}-beside-{runs[1].name}.html" if page is None else Path(page)
    records.write_whole(place, beside.render(*runs), "report")
    return place
