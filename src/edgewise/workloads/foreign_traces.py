"""From traffic of other systems to a scenario with a trace, which `edgewise replay` simulates.

Where the scenario holds streams, what one client asks of one model is a stream until it pauses for `IDLE_S`:
it opens with its first query and has the rate of all. A rate becomes streams of the application's own rate,
as many as it takes, over the span that was measured. Where the scenario holds services, each query is a
request, and a rate gives Poisson arrivals. Clients keep to one site, by a hash of who they are; rates are
shared among all sites.

Files are read once, line by line: what is held is one second of a log and the streams that are open.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import IO, Any, NamedTuple
from zlib import crc32

import numpy as np

from edgewise.config import dump_scenario
from edgewise.errors import ScenarioError
from edgewise.model.grammar.scenario import NEEDS
from edgewise.model.grammar.services import ServiceSpec
from edgewise.model.parsing import parse_scenario
from edgewise.model.problems import nearest
from edgewise.model.scenario import Scenario
from edgewise.workloads.foreign import Query, Rate, TrafficFile
from edgewise.workloads.generate import REQUIRED, SHORTEST_S
from edgewise.workloads.services import COLUMNS as REQUEST_COLUMNS

IDLE_S = 30.0
MOST_NAMES = 100  # that have none in the scenario; a log may have any number


class Imported(NamedTuple):
    """What became of a file of traffic.

    Attributes:
        folder: has scenario.yaml and its trace.
        work, written: streams or requests, and how many.
        duration_s: from the first to the last end.
        left_out: models and paths that the scenario has no name for, and how often each came.
        unread: what is to be said of lines that hold no traffic; "" where there were none.
    """

    folder: Path
    work: str
    written: int
    duration_s: float
    left_out: Mapping[str, int]
    unread: str


@dataclass
class Names:
    """What in a log is what in a scenario.

    Attributes:
        known: applications, or services, by what they are called, by their task, model or variant.
        given: (pattern, name) pairs, the first that fits counts; `*` fits any text.
        left_out: what fits nothing, and how often it came.
    """

    known: Mapping[str, str]
    given: Sequence[tuple[str, str]] = ()
    left_out: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pattern, name in self.given:
            if name not in self.known.values():
                raise ScenarioError(
                    f"--as {pattern}={name}: {nearest(name, sorted(set(self.known.values())))}"
                )

    def of(self, what: str) -> str | None:
        """The application or service that something logged is about."""
        for pattern, name in self.given:
            if fnmatchcase(what, pattern):
                return name
        if (found := self.known.get(what)) is None and (
            what in self.left_out or len(self.left_out) < MOST_NAMES
        ):
            self.left_out[what] = self.left_out.get(what, 0) + 1
        return found


def import_traffic(
    source: TrafficFile, scenario: Scenario, folder: Path, given: Sequence[tuple[str, str]] = ()
) -> Imported:
    """Write a scenario and a trace of what another system was asked.

    Args:
        source: the file.
        scenario: places, models and applications or services; where it holds both, services.
        folder: to write to; it is made.
        given: patterns of models or paths, and the application or service that each stands for.
    Raises:
        ScenarioError: the file holds no traffic, or none that the scenario has a name for.
    """
    kind: type[_Requests | _Streams] = _Streams if scenario.services is None else _Requests
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / kind.FILE).open("w", encoding="utf-8", newline="") as file:
        made = kind(scenario, given, file)
        for each in _spread(source.read()):
            made.take(each)
        made.end()
    left_out = made.names.left_out
    if not made.rows:
        came = ", ".join(f"{what} ({count})" for what, count in list(left_out.items())[:5])
        known = ", ".join(sorted(set(made.names.known.values())))
        raise ScenarioError(
            f"{source.file}: nothing in it has a name in the scenario: {came}; "
            f"say --as '/path*=NAME', of {known}"
        )
    data = scenario.spec.model_dump(mode="json", exclude_none=True, exclude=set(NEEDS)) | made.section() | {
        "name": f"{scenario.name}-imported", "duration_s": made.duration_s, "timeline": [],
        "window_s": min(scenario.window_s, made.duration_s),
        "description": f"{made.rows} {kind.WORK} of {source.file.name}.",
    }  # fmt: skip
    (folder / "scenario.yaml").write_text(dump_scenario(parse_scenario(data, "imported traffic")), "utf-8")
    return Imported(folder, kind.WORK, made.rows, made.duration_s, left_out, source.said().lstrip("; "))


def _spread(found: Iterable[Query | Rate]) -> Iterator[Query | Rate]:
    """The same, with queries that a log has in one second spread evenly over it."""
    for whole_s, together in groupby(
        found, lambda each: each.at_s if isinstance(each, Query) and each.whole else None
    ):
        if whole_s is None:
            yield from together
            continue
        queries = [each for each in together if isinstance(each, Query)]
        for k, query in enumerate(queries):
            yield query._replace(at_s=whole_s + (k + 0.5) / len(queries))


class _Trace:
    """Writes a trace while traffic is read; times count from the first that is taken.

    Attributes:
        rows: written so far.
        end_s: of the last of them.
    """

    WORK = FILE = ""
    COLUMNS: Sequence[str] = ()

    def __init__(self, names: Names, scenario: Scenario, file: IO[str]) -> None:
        self.names, self.scenario, self.rows, self.end_s = names, scenario, 0, 0.0
        self.sites = [site.name for site in scenario.topology.sites]
        self._began_s: float | None = None
        self._writer = csv.writer(file)
        self._writer.writerow(self.COLUMNS)
        self._carried: dict[str, float] = {}

    def since_s(self, at_s: float) -> float:
        """Since the first; logs are written as requests end, so one may have begun before it."""
        self._began_s = at_s if self._began_s is None else self._began_s
        return max(0.0, at_s - self._began_s)

    def site_of(self, client: str) -> str:
        """Where a client enters, always the same."""
        return self.sites[crc32(client.encode()) % len(self.sites)]

    def whole(self, name: str, amount: float) -> int:
        """An amount in whole numbers; what is left over counts the next time."""
        total = self._carried.get(name, 0.0) + amount
        self._carried[name] = total - math.floor(total + 1e-9)
        return math.floor(total + 1e-9)

    def write(self, end_s: float, *cells: Any) -> None:
        """One row, which ends at a time."""
        self._writer.writerow(cells)
        self.rows += 1
        self.end_s = max(self.end_s, end_s)

    @property
    def duration_s(self) -> float:
        """Of the scenario: until the last end."""
        return round(max(self.end_s, 1.0) + SHORTEST_S, 6)


class _Open(NamedTuple):
    """A stream that goes on: its first and last query, how many, and their bytes where they are known."""

    first_s: float
    last_s: float
    queries: int
    size_bytes: float | None


class _Streams(_Trace):
    """Streams: of a log one for each client and application, until it pauses."""

    WORK, FILE = "streams", "streams.csv"
    COLUMNS = (*REQUIRED, "length_s", "rate_qps", "size_bytes")

    def __init__(self, scenario: Scenario, given: Sequence[tuple[str, str]], file: IO[str]) -> None:
        applications = scenario.streams.applications
        tasks = [each.task for each in applications]
        known = {each.task: each.name for each in applications if tasks.count(each.task) == 1}
        super().__init__(
            Names(known | {each.name: each.name for each in applications}, given), scenario, file
        )
        self._rate_qps = {each.name: sum(each.rate_qps) / 2 for each in applications}
        self._open: dict[tuple[str, str], _Open] = {}
        self._looked_s = 0.0

    def take(self, each: Query | Rate) -> None:
        """One query, or one rate."""
        if (name := self.names.of(each.what)) is None:
            return
        if isinstance(each, Rate):
            return self._rate(name, each)
        at_s, key = self.since_s(each.at_s), (each.client, name)
        if at_s > self._looked_s + IDLE_S:
            self._close(at_s - IDLE_S)
            self._looked_s = at_s
        before = self._open.get(key)
        if before is not None and at_s > before.last_s + IDLE_S:
            self._ended(key, self._open.pop(key))
            before = None
        first_s, last_s, queries, size_bytes = before or _Open(at_s, at_s, 0, each.size_bytes)
        size = max(each.size_bytes or 0.0, size_bytes or 0.0) or None
        self._open[key] = _Open(min(first_s, at_s), max(last_s, at_s), queries + 1, size)

    def _rate(self, name: str, rate: Rate) -> None:
        """As many streams of the application's rate as come nearest, over the span."""
        if rate.qps <= 0.0:
            return
        opens_s, length_s = self.since_s(rate.from_s), rate.to_s - rate.from_s
        count = max(1, round(rate.qps / self._rate_qps[name]))
        for k in range(count):
            figures = round(length_s, 6), repr(rate.qps / count), ""
            self.write(opens_s + length_s, round(opens_s, 6), self.sites[k % len(self.sites)], name, *figures)

    def _close(self, before_s: float) -> None:
        for key in [key for key, each in self._open.items() if each.last_s < before_s]:
            self._ended(key, self._open.pop(key))

    def _ended(self, key: tuple[str, str], found: _Open) -> None:
        """A stream whose rate times its length are its queries; a single one has the application's rate."""
        client, name = key
        gaps, span_s = found.queries - 1, max(found.last_s - found.first_s, SHORTEST_S)
        rate_qps = gaps / span_s if gaps else self._rate_qps[name]
        length_s = found.queries / rate_qps
        figures = round(length_s, 6), repr(rate_qps), found.size_bytes or ""
        self.write(found.first_s + length_s, round(found.first_s, 6), self.site_of(client), name, *figures)

    def end(self) -> None:
        """All streams that are open end."""
        self._close(math.inf)

    def section(self) -> dict[str, Any]:
        """Of the scenario: its applications, and how often streams came."""
        assert self.scenario.spec.streams is not None, "who asks has streams"
        arrivals = {"clients_per_min": self.rows * 60.0 / self.duration_s / len(self.sites)}
        streams = self.scenario.spec.streams.model_dump(mode="json", exclude_none=True, exclude={"sources"})
        return {"streams": streams | {"arrivals": arrivals}}


