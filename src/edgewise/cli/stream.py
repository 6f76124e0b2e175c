"""`edgewise stream`: pipelines of a scenario on real sockets, measured beside the plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise import policies
from edgewise.cli.extras import extra
from edgewise.cli.notes import note
from edgewise.config import load_scenario, parse_setting
from edgewise.errors import EdgewiseError
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.network import Network, network_of
from edgewise.model.pipelines import pipeline_of
from edgewise.model.scenario import Scenario
from edgewise.model.sections import not_run

if TYPE_CHECKING:
    from edgewise.runtime.pipelines.live import PipelineRates

app = typer.Typer(
    help="Pipelines on a test bed of real sockets.",
    no_args_is_help=True,
    epilog="Example: edgewise stream read-text --backend local",
)
out = Console()
err = Console(stderr=True)

BackendOption = Annotated[
    str, typer.Option(help="netns: namespaces, real shaping and routing, needs root. local: paced senders.")
]
PolicyOption = Annotated[str, typer.Option(help="A placement policy: lr, br, tp, otfs, otfa, joint.")]
SecondsOption = Annotated[float, typer.Option(help="How long to measure.", min=1, max=3600)]
StateOption = Annotated[Path, typer.Option(help="Folder where jobs and what is seen of them are kept.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Change the scenario, as pipelines.0.count=5; repeatable.")
]
STATE = Path("runs/stream")
DATABASE = "streams.db"


@app.command(epilog="Example: edgewise stream run town.yaml --backend local --policy tp")
def run(
    scenario: Annotated[str, typer.Argument(help="A scenario file with pipelines.")],
    backend: BackendOption = "netns",
    policy: PolicyOption = "otfa",
    seconds: Annotated[
        float | None,
        typer.Option(help="How long to measure; by default the scenario's duration_s.", min=1, max=3600),
    ] = None,
    changes: SetOption = None,
    state: StateOption = STATE,
) -> None:
    """Profile a scenario's pipelines here, place them, run them on a test bed, and measure them."""
    with extra("place", "stream"):
        from edgewise.runtime.pipelines.live import live_job
        from edgewise.runtime.pipelines.meta import MetaStore
        from edgewise.runtime.pipelines.session import PipelineSession
        from edgewise.runtime.testbeds import open_backend

    loaded = load_scenario(scenario, dict(parse_setting(change) for change in changes or []))
    note(not_run(loaded.spec, ("pipelines",), "edgewise stream run"))
    written, nodes, chosen = _written(loaded), network_of(loaded), policies.load("place", policy)
    seconds = loaded.duration_s if seconds is None else seconds
    with err.status("profiling each task on one processor"):
        found = [_profiled(spec, float(nodes.speed_ops.max())) for spec in written]
    lives = [live_job(pipeline_of(spec), spec) for spec, _ in found]
    meta = MetaStore(state / DATABASE)
    meta.end_all()
    processes = sum(len(spec.tasks) + 1 for spec in written)
    with (
        err.status(f"{backend}: starting {processes} processes on {len(nodes.names)} nodes") as status,
        PipelineSession(open_backend(backend, nodes), chosen, meta=meta) as session,
    ):
        session.submit(lives)
        status.update(f"measuring for {seconds:g} s")
        rates = session.measure(seconds, settle_s=min(seconds, 3.0))
    _show_all(rates, nodes, f"{policy} on {backend}", {spec.name: times for spec, times in found})


def _show_all(
    rates: Sequence[PipelineRates], nodes: Network, title: str, alone_s: Mapping[str, Mapping[str, float]]
) -> None:
    for each in rates:
        _show(each, nodes.names, nodes.ends.tolist(), title, alone_s[each.name])
    if waiting := alone_s.keys() - {each.name for each in rates}:
        names = ", ".join(sorted(waiting))
        raise EdgewiseError(f"pipeline {names}: {title} finds no room; give nodes more memory_bytes")


