"""`edgewise stream`: streaming jobs on real sockets, measured beside the plan."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise.cli.extras import extra
from edgewise.errors import EdgewiseError

if TYPE_CHECKING:
    from edgewise.runtime.streaming.rates import PipelineRates

app = typer.Typer(
    help="Streaming jobs on a test bed of real sockets.",
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
STATE = Path("runs/stream")
DATABASE = "streams.db"


@app.command(
    epilog="Example: edgewise stream run job.json --code job.py --frame f.bmp --network net.yaml --policy tp"
)
def run(
    job: Annotated[Path, typer.Argument(help="Description of the job, .json or .toml.")],
    code: Annotated[Path, typer.Option(help="Python file that exports job = [task, ...]; it is run.")],
    frame: Annotated[list[Path], typer.Option(help="A frame that the source sends; repeatable.")],
    network: Annotated[Path, typer.Option(help="Nodes and links, YAML or JSON.")],
    backend: BackendOption = "netns",
    policy: PolicyOption = "otfa",
    seconds: SecondsOption = 10.0,
    state: StateOption = STATE,
) -> None:
    """Profile a job here, place it, run it on a test bed, and measure it beside the plan."""
    with extra("place", "stream"):
        from edgewise.policies.place import load_placement
        from edgewise.runtime.streaming.job import live_job
        from edgewise.runtime.streaming.meta import MetaStore
        from edgewise.runtime.streaming.session import PipelineSession
        from edgewise.runtime.testbeds import open_backend
    from edgewise.workloads.job_files import load_description
    from edgewise.workloads.job_profiler import profile_job, profiled_job
    from edgewise.workloads.network_files import load_network

    description, nodes = load_description(job), load_network(network)
    chosen = load_placement(policy)
    with err.status("profiling each task on one processor"):
        sample = _bytes(frame[0])
        _compare_sizes(frame[0], len(sample), description.input_bytes)
        profile = profile_job(description, code, sample, {"here": 1})["here"]
    fastest = float(nodes.speed_ops.max())  # this machine stands for the fastest node
    made = profiled_job(description, profile, fastest, source=nodes.names[0], duration_s=1e9)
    live = live_job(made, description, code, frame)
    meta = MetaStore(state / DATABASE)
    meta.end_all()
    with (
        err.status(f"{backend}: starting {len(profile) + 1} processes on {len(nodes.names)} nodes") as status,
        PipelineSession(open_backend(backend, nodes), chosen, meta=meta) as session,
    ):
        session.submit([live])
        status.update(f"measuring for {seconds:g} s")
        rates = session.measure(seconds, settle_s=min(seconds, 3.0))
    if not rates:
        raise EdgewiseError(f"job {made.name!r}: policy {policy!r} finds no room; give nodes more memory")
    for found in rates:
        alone = {row.task: row.time_s for row in profile}
        _show(found, nodes.names, nodes.ends.tolist(), f"{policy} on {backend}", alone)


def _compare_sizes(frame: Path, bytes_: int, planned_bytes: float) -> None:
    """Say that the plan is for frames of another size, where they differ by more than 5 %."""
    if abs(bytes_ - planned_bytes) > 0.05 * planned_bytes:
        note = f"{frame} has {bytes_:,} bytes, input_size of the job says {planned_bytes:,.0f}"
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
        from edgewise.policies.place import load_placement
        from edgewise.runtime.streaming.meta import MetaStore
        from edgewise.runtime.streaming.session import PipelineSession
        from edgewise.runtime.testbeds import open_backend

    meta = MetaStore(_database(state))
    if not meta.unfinished():
        out.print(f"{state}: no job is left to take up")
        return
    nodes, chosen = meta.network(), load_placement(policy)  # before namespaces are made
    with PipelineSession(open_backend(backend, nodes), chosen, meta=meta) as session:
        names = session.resume()
        err.print(f"taken up: {', '.join(names)}; measuring for {seconds:g} s")
        rates = session.measure(seconds, settle_s=min(seconds, 3.0))
    for found in rates:
        _show(found, nodes.names, nodes.ends.tolist(), f"{policy} on {backend}")


@app.command(epilog="Example: edgewise stream status")
def status(state: StateOption = STATE) -> None:
    """Show what is known of nodes, links, jobs, tasks and flows; also while a run goes on."""
    from edgewise.runtime.streaming.meta import MetaStore

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
    folder: Annotated[Path, typer.Option("--out", help="Where job, network and frames go.")] = Path(
        "runs/read-text"
    ),
) -> None:
    """Read text on frames: detect, classify, recognise with real networks, spread over five nodes."""
    with extra("demo", "read-text"):
        from edgewise.demo import reading
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(reading.description(), indent=2) + "\n")
    (folder / "network.yaml").write_text(json.dumps(reading.network(), indent=2) + "\n")
    frames = []
    for i, signs in enumerate(reading.SIGNS):
        frames.append(folder / f"frame{i}.bmp")
        frames[-1].write_bytes(reading.frame(signs))
    code = Path(str(reading.__file__))
    lines = reading.recognise(reading.classify(reading.detect(frames[0].read_bytes())[1])[1])[1]
    out.print(f"first frame reads: {escape(' | '.join(lines))}")
    run(folder / "job.json", code, frames, folder / "network.yaml", backend, policy, seconds, state)


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


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EdgewiseError(f"--frame {path}: cannot be read: {error.strerror}; check the path") from None


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
