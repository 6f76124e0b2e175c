"""Traffic of other systems: lines of access logs, and rates that were measured, read one by one.

A log of nginx or Apache (common or combined) or of Envoy (its default format) gives a `Query` for each line.
What Prometheus answers to a range query, and the text that Triton and others serve as metrics, scraped again
and again into one file, give a `Rate` for each model and span of time. Files may be compressed by gzip, and
logs and scrapes larger than memory. Lines that are neither are counted, not guessed at.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from edgewise.errors import ScenarioError

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_COMBINED = re.compile(rf"(\S+) \S+ .*?\[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-)")
_ENVOY = re.compile(rf"\[([^\]]+)\] {_QUOTED} \d+ \S+ (\d+) (\d+) (\d+) \S+ {_QUOTED}")
_REQUEST = re.compile(r"(?:[A-Z]+ )?(\S+?)(?:\?\S*)?(?: HTTP/\S+)?")
_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?/infer")
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: (-?\d+))?")
_LABEL = re.compile(rf"(\w+)={_QUOTED}")
# Counters of Triton, of which the first that a text has is read.
SUCCESS = ("nv_inference_request_success", "nv_inference_count")


class Query(NamedTuple):
    """One request that was logged.

    Attributes:
        at_s: since 1970, s.
        whole: the log has whole seconds only.
        client: who sent it.
        what: path, or the model in it.
        size_bytes: of the request; None where the log does not say.
    """

    at_s: float
    whole: bool
    client: str
    what: str
    size_bytes: float | None


class Rate(NamedTuple):
    """Requests/s for a model over a span of time.

    Attributes:
        from_s, to_s: since 1970, s; of scrapes without times since the first.
        what: the model, or the labels that tell it apart.
        qps: requests/s.
    """

    from_s: float
    to_s: float
    what: str
    qps: float


@dataclass
class TrafficFile:
    """A file of traffic.

    Attributes:
        file: may end in .gz.
        period_s: between scrapes of a text of metrics that says no times.
        unread: lines that hold no traffic, so far.
        first_unread: the first of them.
    """

    file: Path
    period_s: float = 15.0
    unread: int = 0
    first_unread: str = ""

    def read(self) -> Iterator[Query | Rate]:
        """What the file holds, in its order.

        Raises:
            ScenarioError: it cannot be read, or holds no traffic at all.
        """
        found = 0
        try:
            with self._opened() as lines:
                for each in _reader(self, next(lines, ""))(lines):
                    found += 1
                    yield each
        except (OSError, EOFError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ScenarioError(
                f"{self.file}: cannot be read: {why}; check the path and its rights"
            ) from None
        if not found:
            raise ScenarioError(
                f"{self.file}: holds no traffic; give a log of nginx, Apache or Envoy, JSON of a range "
                f"query of Prometheus, or scraped metrics{self.said()}"
            )

    def said(self) -> str:
        """How many lines were not read, and the first."""
        return (
            f"; {self.unread} lines were not read, the first: {self.first_unread[:120]}"
            if self.unread
            else ""
        )

    def skip(self, line: str) -> None:
        """Count a line that holds no traffic."""
        self.first_unread = self.first_unread or line.strip()
        self.unread += 1

    def _opened(self) -> Any:
        opened = gzip.open if self.file.suffix == ".gz" else open
        return opened(self.file, "rt", encoding="utf-8", errors="replace")


def _reader(source: TrafficFile, first: str) -> Callable[[Iterable[str]], Iterator[Query | Rate]]:
    """What reads a file that begins with a line."""
    read = _metrics if first.startswith("#") or _SAMPLE.fullmatch(first.strip()) else _log
    if first.lstrip().startswith("{"):
        read = _answer
    return lambda rest: read(source, chain([first], rest))


def _log(source: TrafficFile, lines: Iterable[str]) -> Iterator[Query | Rate]:
    for line in lines:
        try:
            found = _query(line)
        except ValueError:
            found = None
        if found is None:
            source.skip(line)
        else:
            yield found


def _query(line: str) -> Query | None:
    """One line of an access log; None where it is none.

    Raises:
        ValueError: its time is none.
    """
    if match := _ENVOY.match(line):
        time, request, received, client = match.group(1, 2, 3, 6)
        at_s = datetime.fromisoformat(time).timestamp()
        return Query(at_s, False, client.split(",")[0], _what(request), float(received))
    if match := _COMBINED.match(line):
        client, time, request = match.group(1, 2, 3)
        at_s = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z").timestamp()
        return Query(at_s, True, client, _what(request), None)
    return None


def _what(request: str) -> str:
    """The model of a request line where it is one of the Open Inference Protocol, else its path."""
    match = _REQUEST.fullmatch(request)
    path = match.group(1) if match else request
    model = _MODEL.match(path)
    return model.group(1) if model else path


def _answer(source: TrafficFile, lines: Iterable[str]) -> Iterator[Query | Rate]:
    """Series of a range query: where a series has a name its values are a counter's, else rates."""
    try:
        answer = json.loads("".join(lines))
        if answer["status"] != "success" or answer["data"]["resultType"] != "matrix":
            raise ValueError(f"is {answer['status']}, {answer['data']['resultType']}; ask by query_range")
        rates = [rate for series in answer["data"]["result"] for rate in _rates(series)]
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ScenarioError(f"{source.file}: is no answer of Prometheus to a range query: {error}") from None
    yield from sorted(rates)


def _rates(series: dict[str, Any]) -> Iterator[Rate]:
    labels, counter = dict(series["metric"]), "__name__" in series["metric"]
    values = [(float(at), float(value)) for at, value in series["values"]]
    for (from_s, before), (to_s, after) in pairwise(values):
        qps = _risen(before, after) / (to_s - from_s) if counter else after
        if isfinite(qps):
            yield Rate(from_s, to_s, _series(labels), qps)


def _risen(before: float, after: float) -> float:
    """What a counter counted between two values; one that fell began anew."""
    return after - before if after >= before else after


def _series(labels: dict[str, str]) -> str:
    """What a series is about: its model, or what else tells it apart."""
    for key in ("model", "model_name", "service", "path"):
        if key in labels:
            return labels[key]
    return ",".join(value for key, value in sorted(labels.items()) if key != "__name__")


def _metrics(source: TrafficFile, lines: Iterable[str]) -> Iterator[Query | Rate]:
    """Scrapes of a text of metrics in one file: a series that comes again begins the next one."""
    before: dict[str, tuple[float, float]] = {}
    chosen, scrapes = "", dict[str, int]()
    for line in lines:
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if match is None:
            if line.strip() and not line.startswith("#"):
                source.skip(line)
            continue
        name, labels, value, at_ms = match.groups()
        chosen = chosen or (name if name in SUCCESS else "")
        if name != chosen:
            continue
        line_of = f"{name}{labels}"
        scrapes[line_of] = scrapes.get(line_of, -1) + 1
        at_s = float(at_ms) / 1e3 if at_ms else scrapes[line_of] * source.period_s
        try:
            count = float(value)
        except ValueError:
            source.skip(line)
            continue
        if line_of in before and at_s > before[line_of][0]:
            from_s, then = before[line_of]
            qps = _risen(then, count) / (at_s - from_s)
            yield Rate(from_s, at_s, _series(dict(_LABEL.findall(labels or ""))), qps)
        before[line_of] = (at_s, count)
