"""What the demo found: shares measured and simulated, in a table, a picture, a page and one sentence."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from edgewise.report.style import new_axes, png
from edgewise.runtime.watch.starving import Watched
from edgewise.sweeps.answer import write_page

KINDS = ("ok", "failed", "rejected")
FILLS = {"ok": "#4c9f70", "failed": "#c8553d", "rejected": "#e0b34c"}
# Measured and simulated shares should not differ by more. Policies whose simulated shares are nearer to each
# other may follow each other either way: so much may come of where their measured shares lie.
TOLERANCE = 0.05
LITTLE = 0.1  # share of waiting that delays no answer so that it matters
NEXT = "edgewise init --out site.yaml"


@dataclass(frozen=True, slots=True)
class PolicyShares:
    """Shares of the queries of one policy's streams, measured or simulated."""

    policy: str
    queries: int
    ok: float
    failed: float
    rejected: float


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Measured beside simulated shares, a policy each in the same order; the first is the naive one.

    Attributes:
        machine: what was seen of the machine while each policy ran.
    """

    measured: Sequence[PolicyShares]
    simulated: Sequence[PolicyShares]
    machine: Mapping[str, Watched]

    @property
    def gaps(self) -> list[float]:
        """Of each policy the largest difference of a measured share from the simulated one."""
        pairs = zip(self.measured, self.simulated, strict=True)
        return [max(abs(getattr(a, kind) - getattr(b, kind)) for kind in KINDS) for a, b in pairs]

    @property
    def same_order(self) -> bool:
        """Whether policies that simulation tells apart follow each other so as measured."""
        return self._ordered(TOLERANCE)

    def _ordered(self, apart: float) -> bool:
        """Whether those whose simulated shares are further apart follow each other so as measured."""
        both = list(zip((one.ok for one in self.measured), (one.ok for one in self.simulated), strict=True))
        return all(a > b for (a, x), (b, y) in permutations(both, 2) if x > y + apart)

    def reasons(self) -> list[str]:
        """Of each policy that is beyond the tolerance: how far, and how its processes fared meanwhile.

        Of all policies, where the order differs.
        """
        said = []
        for one, gap in zip(self.measured, self.gaps, strict=True):
            if gap <= TOLERANCE and self.same_order:
                continue
            seen = self.machine[one.policy]
            apart = f"{one.policy} is {100 * gap:.1f} points from its simulation"
            why = f"its processes waited {100 * seen.waited:.0f} % of the time that they could have run"
            if seen.busy is not None:
                why = f"{seen.busy}; end other programs and try again"
            elif seen.waited < LITTLE:
                why += ", which does not explain it: the simulation is wrong here"
            said.append(f"{apart}: {why}.")
        return said

    def sentence(self) -> str:
        """Which policy serves most, how far ahead of the naive one, and how close both figures are."""
        by_name = {one.policy: one for one in self.simulated}
        best, naive = max(self.measured, key=lambda one: one.ok), self.measured[0]
        points, expected = (
            100 * (one.ok - other.ok)
            for one, other in ((best, naive), (by_name[best.policy], by_name[naive.policy]))
        )
        served = f"{best.policy} answered {100 * best.ok:.1f} % of the queries in time"
        ahead = f", {points:.1f} points more than {naive.policy} (simulated: {expected:.1f})"
        order = (
            "put the policies in the same order" if self._ordered(0.0) else "order the policies differently"
        )
        if self.same_order and not self._ordered(0.0):
            order = f"put those more than {100 * TOLERANCE:.0f} points apart in the same order"
        close = (
            f"measured and simulated shares differ by at most {100 * max(self.gaps):.1f} points and {order}"
        )
        return f"{served}{ahead if best is not naive else ', although it is the naive policy'}; {close}."


def shares_of(policy: str, counts: Sequence[int]) -> PolicyShares:
    """Shares of counts of `KINDS`."""
    total = sum(counts)
    return PolicyShares(policy, total, *(count / max(total, 1) for count in counts))


def rows_of(found: DemoOutcome) -> list[list[str]]:
    """A row for each policy: queries, then of each kind the measured and the simulated share, and the gap."""
    rows = []
    for real, model, gap in zip(found.measured, found.simulated, found.gaps, strict=True):
        cells = [f"{100 * getattr(real, k):.1f} | {100 * getattr(model, k):.1f}" for k in KINDS]
        verdict = "within" if gap <= TOLERANCE else "beyond"
        rows.append([real.policy, f"{real.queries:,}", *cells, f"{100 * gap:.1f}, {verdict}"])
    return rows


HEADINGS = ("policy", "queries", *(f"{kind} %" for kind in KINDS), "points apart")
COLOURED = {"within": "green", "beyond": "yellow"}


def show(out: Console, found: DemoOutcome) -> None:
    """Print the table, and why shares are far from their simulation."""
    out.print("\n[bold]Measured | simulated[/bold]", highlight=False)
    policy, _, *others = HEADINGS
    table = Table(policy, *others, box=SIMPLE_HEAD, pad_edge=False)
    for name, _, *cells, gap in rows_of(found):
        points, _, verdict = gap.partition(", ")
        table.add_row(name, *cells, f"{points}, [{COLOURED[verdict]}]{verdict}[/]")
    out.print(table)
    for reason in found.reasons():
        out.print(f"[yellow]{reason}[/yellow]", highlight=False)


def as_json(found: DemoOutcome, folder: Path) -> dict[str, Any]:
    """Plain values of all that was found."""
    pairs = zip(found.measured, found.simulated, found.gaps, strict=True)
    return {
        "policies": [
            {
                "policy": real.policy,
                "measured": asdict(real),
                "simulated": asdict(model),
                "apart": gap,
                **asdict(found.machine[real.policy]),
            }
            for real, model, gap in pairs
        ],
        "same_order": found.same_order,
        "sentence": found.sentence(),
        "reasons": found.reasons(),
        "folder": str(folder),
    }


def conclude(out: Console, found: DemoOutcome, page: Path) -> None:
    """One sentence, where the report is, and what to do next."""
    out.print(f"[bold]{found.sentence()}[/bold]", highlight=False)
    out.print(f"report: {page}", highlight=False, soft_wrap=True)
    out.print(f"next: {NEXT} describes a site of your own; edgewise up site.yaml runs it", highlight=False)


def figure(live: Sequence[PolicyShares], simulated: Sequence[PolicyShares], file: Path) -> None:
    """Bars of measured and simulated shares, side by side, for each policy."""
    drawing, axes = new_axes(7.0, 3.6, "Queries of the demo: measured (left) and simulated (right)")
    at, width = np.arange(len(live)), 0.36
    for shares, shift, hatch in ((live, -0.2, ""), (simulated, 0.2, "//")):
        base = np.zeros(len(live))
        for kind in KINDS:
            height = np.array([100 * getattr(s, kind) for s in shares])
            axes.bar(at + shift, height, width, base, color=FILLS[kind],
                     hatch=hatch, edgecolor="white", label=kind if not hatch else None)  # fmt: skip
            base += height
    axes.set_xticks(at, [s.policy for s in live])
    axes.set_ylabel("share of the queries, %")
    axes.legend(loc="lower center", ncols=3, frameon=False, bbox_to_anchor=(0.5, -0.32))
    png(drawing, file)


def save(folder: Path, found: DemoOutcome, about: str, command: str, scenario: str) -> Path:
    """Write `shares.csv`, the figure and the page.

    Args:
        about: what was run, in words.
        command: with which it runs again.
        scenario: what was run, as a file says it.
    Returns:
        the page.
    Raises:
        RunError: the page cannot be written.
    """
    with (folder / "shares.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["policy", "source", "queries", *KINDS])
        for source, shares in (("measured", found.measured), ("simulated", found.simulated)):
            rows.writerows([s.policy, source, s.queries, s.ok, s.failed, s.rejected] for s in shares)
    picture, page = folder / "measured-and-simulated.png", folder / "report.html"
    figure(found.measured, found.simulated, picture)
    write_page(
        page,
        picture.read_bytes(),
        kind="demo",
        title="Live beside its simulation",
        caption="Shares of the queries of each policy: measured (plain), and simulated (hatched).",
        facts={"What": about, "Version": version("edgewise"), "Command": command},
        sentences=[found.sentence(), *found.reasons()],
        section="Policies",
        about=f"Measured | simulated; more than {100 * TOLERANCE:.0f} points apart is said above, with why.",
        headings=HEADINGS,
        rows=rows_of(found),
        scenario=scenario,
    )
    return page
