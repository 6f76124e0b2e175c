"""Streams from a file: recorded or hand-written arrivals."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgewise.errors import ScenarioError
from edgewise.model.problems import listed, nearest
from edgewise.model.scenario import Scenario
from edgewise.model.work import Stream
from edgewise.workloads.generate import draw_streams

REQUIRED = ("open_s", "site", "application")
OPTIONAL = ("length_s", "rate_qps", "size_bytes", "deadline_s", "min_accuracy", "priority")


def read_streams_csv(path: str | Path, scenario: Scenario, seed: int = 0) -> list[Stream]:
    """Read arrivals from CSV with a header line.

    Columns: open_s, site, application (names of the scenario); optional length_s, rate_qps,
    size_bytes, deadline_s, min_accuracy, priority. An empty optional cell is drawn from the
    application's range. Rows may be in any order; streams that open at or after duration_s
    are errors.

    Args:
        seed: keys the draws of what the file leaves out.
    Returns:
        Streams in order of open_s, ids 0 … n-1.
    Raises:
        ScenarioError: the file cannot be read, or lists what is wrong, row by row.
    """
    problems: list[str] = []
    streams = []
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            _check_header(reader.fieldnames or [], str(path))
            for number, row in enumerate(reader):
                try:
                    streams.append(_stream(row, number, scenario, seed))
                except ValueError as error:
                    problems.append(f"line {reader.line_num}: {error}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    if problems:
        raise ScenarioError(listed(str(path), problems))
    streams.sort(key=lambda stream: stream.open_s)
    return [replace(stream, id=i) for i, stream in enumerate(streams)]


def _check_header(names: Sequence[str], where: str) -> None:
    problems = [
        f"column {name!r} is missing; add it to the first line" for name in REQUIRED if name not in names
    ]
    for name in names:
        if name not in REQUIRED + OPTIONAL:
            problems.append(f"unknown column {name!r}; {nearest(name, REQUIRED + OPTIONAL)}")
    if problems:
        raise ScenarioError(listed(where, problems))


def _stream(row: Mapping[str, str | None], number: int, scenario: Scenario, seed: int) -> Stream:
    if None in row or None in row.values():  # csv's marks for a row too long or too short
        raise ValueError("has not as many cells as the first line has columns")
    sites = [site.name for site in scenario.topology.sites]
    applications = [application.name for application in scenario.streams.applications]
    site, application = str(row["site"]), str(row["application"])
    if site not in sites:
        raise ValueError(f"site: unknown site {site!r}; {nearest(site, sites)}")
    if application not in applications:
        raise ValueError(
            f"application: unknown application {application!r}; {nearest(application, applications)}"
        )
    open_s = _cell(row, "open_s", zero=True)
    if open_s is None or open_s >= scenario.duration_s:
        raise ValueError(
            f"open_s: {row['open_s']!r} is not in [0, duration_s); use 0 … {scenario.duration_s:g}"
        )
    cells = {name: _cell(row, name, zero=name in ("min_accuracy", "priority")) for name in OPTIONAL}
    given = {name: value for name, value in cells.items() if value is not None}
    where, which = np.array([sites.index(site)]), np.array([applications.index(application)])
    (drawn,) = draw_streams(scenario, seed, where, np.array([number]), which, np.array([open_s]))
    return replace(
        drawn,
        close_s=min(open_s + given["length_s"], scenario.duration_s)
        if "length_s" in given
        else drawn.close_s,
        rate_qps=given.get("rate_qps", drawn.rate_qps),
        size_bytes=given.get("size_bytes", drawn.size_bytes),
        deadline_s=given.get("deadline_s", drawn.deadline_s),
        min_accuracy=given.get("min_accuracy", drawn.min_accuracy),
        priority=int(given.get("priority", drawn.priority)),
    )


def _cell(row: Mapping[str, str | None], name: str, zero: bool) -> float | None:
    """The number in a cell, None when it is empty or the column is absent."""
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if name == "priority" and math.isfinite(value):
        return value
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise ValueError(f"{name}: {text!r} is not a number {'>=' if zero else '>'} 0; correct it")
    return value
