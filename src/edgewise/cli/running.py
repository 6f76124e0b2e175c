"""`edgewise run`: pipelines and split models of a scenario on real processes, measured beside the plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
import yaml
from rich.markup import escape

from edgewise.cli.commands import verbs
from edgewise.cli.lasting import lasting
from edgewise.cli.output import Json, answer, check_folder, err, note, out, refuse_given, show, show_shadows
from edgewise.cli.testbed import DATABASE, database_of, mbps
from edgewise.cli.verbs import PolicyOption, SetOption, load, parted
from edgewise.errors import EdgewiseError, extra
from edgewise.model.grammar.pipelines import PipelineSpec
from edgewise.model.grammar.scenario import BUDGETS_S
from edgewise.model.left_out import not_run
from edgewise.model.pipelines import Network, network_of, pipeline_of
from edgewise.model.scenario import Scenario
from edgewise.policies import USUAL
from edgewise.report import records

if TYPE_CHECKING:
    from edgewise.core.place import PlacementPolicy
    from edgewise.report.statistics import Interval
    from edgewise.runtime.pipelines.live import LivePipeline
    from edgewise.runtime.pipelines.meta import MetaStore
    from edgewise.runtime.pipelines.rates import PipelineRates

app = verbs()
READ_TEXT = "read-text"  # a scenario that is written when it is asked for, with its frames
SPLIT = (USUAL["split"], "whole-least-loaded")
BATCHES = 10  # of queries in turn, whose means make the interval of a mean


@app.command(
    epilog="Examples: edgewise run read-text --backend local; edgewise run town.yaml --policy place=tp; "
    "edgewise run split-inception --queries 100"
)
def run(
    context: typer.Context,
    scenario: Annotated[
        str | None, typer.Argument(help="A scenario with pipelines or graphs, or read-text.")
    ] = None,
    policy: PolicyOption = None,
    backend: Annotated[
        str,
        typer.Option(help="Of pipelines. netns: namespaces, real shaping, needs root. local: paced senders."),
    ] = "netns",
    seconds: Annotated[
        float | None,
        lasting("Of measuring pipelines; default: duration_s of the scenario", least_s=1, most_s=3600),
    ] = None,
    queries: Annotated[int, typer.Option(help="Of a split model, under each policy.", min=20)] = 200,
    shadow: Annotated[
        str | None, typer.Option(help="A second placement policy that only watches.", metavar="POLICY")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up the pipelines of a run that was killed.")
    ] = False,
    changes: SetOption = None,
    folder: Annotated[Path, typer.Option("--state", help="Folder of state, logs and frames.")] = Path(
        "runs/run"
    ),
    as_json: Json = False,
) -> None:
    """Run pipelines or a split model here for a while, and measure them beside the plan.

    Pipelines are profiled, placed and run on a test bed. A split model is cut, and workers
    and a gateway answer queries under each policy given.
    """
    records.refuse_others("--state", folder, "edgewise run")
    named = [parted(each) for each in policy or ()]
    if resume:
        left = "is of a new run; leave it out with --resume, which takes up what was left"
        refuse_given(context, ("scenario", "changes", "queries"), left)
        found = _resume(backend, _one(named), shadow, 10.0 if seconds is None else seconds, folder)
        return answer(found.said, as_json, found.show)
    if scenario is None:
        raise EdgewiseError("SCENARIO: is missing; name one with pipelines or graphs, or read-text")
    if scenario == READ_TEXT:
        scenario, seconds = _read_text(folder), seconds or 10.0
    loaded = load(scenario, changes)
    note(not_run(loaded, ("pipelines", "graphs"), "edgewise run"))
    if "split" in dict(named) or "pipelines" not in loaded.holds:
        not_run(loaded, ("graphs",), "edgewise run --policy split")
        refuse_given(
            context, ("backend", "seconds", "shadow"), "is of pipelines; leave it out for a split model"
        )
        found = _run_split(loaded, [name for _, name in named] or SPLIT, folder, queries)
        return answer(found.said, as_json, found.show)
    refuse_given(context, ("queries",), "is of a split model; leave it out for pipelines")
    seconds = loaded.duration_s if seconds is None else seconds
    found = _run_pipelines(loaded, backend, _one(named), shadow, seconds, folder)
    answer(found.said, as_json, found.show)
    found.check()


class Found(NamedTuple):
    """What a run has measured.

    Attributes:
        said: as JSON.
        show: prints it for people.
        check: raises what is wrong with it.
    """

    said: Any
    show: Callable[[], None]
    check: Callable[[], None] = lambda: None


def _one(named: Sequence[tuple[str | None, str]]) -> str:
    """The placement policy."""
    for decision, _ in named:
        if decision not in (None, "place"):
            raise EdgewiseError(f"--policy {decision}=…: pipelines are placed; use place=NAME")
    if len(named) > 1:
        raise EdgewiseError("--policy: place is given twice")
    return named[0][1] if named else USUAL["place"]


def _chosen(
    policy: str, shadow: str | None, budget_s: float = BUDGETS_S.place
) -> tuple[PlacementPolicy, PlacementPolicy | None]:
    from edgewise.runtime.apart import load as load_policy

    watching = None if shadow is None else load_policy("place", shadow, budget_s)
    return load_policy("place", policy, budget_s), watching


def _run_pipelines(
    scenario: Scenario, backend: str, policy: str, shadow: str | None, seconds: float, state: Path
) -> Found:
    with extra("live", "run"):
        from edgewise.runtime.pipelines.live import live_pipeline
        from edgewise.runtime.pipelines.meta import MetaStore
    budget_s = scenario.live.budgets_s.place
    chosen = _chosen(policy, shadow, budget_s)
    written, nodes = _written(scenario), network_of(scenario)
    with err.status("profiling each task on one processor"):
        found = [_profiled(spec, float(nodes.speed_ops.max())) for spec in written]
    lives = [live_pipeline(pipeline_of(spec), spec) for spec, _ in found]
    meta = MetaStore(state / DATABASE)
    meta.end_all()
    rates, watched = _measured(meta, nodes, backend, chosen, lives, seconds, budget_s)
    title, alone_s = f"{policy} on {backend}", {spec.name: times for spec, times in found}
    waiting = sorted(alone_s.keys() - {each.name for each in rates})

    def check() -> None:
        if waiting:
            names = ", ".join(waiting)
            raise EdgewiseError(f"pipeline {names}: {title} finds no room; give nodes more memory_bytes")

    said = {"pipelines": [asdict(each) for each in rates], "waiting": waiting, "shadow": watched}
    return Found(said, lambda: _show_all(rates, watched, nodes, title, alone_s), check)


def _measured(
    meta: MetaStore,
    nodes: Network,
    backend: str,
    chosen: tuple[PlacementPolicy, PlacementPolicy | None],
    lives: Sequence[LivePipeline],
    seconds: float,
    budget_s: float = BUDGETS_S.place,
) -> tuple[Sequence[PipelineRates], Mapping[str, Any] | None]:
    """Run pipelines, or without any those that were left, and measure them; what a policy in shadow did."""
    from edgewise.runtime.pipelines.session import PipelineSession, open_backend

    with (
        err.status(f"{backend}: starting processes on {len(nodes.names)} nodes") as status,
        PipelineSession(
            open_backend(backend, nodes), chosen[0], meta=meta, patience_s=budget_s, shadow=chosen[1]
        ) as session,
    ):
        if lives:
            session.submit(lives)
        else:
            err.print(f"taken up: {', '.join(session.resume())}")
        if session.guard.fault and not session.running:
            raise EdgewiseError(f"--policy place: nothing runs: {session.guard.fault}")
        status.update(f"measuring for {seconds:g} s")
        watched = None if session.core.shadow is None else session.core.shadow.report()
        return session.measure(seconds, settle_s=min(seconds, 3.0)), watched


def _show_all(
    rates: Sequence[PipelineRates],
    watched: Mapping[str, Any] | None,
    nodes: Network,
    title: str,
    alone_s: Mapping[str, Mapping[str, float]],
) -> None:
    if watched is not None:
        show_shadows([("place", "", watched)])
    for each in rates:
        _show(each, nodes.names, nodes.ends.tolist(), title, alone_s.get(each.name))


def _written(scenario: Scenario) -> list[PipelineSpec]:
    """The pipelines; all must be written out, with code and something to send."""
    written = []
    for i, spec in enumerate(scenario.pipelines or ()):
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
    try:
        sample = frame.read_bytes()
    except OSError as error:
        where = f"pipeline {spec.name!r}: inputs: {frame}"
        raise EdgewiseError(f"{where}: cannot be read: {error.strerror}; check the path") from None
    if abs(len(sample) - spec.input_bytes) > 0.05 * spec.input_bytes:
        note = f"{frame} has {len(sample):,} bytes, input_bytes of the pipeline says {spec.input_bytes:,.0f}"
        err.print(f"note: {note}: frames/s will differ from the plan", markup=False, soft_wrap=True)
    if any(None in (task.work_ops, task.output_bytes) for task in spec.tasks):
        spec = profiled(spec, profile_pipeline(spec, sample, {"here": 1})["here"], speed_ops)
    return spec, {task.name: (task.work_ops or 0.0) / speed_ops for task in spec.tasks}


def _resume(backend: str, policy: str, shadow: str | None, seconds: float, state: Path) -> Found:
    """Take up the pipelines of a run that was killed, with the task times it had measured."""
    with extra("live", "run"):
        from edgewise.runtime.pipelines.meta import MetaStore
    meta = MetaStore(database_of(state))
    if not meta.unfinished():
        nothing: dict[str, Any] = {"pipelines": [], "waiting": [], "shadow": None}
        return Found(nothing, lambda: out.print(f"{state}: no pipeline is left to take up"))
    nodes = meta.network()
    chosen = _chosen(policy, shadow)  # before namespaces are made
    (rates, watched), title = _measured(meta, nodes, backend, chosen, (), seconds), f"{policy} on {backend}"
    said = {"pipelines": [asdict(each) for each in rates], "waiting": [], "shadow": watched}
    return Found(said, lambda: _show_all(rates, watched, nodes, title, {}))


def _read_text(folder: Path) -> str:
    """Write a scenario that reads text on frames with real networks, and its frames."""
    with extra("demo", READ_TEXT):
        from edgewise.demo import reading
        from edgewise.runtime import disk
    disk.make_folder(folder, DATABASE)
    frames = []
    for i, signs in enumerate(reading.SIGNS):
        frames.append(folder / f"frame{i}.bmp")
        frames[-1].write_bytes(reading.frame(signs))
    file = folder / f"{READ_TEXT}.yaml"
    file.write_text(yaml.safe_dump(reading.scenario(frames), sort_keys=False))
    lines = reading.recognise(reading.classify(reading.detect(frames[0].read_bytes())[1])[1])[1]
    err.print(f"first frame reads: {escape(' | '.join(lines))}")
    return str(file)


@app.command(epilog="Example: sudo edgewise clean")
def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also those whose maker still runs.")] = False,
    as_json: Json = False,
) -> None:
    """Remove namespaces that a killed run or system has left, with all that is in them."""
    from edgewise.runtime.controller.nursery import is_running
    from edgewise.runtime.process.places import holders
    from edgewise.runtime.testbeds import netns, spaces

    removed = netns.clean(everything)
    for folder in spaces.left_behind():
        if everything or not (is_running(folder) or holders(folder)):
            removed += spaces.Spaces(folder).remove()
    said = f"removed {len(removed)} namespaces" + (f": {', '.join(removed)}" if removed else "")
    answer({"removed": list(removed)}, as_json, lambda: out.print(said))


def _show(
    rates: PipelineRates,
    names: Sequence[str],
    ends: Sequence[Sequence[int]],
    title: str,
    alone_s: Mapping[str, float] | None = None,
) -> None:
    alone = {} if alone_s is None else {name: f"{1e3 * time_s:.1f}" for name, time_s in alone_s.items()}
    tasks = (
        (name, node, alone.get(name, ""), f"{1e3 * rates.busy_s[name]:.1f}")
        for name, node in rates.nodes.items()
    )
    show(("task", "node", "profiled here ms", "on the node ms"), tasks, f"{rates.name}: {title}")
    flows = []
    for flow in rates.flows:
        way = ", ".join("-".join(names[node] for node in ends[link]) for link in flow.path)
        flows.append((flow.edge, way, *map(mbps, (flow.allowed_bps, flow.planned_bps, flow.measured_bps))))
    show(("flow", "links", "allowed Mbit/s", "planned Mbit/s", "measured Mbit/s"), flows)
    error = rates.measured_fps / rates.planned_fps - 1 if rates.planned_fps > 0 else float("nan")
    out.print(
        f"throughput: planned [bold]{rates.planned_fps:.2f}[/bold], measured "
        f"[bold]{rates.measured_fps:.2f}[/bold] frames/s ({100 * error:+.1f} %)"
    )


def _run_split(scenario: Scenario, names: Sequence[str], folder: Path, queries: int) -> Found:
    """Send queries of a split model to workers here, under each policy in turn."""
    import numpy as np

    from edgewise.policies.split import SplitProgram
    from edgewise.report.statistics import mean_interval, quantile_interval
    from edgewise.splitting import splitting

    check_folder("--state", folder, "edgewise run")
    with extra("live", "run"):
        from edgewise.runtime.clients.split_trial import TrialSetting, try_split
    found = splitting(scenario)
    program, model = found.program, found.models[0]
    if not isinstance(program, SplitProgram):
        raise EdgewiseError("edgewise run splits over equal servers in one cluster; leave the others out")
    if model is None or len(found.models) > 1:
        raise EdgewiseError("edgewise run splits one graph that is read from a network; leave the others out")
    servers, rate = program.servers, float(program.rates_qps[0])
    trials = try_split(
        model, found.contracted[0], dict(scenario.graphs[0].shapes), folder, names,
        TrialSetting(servers, rate, program.link_bps, queries),
    )  # fmt: skip
    rows, said = [], []
    for trial in trials:
        means = [float(batch.mean()) for batch in np.array_split(trial.time_s, BATCHES)]
        mean, p99 = (
            mean_interval(means, possible=(0.0, float("inf"))),
            quantile_interval(trial.time_s, 0.99),
        )
        said.append(
            {"policy": trial.policy, "mean_s": mean.mean, "p99_s": p99.mean, "predicted_s": trial.predicted_s}
            | {"workers": float(trial.workers.mean()), "sent_bytes": float(trial.sent_bytes)}
            | {"error": float(trial.difference)}
        )
        rows.append(
            (
                trial.policy,
                _ms(mean, 2),
                _ms(p99, 1),
                "–" if trial.predicted_s is None else f"{1e3 * trial.predicted_s:.2f}",
                f"{trial.workers.mean():.1f}",
                f"{trial.sent_bytes / 1e3:.4g}",
                f"{trial.difference:.0e}",
            )
        )

    def shown() -> None:
        through = f"{queries} queries at {rate:g}/s through the gateway"
        out.print(f"live: {servers} workers, {through}, 95 % intervals")
        show(("policy", "mean ms", "99 % ms", "predicted", "workers", "kB sent", "error"), rows)
        out.print(f"error: of the outputs, to the whole network's; sub-models, state and logs: {folder}")

    return Found({"servers": servers, "queries": queries, "policies": said}, shown)


def _ms(interval: Interval, digits: int) -> str:
    """A figure with the ends of its 95 % interval, in ms; ? where the queries are too few."""
    low, high = ("?" if end is None else f"{1e3 * end:.{digits}f}" for end in (interval.low, interval.high))
    return f"{1e3 * interval.mean:.{digits}f} ({low}-{high})"
