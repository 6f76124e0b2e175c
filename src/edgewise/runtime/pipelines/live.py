"""A pipeline that can run: what the profiler says of it, its code, and the files that its source sends."""

from dataclasses import dataclass, field
from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.pipelines import Pipeline
from edgewise.workloads.task_code import functions_of


@dataclass(frozen=True, slots=True)
class LivePipeline:
    """What a session needs of a pipeline.

    Attributes:
        pipeline: tasks, edges, source; from the profiler.
        code: path of a Python file with a function for each task; None: stand-ins take the time and send the
            bytes that the pipeline says.
        functions: task name → function name.
        frames: files that the source sends in turn.
    """

    pipeline: Pipeline
    code: str | None = None
    functions: dict[str, str] = field(default_factory=dict)
    frames: tuple[str, ...] = ()


def live_pipeline(pipeline: Pipeline, spec: PipelineSpec) -> LivePipeline:
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
    frames = tuple(str(Path(frame).resolve()) for frame in spec.inputs)
    return LivePipeline(pipeline, str(Path(spec.code or "").resolve()), functions, frames)
