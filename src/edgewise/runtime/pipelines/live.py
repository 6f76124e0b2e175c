"""A job that can run: its model for the scheduler, its code and frames for the processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import Pipeline
from edgewise.workloads.pipeline_profiler import functions_of


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """What a session needs of a job.

    Attributes:
        job: tasks, edges, source; from the profiler.
        code: Python file with a function for each task.
        functions: task name → function name.
        frames: files that the source sends in turn.
    """

    job: Pipeline
    code: Path
    functions: dict[str, str]
    frames: tuple[Path, ...]


def live_job(job: Pipeline, spec: PipelineSpec) -> LivePipeline:
    """A pipeline with its code and the files that its source sends, checked.

    Raises:
        ScenarioError: tasks and functions do not match, or there is no file to send.
    """
    functions = functions_of(spec)
    if not spec.inputs:
        raise ScenarioError(f"pipeline {spec.name!r}: inputs is empty; name a file that its source sends")
    missing = [frame for frame in spec.inputs if not Path(frame).is_file()]
    if missing:
        raise ScenarioError(f"pipeline {spec.name!r}: inputs: {missing[0]} is no file; check the path")
    frames = tuple(Path(frame).resolve() for frame in spec.inputs)
    return LivePipeline(job, Path(spec.code or "").resolve(), functions, frames)