class _Requests(_Trace):
    """Requests of services: of a log its queries, of rates Poisson arrivals."""

    WORK, FILE, COLUMNS = "requests", "requests.csv", REQUEST_COLUMNS

    def __init__(self, scenario: Scenario, given: Sequence[tuple[str, str]], file: IO[str]) -> None:
        self._services = {
            each.variant: each for each in scenario.served.offered if isinstance(each, ServiceSpec)
        }
        if not self._services:
            raise ScenarioError("services.offered: none is a variant of the catalog, whose time can be told")
        variants = [scenario.catalog.variant(name) for name in self._services]
        self._took_s = {
            each.name: (each.profile.delay_s(each.largest_bytes), each.largest_bytes) for each in variants
        }
        models = [each.model for each in variants]
        known = {each.model: each.name for each in variants if models.count(each.model) == 1}
        super().__init__(Names(known | {name: name for name in self._services}, given), scenario, file)
        self._draws = np.random.Generator(np.random.Philox(0))

    def take(self, each: Query | Rate) -> None:
        """One query, or one rate."""
        if (name := self.names.of(each.what)) is None:
            return
        if isinstance(each, Query):
            return self._request(self.since_s(each.at_s), self.site_of(each.client), name, each.size_bytes)
        begins_s, length_s = self.since_s(each.from_s), each.to_s - each.from_s
        came = self._draws.random(self.whole(name, each.qps * length_s))
        for k, share in enumerate(np.sort(came).tolist()):
            self._request(begins_s + share * length_s, self.sites[k % len(self.sites)], name, None)

    def _request(self, at_s: float, site: str, name: str, size_bytes: float | None) -> None:
        service_s, largest_bytes = self._took_s[name]
        deadline_s = self._services[name].deadline_s
        self.write(at_s, round(at_s, 6), site, name, deadline_s, service_s, size_bytes or largest_bytes)

    def end(self) -> None:
        """Nothing is open."""

    @property
    def duration_s(self) -> float:
        """Whole frames, which are simulated."""
        frame_s = self.scenario.served.frame_s
        return math.ceil((self.end_s + SHORTEST_S) / frame_s) * frame_s

    def section(self) -> dict[str, Any]:
        """Of the scenario: its services, asked as the trace says."""
        services = self.scenario.served.model_dump(mode="json", exclude_none=True)
        return {"services": services | {"requests": {"file": self.FILE}}}
