"""A job that can run: its model for the scheduler, its code and frames for the processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.jobs import Pipeline, PipelineDescription
from edgewise.workloads.job_files import task_functions


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


def live_job(
    job: Pipeline, description: PipelineDescription, code: str | Path, frames: Sequence[str | Path]
) -> LivePipeline:
    """A job with its code and frames, checked.

    Raises:
        ScenarioError: tasks and functions do not match, or there is no frame.
    """
    names = task_functions(code)
    ids = [name for name, _, _ in description.tasks]
    if len(names) != len(ids):
        raise ScenarioError(
            f"{code}: exports {len(names)} functions for {len(ids)} tasks; write one for each"
        )
    if not frames:
        raise ScenarioError(f"job {job.name!r}: has no frame; give at least one file")
    missing = [str(frame) for frame in frames if not Path(frame).is_file()]
    if missing:
        raise ScenarioError(f"job {job.name!r}: frame {missing[0]} is no file; check the path")
    return LivePipeline(
        job,
        Path(code).resolve(),
        dict(zip(ids, names, strict=True)),
        tuple(Path(frame).resolve() for frame in frames),
    )