def _written(scenario: Scenario) -> list[PipelineSpec]:
    """The pipelines; all must be written out, with code and something to send."""
    written = []
    for i, spec in enumerate(scenario.spec.pipelines or ()):
        where = f"scenario {scenario.name!r}: pipelines[{i}]"
        if not isinstance(spec, PipelineSpec):
            raise EdgewiseError(
                f"{where}.generate: {spec.generate!r} has no code that could run; write the pipeline "
                "out, or simulate it: edgewise simulate"
            )
        if spec.code is None or not spec.inputs:
            missing = "inputs" if spec.code else "code"
            raise EdgewiseError(f"{where}.{missing}: is missing; a test bed needs it, add it")
        written.append(spec)
    if any(spec.arrive_s for spec in written):
        err.print("note: on a test bed all pipelines start at once, whatever arrive_s says", markup=False)
    return written


def _profiled(spec: PipelineSpec, speed_ops: float) -> tuple[PipelineSpec, dict[str, float]]:
    """The pipeline with all figures, and the time of each task on the fastest node, which is this machine."""
    from edgewise.workloads.pipeline_profiler import profile_pipeline, profiled

    frame = Path(spec.inputs[0])
    sample = _bytes(spec.name, frame)
    _compare_sizes(frame, len(sample), spec.input_bytes)
    if any(None in (task.work_ops, task.output_bytes) for task in spec.tasks):
        spec = profiled(spec, profile_pipeline(spec, sample, {"here": 1})["here"], speed_ops)
    return spec, {task.name: (task.work_ops or 0.0) / speed_ops for task in spec.tasks}


def _compare_sizes(frame: Path, bytes_: int, planned_bytes: float) -> None:
    """Say that the plan is for frames of another size, where they differ by more than 5 %."""
    if abs(bytes_ - planned_bytes) > 0.05 * planned_bytes:
        note = f"{frame} has {bytes_:,} bytes, input_bytes of the pipeline says {planned_bytes:,.0f}"
        err.print(f"note: {note}: frames/s will differ from the plan", markup=False, soft_wrap=True)


@app.command(epilog="Example: sudo edgewise stream resume --policy joint")
def resume(
    backend: BackendOption = "netns",
    policy: PolicyOption = "otfa",
    seconds: SecondsOption = 10.0,
    state: StateOption = STATE,
) -> None:
    """Take up the jobs of a run that was killed, with the task times it had measured."""
    with extra("place", "stream"):
        from edgewise.runtime.pipelines.meta import MetaStore
        from edgewise.runtime.pipelines.session import PipelineSession
        from edgewise.runtime.testbeds import open_backend

    meta = MetaStore(_database(state))
    if not meta.unfinished():
        out.print(f"{state}: no job is left to take up")
        return
    nodes, chosen = meta.network(), policies.load("place", policy)  # before namespaces are made
    with PipelineSession(open_backend(backend, nodes), chosen, meta=meta) as session:
        names = session.resume()
        err.print(f"taken up: {', '.join(names)}; measuring for {seconds:g} s")
        rates = session.measure(seconds, settle_s=min(seconds, 3.0))
    for found in rates:
        _show(found, nodes.names, nodes.ends.tolist(), f"{policy} on {backend}")


@app.command(epilog="Example: edgewise stream status")
def status(state: StateOption = STATE) -> None:
    """Show what is known of nodes, links, jobs, tasks and flows; also while a run goes on."""
    from edgewise.runtime.pipelines.meta import MetaStore

    meta = MetaStore(_database(state))
    nodes = Table("node", "free MB", "tasks", "busy", "seen s ago", box=None)
    now_s = time.time()
    for node in meta.nodes():
        nodes.add_row(node.name, f"{node.free_bytes / 1e6:.0f}", str(node.tasks), f"{node.busy:.2f}",
                      f"{now_s - node.seen_s:.0f}")  # fmt: skip
    links = Table("link", "state", "bandwidth Mbit/s", "carries Mbit/s", box=None)
    for link in meta.links():
        links.add_row(f"{link.one}-{link.other}", "up" if link.up else "down",
                      f"{link.bandwidth_bps / 1e6:.3f}", f"{link.rate_bps / 1e6:.3f}")  # fmt: skip
    out.print(nodes, links, sep="\n\n")
    for job in meta.jobs():
        out.print(f"\njob {job.number} [bold]{escape(job.name)}[/bold]: {job.state}")
        for task in meta.tasks(job.number):
            out.print(f"  {task.name} on {task.node}: {task.frames} frames, {1e3 * task.time_s:.1f} ms each")
        for flow in meta.flows(job.number):
            out.print(f"  {flow.edge} over {flow.links}: {flow.rate_bps / 1e6:.3f} Mbit/s of "
                      f"{flow.allowed_bps / 1e6:.3f}")  # fmt: skip


