"""What became of pipelines, and of queries of split models."""

from dataclasses import dataclass, field

import numpy as np

from edgewise.arrays import Floats, Ints

DONE = 1e-9  # relative; a pipeline this near its end is at its end


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """What became of one pipeline.

    Attributes:
        name: of the pipeline.
        arrival_s, start_s, finish_s: None: it never started, or never finished.
        frames: done in total.
        migrations: how often its tasks moved while it ran.
    """

    name: str
    arrival_s: float
    start_s: float | None
    finish_s: float | None
    frames: float
    migrations: int

    @property
    def waiting_s(self) -> float | None:
        """From submission to start."""
        return None if self.start_s is None else self.start_s - self.arrival_s

    @property
    def throughput_fps(self) -> float:
        """Frames done / time running; 0 when it never ran."""
        if self.start_s is None or self.finish_s is None:
            return 0.0
        return self.frames / (self.finish_s - self.start_s)

    @property
    def served(self) -> bool:
        """Whether it ended with at least one whole frame done."""
        return self.finish_s is not None and self.frames >= 1.0 - DONE

    @property
    def overall_fps(self) -> float:
        """Frames done / time since submission, waiting included."""
        return 0.0 if self.finish_s is None else self.frames / (self.finish_s - self.arrival_s)


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """The outcome of one run.

    Attributes:
        policy: its name.
        pipelines: one record for each pipeline, in the order given.
        end_s: when nothing was left that could make progress.
        decision_s: wall-clock seconds of each decision; the only field that differs between equal runs.
    """

    policy: str
    pipelines: tuple[PipelineRecord, ...]
    end_s: float
    decision_s: tuple[float, ...] = field(compare=False)

    @property
    def mean_throughput_fps(self) -> float:
        """Mean over all pipelines of frames done / time running; pipelines that never ran count 0."""
        return float(np.mean([pipeline.throughput_fps for pipeline in self.pipelines]))

    @property
    def mean_overall_fps(self) -> float:
        """Mean over all pipelines of frames done / time since submission."""
        return float(np.mean([pipeline.overall_fps for pipeline in self.pipelines]))

    @property
    def mean_waiting_s(self) -> float:
        """Mean over all pipelines; one that never started has waited until the end of the run, at least."""
        waits = [
            self.end_s - pipeline.arrival_s if pipeline.waiting_s is None else pipeline.waiting_s
            for pipeline in self.pipelines
        ]
        return float(np.mean(waits))

    @property
    def unserved(self) -> int:
        """Jobs that nobody served: never started, stood still for ever, or left without a whole frame."""
        return sum(not pipeline.served for pipeline in self.pipelines)


@dataclass(frozen=True, slots=True)
class SplitRun:
    """What became of the queries of a run.

    Attributes:
        job: (Q,) class of each query.
        time_s: (Q,) completion time.
        link_load: of the busiest link, the time that tensors of these queries took over the time of the run.
        server_load: mean of the same over the servers.
    """

    job: Ints
    time_s: Floats
    link_load: float
    server_load: float

    def settled(self, skip: float = 0.1) -> "SplitRun":
        """Without the first part of the queries, which met empty servers."""
        first = int(len(self.job) * skip)
        return SplitRun(self.job[first:], self.time_s[first:], self.link_load, self.server_load)
