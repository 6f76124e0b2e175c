"""Several trainings of a method at once: interquartile means and performance profiles (Agarwal et al. 2021).

A method is trained a few times, and each training is tried on the same worlds: scores are a table of
(trainings, worlds), ratios to a baseline. A mean hides one training that failed, and is carried by one that
was lucky; the interquartile mean leaves out the quarter at each end, and a profile shows all. What another
set of trainings might have come to is what resampling whole trainings says. They are so few that every
resample is gone through, so nothing is drawn.
"""

import itertools
from collections.abc import Mapping
from functools import cache

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import t as student, trim_mean

from edgewise.arrays import Floats, Ints
from edgewise_studies.claims import Finding, measured
from edgewise_studies.run import chart

MOST = 6  # trainings: 6^6 resamples
STEPS = 200
ENDS = (0.025, 0.975)


def resamples(trainings: int) -> Ints:
    """(N^N, N) every draw of N trainings out of N, with replacement.

    Raises:
        ValueError: there are too many to go through all.
    """
    if not 1 <= trainings <= MOST:
        raise ValueError(f"trainings is {trainings}; it must be 1 to {MOST}")
    return np.array(list(itertools.product(range(trainings), repeat=trainings)))


@cache
def _alike(trainings: int) -> tuple[Ints, Ints]:
    """`resamples` of which none has the trainings of another in another order, and how often each comes."""
    drawn, times = np.unique(np.sort(resamples(trainings)), axis=0, return_counts=True)
    return drawn, times


def interquartile_mean(scores: Floats, detail: str = "") -> Finding:
    """Mean of the middle half of all scores; its interval over the trainings; none of a single one.

    Args:
        scores: (trainings, worlds).
    """
    estimate, n = float(trim_mean(scores.ravel(), 0.25)), len(scores)
    if n == 1:
        return Finding(estimate, None, 1, detail=detail)
    alike, times = _alike(n)
    found = trim_mean(scores[alike].reshape(len(alike), -1), 0.25, axis=1)
    low, high = np.quantile(np.repeat(found, times), ENDS)
    return Finding(estimate, (float(low), float(high)), n, detail=detail)


def crossed(gains: Floats, detail: str = "") -> Finding:
    """Mean of (trainings, worlds) values, with an interval over both: other trainings, and other worlds.

    se² = s²_trainings / trainings + s²_worlds / worlds, of the means of rows and of columns

    What both have in common is counted twice, so it errs to the wide side; degrees of freedom are
    Satterthwaite's (1946). None of a single training or world.
    """
    parts, free = [], []
    for means in (gains.mean(axis=1), gains.mean(axis=0)):
        parts.append(float(means.var(ddof=1)) / means.size if means.size > 1 else np.nan)
        free.append(means.size - 1)
    square, estimate = sum(parts), float(gains.mean())
    if np.isnan(square):
        return Finding(estimate, None, len(gains), detail=detail)
    within = sum(part**2 / each for part, each in zip(parts, free, strict=True))
    half = float(student.ppf(0.975, square**2 / within) * np.sqrt(square)) if square > 0.0 else 0.0
    return Finding(estimate, (estimate - half, estimate + half), len(gains), detail=detail)


def gained(gains: Floats, detail: str = "") -> Finding:
    """`crossed` of several trainings; of one alone, as a quick run has, over the worlds."""
    return crossed(gains, detail) if len(gains) > 1 else measured(gains[0], detail)


def profile(scores: Floats, levels: Floats) -> tuple[Floats, Floats, Floats]:
    """(levels,) share of all scores above each level, and its interval over the trainings."""
    above = (scores[:, :, None] > levels).mean(axis=1)
    low, high = np.quantile(above[resamples(len(scores))].mean(axis=1), ENDS, axis=0)
    return above.mean(axis=0), low, high


def interquartile_figure(scores: Mapping[str, Floats], of: str) -> Figure:
    """The interquartile mean of each method, with its interval over the trainings."""
    return interval_figure({name: interquartile_mean(found) for name, found in scores.items()}, of)


def interval_figure(found: Mapping[str, Finding], of: str) -> Figure:
    """Estimates with their intervals, a row each."""
    title = "Interquartile mean, with 95 % intervals over trainings"
    with chart(7.5, 0.5 + 0.4 * len(found) + 1.0, title, of) as (figure, axes):
        for row, one in enumerate(found.values()):
            low, high = one.ci or (one.estimate, one.estimate)
            axes.errorbar(
                [one.estimate], [row], xerr=[[one.estimate - low], [high - one.estimate]], fmt="o", capsize=4
            )
        axes.set_yticks(range(len(found)), list(found))
        axes.invert_yaxis()
    return figure


def profile_figure(scores: Mapping[str, Floats], of: str) -> Figure:
    """The share of worlds and trainings above each level, with 95 % bands over the trainings."""
    every = np.concatenate([found.ravel() for found in scores.values()])
    levels = np.linspace(float(np.quantile(every, 0.01)), float(np.quantile(every, 0.99)), STEPS)
    title = "Performance profiles, with 95 % bands over the trainings"
    with chart(7.5, 4.2, title, of, "share of worlds and trainings above", columns=4) as (figure, axes):
        for name, found in scores.items():
            share, low, high = profile(found, levels)
            (line,) = axes.plot(levels, share, label=name)
            axes.fill_between(levels, low, high, color=line.get_color(), alpha=0.15, lw=0)
    return figure


def gains_figure(rows: Mapping[str, tuple[Floats, tuple[float, float] | None]], title: str) -> Figure:
    """In points, a dot for each training of a row, and their mean with its interval, cut at the edges.

    Args:
        rows: name → shares that each training is ahead by, and the interval of their mean if there is one.
    """
    with chart(7.5, 1.5 + 0.3 * len(rows), title, "points; a dot is a training") as (figure, axes):
        for row, (gains, ci) in enumerate(rows.values()):
            mean = 100.0 * float(np.mean(gains))
            low, high = (100.0 * end for end in ci) if ci else (mean, mean)
            axes.plot(100.0 * gains, [row] * len(gains), "o", color="#9FA8DA")
            axes.errorbar([mean], [row], xerr=[[mean - low], [high - mean]], fmt="|", color="#3F51B5", ms=14)
        axes.axvline(0.0, color="black", linewidth=0.8)
        every = 100.0 * np.concatenate([gains for gains, _ in rows.values()])
        axes.set_xlim(every.min() - 3.0, max(float(every.max()), 0.0) + 3.0)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
    return figure
