"""Sources: streams that stay, such as cameras. Where they are, when they send, and what keys their draws.

Forbidden here: I/O.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgewise.model.grammar.sources import DAY_H, SourceSpec, Span
from edgewise.model.kinds import places_named
from edgewise.model.problems import Problems, nearest, unique
from edgewise.model.topology import Catalog, Topology

HOUR_S = 3600.0
DAY_S = DAY_H * HOUR_S


@dataclass(frozen=True, slots=True)
class Source:
    """`count` equal sources at each of their sites.

    Attributes:
        sites: indices.
        hours: spans of the day in which they send; none: always.
        others: as `SourceSpec` says.
    """

    name: str
    count: int
    sites: tuple[int, ...]
    task: str
    rate_qps: float
    size_bytes: float
    deadline_s: float
    min_accuracy: float = 0.0
    priority: int = 0
    answer_bytes: float = 0.0
    hours: tuple[Span, ...] = ()

    def openings_s(self, begins_at_s: float, duration_s: float) -> list[Span]:
        """When each of them opens and closes in a run, in order.

        Args:
            begins_at_s: time of the day at which the run begins.
        """
        if not self.hours:
            return [(0.0, duration_s)]
        days = range(-1, math.ceil((begins_at_s + duration_s) / DAY_S) + 1)
        midnights_s = [day * DAY_S - begins_at_s for day in days]
        spans = [
            (at_s + HOUR_S * begin, at_s + HOUR_S * _after(begin, end))
            for at_s in midnights_s
            for begin, end in self.hours
        ]
        inside = sorted((max(a, 0.0), min(b, duration_s)) for a, b in spans if b > 0.0 and a < duration_s)
        joined: list[Span] = []
        for a, b in inside:  # hours that meet, as [22, 24] and [0, 6], are one opening
            if joined and a <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
            else:
                joined.append((a, b))
        return joined

    def open_share(self, begins_at_s: float, duration_s: float) -> float:
        """Share of a run in which they send."""
        return sum(b - a for a, b in self.openings_s(begins_at_s, duration_s)) / duration_s


def _after(begin: float, end: float) -> float:
    """The end of a span, counted from the day it begins on."""
    return end if end > begin else end + DAY_H


def draws_as(source: str, site: str, number: int, opening: int) -> int:
    """What keys the draws of one opening of a source: names, so that nothing beside it moves them.

    Above all ids of clients' streams.
    """
    words = f"{source}\n{site}\n{number}\n{opening}".encode()
    return 1 << 62 | int.from_bytes(hashlib.sha256(words).digest()[:8], "big") >> 2


def build_sources(
    specs: Sequence[SourceSpec], applications: Sequence[str], catalog: Catalog, topology: Topology,
    problems: Problems,
) -> tuple[Source, ...]:  # fmt: skip
    """The sources of a checked form.

    Problems: unknown sites, tasks without a model, names given twice.
    """
    unique("streams.sources", [spec.name for spec in specs], problems)
    tasks, index = [model.task for model in catalog.models], {s.name: i for i, s in enumerate(topology.sites)}
    found = []
    for i, spec in enumerate(specs):
        where = f"streams.sources[{i}]"
        if spec.name in applications:
            problems.append(f"{where}.name: an application is called {spec.name!r}, too; rename one")
        if spec.task not in tasks:
            hint = nearest(spec.task, tasks)
            problems.append(f"{where}.task: no model has task {spec.task!r}; {hint}")
        sites = [
            index[site.name]
            for name in spec.site
            for site in places_named(f"{where}.site", "site", name, topology.sites, problems, ("*",))
        ]
        found.append(
            Source(
                spec.name, spec.count, tuple(sorted(set(sites))), spec.task, spec.rate_qps, spec.size_bytes,
                spec.deadline_s, spec.min_accuracy, spec.priority, spec.answer_bytes, spec.hours,
            )
        )  # fmt: skip
    return tuple(found)
