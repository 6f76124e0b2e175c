"""A finding and a criterion make a claim; its status follows and is never chosen.

    holds         the whole interval satisfies the criterion
    fails         the whole interval violates it
    inconclusive  neither: more seeds, or a smaller claim
    not_in_quick  left out of a quick run

Forbidden here: running anything.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from edgewise.report.intervals import bootstrap_interval, mean_interval
from edgewise.report.records import write_whole
from edgewise.report.statistics import PairedComparison

Status = Literal["holds", "fails", "inconclusive", "not_in_quick"]
Method = Literal["as published", "edgewise"]
Setting = Literal["published", "as live"]
ALPHA = 0.05
ENOUGH_TO_CHECK = 10  # values; the bootstrap says little about fewer


@dataclass(frozen=True, slots=True)
class Criterion:
    """What an estimate must satisfy: low <= estimate <= high.

    Raises:
        ValueError: low > high, an end is not a number, or both are infinite.
    """

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low <= self.high or (math.isinf(self.low) and math.isinf(self.high)):
            raise ValueError(f"criterion [{self.low}, {self.high}]: needs low <= high, one of them finite")

    def status(self, low: float, high: float) -> Status:
        """What an interval says."""
        if self.low <= low and high <= self.high:
            return "holds"
        return "fails" if high < self.low or low > self.high else "inconclusive"

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"needs at least {self.low:.6g}"
        if math.isinf(self.low):
            return f"needs at most {self.high:.6g}"
        return f"needs {self.low:.6g} to {self.high:.6g}"


def at_least(threshold: float) -> Criterion:
    """Estimate >= threshold."""
    return Criterion(low=threshold)


def at_most(threshold: float) -> Criterion:
    """Estimate <= threshold."""
    return Criterion(high=threshold)


def within(low: float, high: float) -> Criterion:
    """low <= estimate <= high."""
    return Criterion(low, high)


def better_by(minimum_effect: float = 0.01) -> Criterion:
    """A difference of at least `minimum_effect` > 0 in our favour, in the unit of the difference."""
    if not minimum_effect > 0.0:
        raise ValueError(f"minimum_effect is {minimum_effect}; it must be > 0, for example 0.01")
    return Criterion(low=minimum_effect)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured.

    Attributes:
        estimate: the figure.
        ci: its 95 % interval; None when there is none, as of one seed.
        n: number of seeds; 1 for a figure without randomness.
        check: a second interval that must agree with `ci`, if any.
        p: p of "no difference" corrected over its family, if the figure is a difference.
        detail: what the reader should know.
    """

    estimate: float
    ci: tuple[float, float] | None
    n: int
    check: tuple[float, float] | None = None
    p: float | None = None
    detail: str = ""


def measured(values: ArrayLike, detail: str = "") -> Finding:
    """Mean of independent values, one per seed, with its t-interval, checked by the bootstrap.

    Raises:
        ValueError: values are not a finite vector of one or more.
    """
    t = mean_interval(values)
    if t.low is None or t.high is None:
        return Finding(t.mean, None, t.n, detail=detail)
    check = bootstrap_interval(values) if t.n >= ENOUGH_TO_CHECK else None
    ends = None if check is None or check.low is None or check.high is None else (check.low, check.high)
    return Finding(t.mean, (t.low, t.high), t.n, check=ends, detail=detail)


def compared(row: PairedComparison, detail: str = "") -> Finding:
    """Difference (or relative change) of a policy against its rival, paired by seed."""
    ci = None if row.low is None or row.high is None else (row.low, row.high)
    words = f"{row.policy} {row.mean:.6g} against {row.rival} {row.rival_mean:.6g}"
    return Finding(row.difference, ci, row.n, p=row.p_holm, detail=f"{words}; {detail}" if detail else words)


def exact(value: float, detail: str = "") -> Finding:
    """A figure without randomness: an optimum, a bound, a count."""
    return Finding(value, (value, value), 1, detail=detail)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, what was found, and whether it holds.

    Attributes:
        id: unique within a reproduction.
        statement: what is claimed, in a sentence.
        method: whose method the figure is earned by: one as a paper published it, or one that is edgewise's
            own in any part that may matter: another recipe of training, more actions, other features.
        setting: in which world: as a paper simplifies it (one gateway that sees all, slots, a pool of jobs),
            or as live, with a gateway at each site and jobs on nodes.
        paper: whose claim it is.
        estimate, ci, n: the finding; None and 0 when nothing was measured.
        status: see the module.
        detail: the criterion, and what the reader should know.
    """

    id: str
    statement: str
    method: Method
    setting: Setting
    paper: str
    estimate: float | None
    ci: tuple[float, float] | None
    n: int
    status: Status
    detail: str = ""

    @classmethod
    def of(
        cls,
        id: str,
        statement: str,
        method: Method,
        setting: Setting,
        paper: str,
        finding: Finding,
        criterion: Criterion,
    ) -> "Claim":
        """A claim whose status follows from finding and criterion.

        A bootstrap that says otherwise than the t-interval, or a corrected p of 5 % and more for a
        criterion that excludes 0, makes it inconclusive.

        Raises:
            ValueError: the finding holds a figure that is not finite.
        """
        figures = (finding.estimate, *(finding.ci or ()))
        if not all(map(math.isfinite, figures)):
            raise ValueError(f"claim {id!r}: every figure must be finite, got {figures}")
        status, doubt = _judge(finding, criterion)
        detail = "; ".join(part for part in (str(criterion), doubt, finding.detail) if part)
        figures_of = finding.estimate, finding.ci, finding.n
        return cls(id, statement, method, setting, paper, *figures_of, status, detail)

    @classmethod
    def without_figures(
        cls,
        id: str,
        statement: str,
        method: Method,
        setting: Setting,
        paper: str,
        status: Status,
        detail: str,
    ) -> "Claim":
        """A claim that was not measured."""
        return cls(id, statement, method, setting, paper, None, None, 0, status, detail)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, in the order of the attributes."""
        return asdict(self) | {"ci": None if self.ci is None else list(self.ci)}


def _judge(finding: Finding, criterion: Criterion) -> tuple[Status, str]:
    if finding.ci is None:
        return "inconclusive", "one seed has no interval"
    status = criterion.status(*finding.ci)
    if status == "inconclusive":
        return status, ""
    if finding.check is not None and criterion.status(*finding.check) != status:
        low, high = finding.check
        return "inconclusive", f"the bootstrap interval [{low:.6g}, {high:.6g}] says otherwise"
    excludes_zero = criterion.low > 0.0 or criterion.high < 0.0
    if status == "holds" and excludes_zero and finding.p is not None and finding.p >= ALPHA:
        return "inconclusive", f"p after Holm's correction is {finding.p:.2g}"
    return status, ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a reproduction found.

    Attributes:
        paper: what was reproduced.
        claims: in the order in which they were declared.
        seeds: that were used.
        scenarios: name → SHA-256 of the resolved scenario.
        elapsed_s: wall-clock time.
        command: how to repeat it.
    """

    paper: str
    claims: tuple[Claim, ...]
    seeds: tuple[int, ...]
    scenarios: dict[str, str]
    elapsed_s: float
    command: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "paper": self.paper,
            "claims": [claim.as_dict() for claim in self.claims],
            "seeds": list(self.seeds),
            "elapsed_s": round(self.elapsed_s, 3),
            "command": self.command,
            "scenarios": self.scenarios,
        }

    def write(self, path: str | Path) -> None:
        """Write the report as JSON, whole or not at all.

        Raises:
            RunError: it cannot be written.
        """
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(path, text + "\n", "claims")
