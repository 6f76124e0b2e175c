"""`edgewise split`: how queries of a network would be split over servers, forecast and simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise.cli.extras import extra
from edgewise.cli.notes import note
from edgewise.cli.places import check_folder
from edgewise.cli.split_layout import print_layout
from edgewise.config import load_scenario, parse_setting
from edgewise.errors import EdgewiseError, ProfileError
from edgewise.model.graphs import SplitModel
from edgewise.model.sections import not_run

if TYPE_CHECKING:
    import onnx

    from edgewise.model.work import TaskGraph
    from edgewise.policies.split import Contraction, SplitPlan, SplitProgram
    from edgewise.report.statistics import Interval

out = Console()
SEEDS, QUERIES = range(5), 2_000
LIVE = ("nona-queues", "whole-least-loaded")
BATCHES = 10  # of queries in turn, whose means make the interval of a live mean
SIMULATED = ("nona", "nona-queues", "nona-free", "whole-least-loaded", "whole-two-choices", "earliest-finish")


def split(
    scenario: Annotated[str, typer.Argument(help="A scenario with graphs: a file, or split-inception.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the scenario, as graphs.0.rate_qps=200; repeatable."),
    ] = None,
    queues: Annotated[bool, typer.Option(help="Count bursts and waiting for servers.")] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="Simulate it against baselines.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Run it here: workers and a gateway as processes, measured costs.")
    ] = False,
    queries: Annotated[int, typer.Option(help="Live queries of each policy.", min=20)] = 200,
    folder: Annotated[Path, typer.Option("--out", help="Sub-models, state and logs of --live.")] = Path(
        "runs/split"
    ),
) -> None:
    """Plan how queries of networks are split over servers: sizes, forecast, certified gap."""
    from edgewise.policies.split import QueryClass, SplitProgram, optimise
    from edgewise.policies.split.lens import program_of

    if live:
        check_folder("--out", folder)
    loaded = load_scenario(scenario, dict(parse_setting(change) for change in changes or []))
    note(not_run(loaded.spec, ("graphs",), "edgewise split"))
    read = [_contracted(each) for each in loaded.graphs]
    classes = [
        QueryClass(small.graph, each.rate_qps) for each, (_, small) in zip(loaded.graphs, read, strict=True)
    ]
    program = program_of(loaded.topology, classes, queues)
    if not isinstance(program, SplitProgram):
        if live:
            raise EdgewiseError("--live: runs equal servers in one cluster; leave the other clusters out")
        print_layout(program, simulate)
        return
    plan = optimise(program)
    for _, small in read:
        out.print(f"{small.before} tasks, {small.after} after contraction")
    _print_plan(program, plan)
    if (load := _load(program)) >= 1:
        out.print(f"note: the forecast does not hold: {_overload(program, load)}", soft_wrap=True)
    if simulate:
        _print_simulation(program)
    if live:
        (model, small), first = read[0], loaded.graphs[0]
        if model is None or len(read) > 1:
            raise EdgewiseError("--live: runs one graph that is read from a network; leave the others out")
        _print_live(model, small, dict(first.shapes), folder, program, queries)


def _contracted(split_model: SplitModel) -> tuple[onnx.ModelProto | None, Contraction]:
    """The network, where there is one, and its operators, contracted."""
    from edgewise.policies.split import contract, limit_branches

    model, graph = (None, split_model.graph) if split_model.graph is not None else _graph(split_model)
    small = contract(graph)
    return model, small if split_model.branches is None else limit_branches(small, split_model.branches)


def _graph(split_model: SplitModel) -> tuple[onnx.ModelProto, TaskGraph]:
    """The network and its operators."""
    with extra("live", "reading networks"):
        from edgewise.profiling.dags import LIGHT, light_file, task_graph
        from edgewise.profiling.gpt2 import gpt2
        from edgewise.profiling.operators import read
    network = str(split_model.network)
    if network == "gpt2":
        model = gpt2()
    elif network in LIGHT:
        model = read(light_file(network))
    else:
        file = Path(network)
        if not file.is_file():
            names = ", ".join(LIGHT)
            raise EdgewiseError(f"graphs: network {network!r}: no such file; known by name: gpt2, {names}")
        model = read(file)
    try:
        shapes = {name: list(sizes) for name, sizes in split_model.shapes.items()}
        return model, task_graph(model, Path(network).stem, shapes)
    except ProfileError as error:
        raise ProfileError(f"{network}: {error}{_hint(str(error))}") from error


def _hint(error: str) -> str:
    return " in graphs.shapes, as shapes: {x: [1, 3, 224, 224]}" if error.endswith("give its shape") else ""


def _print_plan(program: SplitProgram, plan: SplitPlan) -> None:
    from edgewise.policies.split import local

    out.print(f"{program.variables} probabilities in {len(program.groups)} kinds of sub-graphs")
    table = Table("sub-graph", "times", "probability", "branches by server", box=None)
    for number, group in enumerate(program.groups):
        first, last = program.arrays.start[number : number + 2]
        for k in range(last - first):
            if plan.theta[first + k] > 1e-9:
                row = group.lines.part[k]
                parts = [f"{int((row[:-1] == p).sum())}" for p in range(int(row.max()) + 1)]
                end = "" if row[-1] == 0 else ", ends away"
                table.add_row(
                    str(number),
                    str(len(group.subgraphs)),
                    f"{plan.theta[first + k]:.3f}",
                    " + ".join(parts) + end,
                )
    if len(program.groups):
        out.print(table)
    whole = local(program).forecast
    out.print(
        f"forecast {1e3 * plan.forecast.mean_s:.4g} ms, whole on one server {1e3 * whole.mean_s:.4g} ms; "
        f"link {plan.forecast.load:.1%} busy, a message waits {1e6 * plan.forecast.wait_s:.3g} µs; "
        f"certified gap {plan.gap:.1e}"
    )


def _load(program: SplitProgram) -> float:
    """Share of the servers that is busy without any transfer."""
    work_ops = sum(
        float(rate) * sum(task.work_ops for task in each.graph.tasks)
        for rate, each in zip(program.rates_qps, program.classes, strict=True)
    )
    return work_ops / program.power_ops / program.servers


def _overload(program: SplitProgram, load: float) -> str:
    return (
        f"{sum(program.rates_qps):g} queries/s need {load * program.servers:.3g} servers and there are "
        f"{program.servers}: lower graphs.rate_qps, or give more nodes or speed_ops"
    )


def _print_simulation(program: SplitProgram) -> None:
    from edgewise.report.statistics import mean_interval
    from edgewise.sim.stations.split import compare_split

    load = _load(program)
    if load >= 1:
        raise EdgewiseError(f"nothing can be simulated: {_overload(program, load)}")
    table = Table("policy", "mean ms", "99 % ms", "predicted", "link busy", box=None)
    for row in compare_split(program, SIMULATED, [load], QUERIES, SEEDS):
        table.add_row(
            escape(row.policy),
            _ms(mean_interval(row.mean_s)),
            _ms(mean_interval(row.p99_s)),
            _predicted(row.predicted_s),
            f"{row.link_load:.0%}",
        )
    out.print(f"simulated: load {load:.2f}, {len(SEEDS)} seeds of {QUERIES} queries, 95 % intervals")
    out.print(table)


def _print_live(
    model: onnx.ModelProto,
    small: Contraction,
    shapes: Mapping[str, Sequence[int]],
    folder: Path,
    program: SplitProgram,
    queries: int,
) -> None:
    import numpy as np

    from edgewise.report.statistics import mean_interval, quantile_interval

    with extra("live", "live"):
        from edgewise.runtime.clients.split_trial import try_split
    servers, rate = program.servers, float(program.rates_qps[0])
    trials = try_split(
        model, small, shapes, folder, LIVE,
        servers=servers, rate_qps=rate, link_bps=program.link_bps, queries=queries,
    )  # fmt: skip
    table = Table("policy", "mean ms", "99 % ms", "predicted", "workers", "kB sent", "error", box=None)
    for trial in trials:
        means = [float(batch.mean()) for batch in np.array_split(trial.time_s, BATCHES)]
        table.add_row(
            escape(trial.policy),
            _ms(mean_interval(means)),
            _between(quantile_interval(trial.time_s, 0.99)),
            _predicted(trial.predicted_s),
            f"{trial.workers.mean():.1f}",
            f"{trial.sent_bytes / 1e3:.4g}",
            f"{trial.difference:.0e}",
        )
    out.print(f"live: {servers} workers, {queries} queries at {rate:g}/s through the gateway, 95 % intervals")
    out.print(table)
    out.print(f"error: of the outputs, to the whole network's; sub-models, state and logs: {folder}")


def _ms(interval: Interval) -> str:
    """A mean with its 95 % interval, in ms."""
    half = "" if interval.high is None else f" ± {1e3 * (interval.high - interval.mean):.2g}"
    return f"{1e3 * interval.mean:.2f}{half}"


def _between(interval: Interval) -> str:
    """A quantile with the ends of its 95 % interval, in ms; ? where the queries are too few."""
    low, high = ("?" if end is None else f"{1e3 * end:.1f}" for end in (interval.low, interval.high))
    return f"{1e3 * interval.mean:.1f} ({low}-{high})"


def _predicted(time_s: float | None) -> str:
    return "–" if time_s is None else f"{1e3 * time_s:.2f}"