@app.command(name="read-text", epilog="Example: sudo edgewise stream read-text --backend netns --policy otfa")
def read_text(
    backend: BackendOption = "netns",
    policy: PolicyOption = "otfa",
    seconds: SecondsOption = 10.0,
    state: StateOption = STATE,
    folder: Annotated[Path, typer.Option("--out", help="Where scenario and frames go.")] = Path(
        "runs/read-text"
    ),
) -> None:
    """Read text on frames: detect, classify, recognise with real networks, spread over five nodes."""
    with extra("demo", "read-text"):
        from edgewise.demo import reading
    folder.mkdir(parents=True, exist_ok=True)
    frames = []
    for i, signs in enumerate(reading.SIGNS):
        frames.append(folder / f"frame{i}.bmp")
        frames[-1].write_bytes(reading.frame(signs))
    file = folder / "read-text.yaml"
    file.write_text(yaml.safe_dump(reading.scenario(frames), sort_keys=False))
    lines = reading.recognise(reading.classify(reading.detect(frames[0].read_bytes())[1])[1])[1]
    out.print(f"first frame reads: {escape(' | '.join(lines))}")
    run(str(file), backend, policy, seconds, None, state)


@app.command(epilog="Example: sudo edgewise stream clean")
def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also those whose maker still runs.")] = False,
) -> None:
    """Remove namespaces that a killed run has left, with all that is in them."""
    from edgewise.runtime.testbeds import netns

    removed = netns.clean(everything)
    out.print(f"removed {len(removed)} namespaces" + (f": {', '.join(removed)}" if removed else ""))


def _database(state: Path) -> Path:
    file = state / DATABASE
    if not file.is_file():
        raise EdgewiseError(f"--state {state}: no run has kept anything there; check the path")
    return file


def _bytes(name: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EdgewiseError(
            f"pipeline {name!r}: inputs: {path}: cannot be read: {error.strerror}; check the path"
        ) from None


def _show(
    rates: PipelineRates,
    names: Sequence[str],
    ends: Sequence[Sequence[int]],
    title: str,
    alone_s: Mapping[str, float] | None = None,
) -> None:
    tasks = Table(
        "task", "node", "profiled here ms", "on the node ms", title=f"{rates.name}: {title}", box=None
    )
    for name, node in rates.nodes.items():
        alone = "" if alone_s is None else f"{1e3 * alone_s[name]:.1f}"
        tasks.add_row(name, node, alone, f"{1e3 * rates.busy_s[name]:.1f}")
    out.print(tasks)
    flows = Table("flow", "links", "allowed Mbit/s", "planned Mbit/s", "measured Mbit/s", box=None)
    for flow in rates.flows:
        way = ", ".join("-".join(names[node] for node in ends[link]) for link in flow.path)
        figures = (flow.allowed_bps, flow.planned_bps, flow.measured_bps)
        flows.add_row(flow.edge, way, *(f"{bps / 1e6:.3f}" for bps in figures))
    out.print(flows)
    error = rates.measured_fps / rates.planned_fps - 1 if rates.planned_fps > 0 else float("nan")
    out.print(
        f"throughput: planned [bold]{rates.planned_fps:.2f}[/bold], measured "
        f"[bold]{rates.measured_fps:.2f}[/bold] frames/s ({100 * error:+.1f} %)"
    )
