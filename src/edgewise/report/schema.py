"""What the records of a run hold: one schema for every kind of work, simulated and live.

A run has two tables. `items` has one row for each piece of work (a stream, a query of a split model, a
pipeline, a job), `windows` one for each span of time; both begin with the seed and the policy. Every field
carries its description as Arrow metadata, so the Parquet files explain themselves. `WORK` says of each kind
of work what its columns are and by which measures its policies are judged.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

_TYPES = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}
_COMMON = """
seed              int    seed of the run's random draws
policy            str    policy that decided
"""
_SPAN = """
window            int    number of the window, from 0
start_s           float  start of the window, seconds from the start of the run
end_s             float  end of the window, seconds
"""

_STREAMS = """
stream            int    stream, unique in (seed, policy); the same stream under every policy
site              str    access site of the stream
application       str    application that opened it, or source
source            str?   which of the site's sources it is of, as cameras-3; null of a client's
task              str    task it needs
open_s            float  when it opens, seconds from the start of the run
close_s           float  when it closes, seconds; queries are sent in [open_s, close_s)
rate_qps          float  queries per second
size_bytes        float  payload of a query, bytes
deadline_s        float  tolerated end-to-end delay of a query, seconds
min_accuracy      float  least accuracy it accepts, in [0, 1]
worker            str?   worker it was bound to; null when refused
variant           str?   variant of that worker; null when refused
cluster           str?   cluster of that worker; null when refused
reason            str?   why it was refused; null when bound
queries           int    queries it sent: ok + failed + rejected
ok                int    queries answered within the deadline
failed            int    queries sent to a worker and not answered within the deadline
rejected          int    queries of a refused stream
delay_mean_s      float? mean end-to-end delay of the answered queries, seconds; null when none was
delay_max_s       float? largest end-to-end delay of the served queries, seconds; null when none was
"""

_WINDOWS = """
active            str    static policy in force in the window
streams_opened    int    streams that opened in the window
streams_bound     int    of these, bound to a worker
streams_refused   int    of these, refused
queries           int    queries sent in the window: ok + failed + rejected
ok                int    of these, answered within the deadline
failed            int    of these, sent to a worker and not answered within the deadline
rejected          int    of these, from refused streams
"""

_REQUESTS = """
request           int    number of the request in order of arrival
service           str    what is asked for
site              str    where it arrives
station           str?   node, or the cloud's cluster, that it was sent to; null before it was
arrival_s         float  when it arrives, seconds from the start of the run
deadline_s        float  latest time of its end, seconds from the start of the run
end_s             float? when it ended or was dropped; null when it had not at the end of the run
outcome           str    in_time, late, dropped, or waiting: it had not ended
"""

_SERVICE_WINDOWS = """
arrived           int    requests that arrived in the frame
in_time           int    requests done within their deadline in the frame
late              int    requests done after their deadline in the frame
dropped           int    requests dropped in the frame
waiting           int    by how many more requests wait or are worked on at its end than at its start
forwarded_bytes   float  payload sent to the cloud or to nodes of other sites, bytes
local_bytes       float  payload sent to nodes of the own site, bytes
image_bytes       float  image layers pulled, bytes
"""

_PIPELINES = """
pipeline          str    name of the pipeline
arrival_s         float  when it was submitted, seconds from the start of the run
start_s           float? when it first ran; null when it never did
finish_s          float? when it ended; null when it never did
frames            float  frames done
migrations        int    how often its tasks moved while it ran
"""

_PIPELINE_WINDOWS = """
pipelines             int    pipelines submitted
mean_throughput_fps   float  mean over them of frames done / time running; 0 for one that never ran
mean_overall_fps      float  mean over them of frames done / time since submission
mean_waiting_s        float  mean over them of the time from submission to start
unserved              int    pipelines that ended without one whole frame, or never
"""

_QUERIES = """
query             int    number of the query
graph             str    which split model it asks
sent_s            float  when it was sent, seconds from the start of the run
time_s            float? from sending to the answer, seconds; null where it waits for a server that is down
"""

_QUERY_WINDOWS = """
queries           int    queries sent
mean_s            float  mean time from sending to the answer, seconds, without the first tenth
p99_s             float  99 % quantile of these times, seconds
predicted_s       float? their mean by the plan's formula, seconds; null where there is none
link_load         float? share of the run that these tensors took on the busiest link; null if unknown
server_load       float? share of the run in which servers were busy, mean over them; null where not measured
"""

_JOBS = """
job               int    number of the job in order of submission
cores             float  cores that it takes
submitted_s       float  when it is submitted, seconds from the start of the run
earliest_s        float  when it may start at the earliest, seconds
latest_s          float  when it must start at the latest, seconds
duration_s        float  how long it runs, seconds
started_s         float? when it started, first, seconds; null when it never did
ended_s           float? when it was done, seconds; null when it was not by the end of the run
node              str?   where it last ran; null when it never did, and where all nodes are taken for one
suspended_s       float  how long it gave way to other work, seconds
redone_s          float  how long it had run in vain when it was ended to start anew, seconds
"""

_JOB_WINDOWS = """
jobs              int    jobs submitted
started           int    of these, started
ended             int    of these, done by the end of the run
lost              int    of these, not started until their latest start
finished_core_s   float  cores times seconds of the jobs done by their deadline: latest start plus duration
redone_core_s     float  cores times seconds that jobs had run in vain when they were ended to start anew
reward            float? OSDEC's: revenue less weighted delay and violation; null where jobs are on nodes
revenue           float? cores times slots of the jobs that started; null where jobs are on nodes
delay             float  slots from earliest start to start, added up over jobs
violation         float? cores beyond those left over, added up over slots; null where jobs are on nodes
moves             int    how often jobs gave way to other work: suspended, or ended to start anew
"""


def schema(text: str) -> pa.Schema:
    """Of a table that begins with seed and policy: lines of name, type (?: it may be null) and meaning."""
    lines = [line for line in (_COMMON + text).splitlines() if line]
    return pa.schema(
        pa.field(name, _TYPES[kind.rstrip("?")], kind.endswith("?"), {"description": description})
        for name, kind, description in (line.split(maxsplit=2) for line in lines)
    )


class Measure(NamedTuple):
    """A figure of a run's summary.

    Attributes:
        key: in a row of the summary.
        heading: of its column where it is shown.
        scale, digits: how it is shown.
        of: the column of `windows` that it is a share of.
        column: its own column of `windows`; none: `key`.
        share: it lies in 0 … 1, and differences are in points, else in percent of the rival's mean.
        lower_is_better: as of times.
        least: value that there can be.
        published: of a paper's setting alone, so that runs of others have no value; see `measures_of`.
    """

    key: str
    heading: str
    scale: float = 1.0
    digits: int = 2
    of: str = ""
    column: str = ""
    share: bool = False
    lower_is_better: bool = False
    published: bool = False
    least: float = 0.0

    @property
    def most(self) -> float:
        """Value that there can be."""
        return 1.0 if self.share else math.inf

    @property
    def possible(self) -> tuple[float, float]:
        """The least and the greatest value that there can be."""
        return self.least, self.most

    @property
    def unit(self) -> str:
        """Of differences."""
        return "points" if self.share else "%"

    def shown(self, value: float | None, sign: str = "") -> str:
        """The value in the unit of the heading; – where there is none."""
        return "–" if value is None else f"{self.scale * value:{sign},.{self.digits}f}"


class Work(NamedTuple):
    """How the runs of one kind of work are recorded and judged.

    Attributes:
        items, windows: schemas of the two tables.
        item: the column that tells items of a seed and policy apart.
        measures: of its summary; see `measures_of`.
        parts: measures that add up to one; where there are none the first measure is drawn.
        over_time: the two columns of `windows` whose quotient is drawn over time, if any.
        about: what the measures are, for a caption.
    """

    items: pa.Schema
    windows: pa.Schema
    item: str
    measures: tuple[Measure, ...]
    parts: tuple[str, ...] = ()
    over_time: tuple[str, str] | None = None
    about: str = ""


STREAMS: pa.Schema = schema(_STREAMS)
"""One row per stream, seed and policy."""

WINDOWS: pa.Schema = schema(_SPAN + _WINDOWS)
"""One row per window, seed and policy."""

SHARES = ("success", "failed", "rejected")
"""What becomes of queries; the three shares of a summary row add up to one."""


def _share(key: str, heading: str, of: str = "", column: str = "", lower: bool = False) -> Measure:
    return Measure(key, heading, 100.0, of=of, column=column, share=True, lower_is_better=lower)


WORK = {
    "streams": Work(
        STREAMS,
        WINDOWS,
        "stream",
        (
            _share("success", "success %"),
            _share("success_by_stream", "stream %"),
            _share("success_by_application", "app %"),
            _share("failed", "failed %", lower=True),
            _share("rejected", "rejected %", lower=True),
            Measure("queries", "queries", digits=0),
        ),
        SHARES,
        ("ok", "queries"),
        "success: queries answered within the deadline; mean over queries, streams, applications",
    ),
    "services": Work(
        schema(_REQUESTS),
        schema(_SPAN + _SERVICE_WINDOWS),
        "request",
        (
            _share("success", "in time %", "arrived", "in_time"),
            *(_share(key, f"{key} %", "arrived", key, lower=True) for key in ("late", "dropped", "waiting")),
            Measure("forwarded_bytes", "forwarded MB", 1e-6, 0, lower_is_better=True),
            Measure("image_bytes", "images MB", 1e-6, 0, lower_is_better=True),
        ),
        ("success", "late", "dropped", "waiting"),
        ("in_time", "arrived"),
        "in time: requests done within their deadline, by the frame in which they end",
    ),
    "pipelines": Work(
        schema(_PIPELINES),
        schema(_SPAN + _PIPELINE_WINDOWS),
        "pipeline",
        (
            Measure("mean_throughput_fps", "frames/s", digits=3),
            Measure("mean_overall_fps", "since submission", digits=3),
            Measure("mean_waiting_s", "waited s", digits=3, lower_is_better=True),
            Measure("unserved", "unserved", digits=1, lower_is_better=True),
            Measure("pipelines", "pipelines", digits=1),
        ),
        about="frames/s: frames done over the time running, mean over pipelines",
    ),
    "graphs": Work(
        schema(_QUERIES),
        schema(_SPAN + _QUERY_WINDOWS),
        "query",
        (
            Measure("mean_s", "mean ms", 1e3, lower_is_better=True),
            Measure("p99_s", "99 % ms", 1e3, lower_is_better=True),
            Measure("predicted_s", "predicted ms", 1e3),
            Measure("link_load", "link busy %", 100.0, 1, share=True),
            Measure("server_load", "servers busy %", 100.0, 1, share=True),
            Measure("queries", "queries", digits=0),
        ),
        about="from a query's sending to its answer, without the first tenth, which met empty servers",
    ),
    "jobs": Work(
        schema(_JOBS),
        schema(_SPAN + _JOB_WINDOWS),
        "job",
        (
            Measure("reward", "OSDEC's reward", digits=1, published=True, least=-math.inf),
            Measure("finished_core_s", "finished core-s", digits=0),
            *(Measure(key, key, digits=1) for key in ("ended", "started")),
            *(Measure(key, key, digits=1, lower_is_better=True) for key in ("lost", "delay", "moves")),
            Measure("redone_core_s", "redone core-s", digits=0, lower_is_better=True),
            Measure("jobs", "jobs", digits=1),
            Measure("revenue", "core-slots started", digits=1, published=True),
            Measure("violation", "violation", digits=1, lower_is_better=True, published=True),
        ),
        about="finished: of jobs done by their latest start plus duration; redone: run in vain, then anew",
    ),
}
"""By the kind of work, as a scenario names it."""


def measures_of(work: str, rows: Iterable[Mapping[str, Any]]) -> tuple[Measure, ...]:
    """The measures of runs, by the first of which policies are compared.

    Those of a published setting are left out where no run was in it.

    Args:
        work: its kind.
        rows: of the runs' summary.
    """
    known = list(rows)

    def has(measure: Measure) -> bool:
        return any(row[measure.key] is not None for row in known)

    return tuple(each for each in WORK[work].measures if not each.published or has(each))
