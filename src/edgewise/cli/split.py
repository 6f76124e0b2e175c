"""`edgewise split`: how queries of a network would be split over servers, forecast and simulated."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edgewise.errors import EdgewiseError

if TYPE_CHECKING:
    from edgewise.model.work import TaskGraph
    from edgewise.policies.split import Contraction, Plan, Program

out = Console()
SEED, QUERIES = 0, 3_000
SIMULATED = ("nona", "nona-queues", "nona-free", "whole-least-loaded", "whole-two-choices", "earliest-finish")


def split(
    network: Annotated[str, typer.Argument(help="An ONNX file, or gpt2, resnet50, inception-v1, …")],
    rate: Annotated[float, typer.Option(help="Queries per second.")] = 10.0,
    servers: Annotated[int, typer.Option(help="How many servers.")] = 10,
    power: Annotated[float, typer.Option(help="Operations per second of a server.")] = 1e11,
    link: Annotated[float, typer.Option(help="Capacity of the link between them in bit/s.")] = 1e10,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", help="Shape of an input, e.g. x=1,3,224,224; repeatable.")
    ] = None,
    branches: Annotated[
        int | None, typer.Option(help="Contract further, to so many branches of a sub-graph.")
    ] = None,
    queues: Annotated[bool, typer.Option(help="Count bursts and waiting for servers.")] = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="Simulate it against baselines.")] = False,
) -> None:
    """Plan how queries of a network are split over servers: sizes, forecast, certified gap."""
    from edgewise.policies.split import JobClass, build_program, contract, limit_branches, optimise

    small = contract(_graph(network, shapes or []))
    if branches is not None:
        if branches < 1:
            raise EdgewiseError(f"--branches must be at least 1, got {branches}")
        small = limit_branches(small, branches)
    program = build_program([JobClass(small.graph, rate)], servers, power, link, queues=queues)
    plan = optimise(program)
    _print_plan(small, program, plan)
    if simulate:
        _print_simulation(program)


def _graph(network: str, shapes: list[str]) -> TaskGraph:
    try:
        from edgewise.profiling.dags import LIGHT, light_file, task_graph
        from edgewise.profiling.gpt2 import gpt2
    except ImportError as error:
        raise EdgewiseError(
            f"reading networks needs {error.name}: pip install 'edgewise[profile]'"
        ) from error
    if network == "gpt2":
        return task_graph(gpt2(), network)
    if network in LIGHT:
        return task_graph(light_file(network), network)
    file = Path(network)
    if not file.is_file():
        raise EdgewiseError(f"network {network!r}: no such file; known by name: gpt2, {', '.join(LIGHT)}")
    return task_graph(file, shapes=dict(_shape(text) for text in shapes))


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.partition("=")
    try:
        return name, [int(size) for size in sizes.split(",")]
    except ValueError:
        raise EdgewiseError(f"--shape {text!r}: write NAME=N,N,…, for example x=1,3,224,224") from None


def _print_plan(small: Contraction, program: Program, plan: Plan) -> None:
    from edgewise.policies.split import local

    out.print(
        f"{small.before} tasks, {small.after} after contraction; {program.variables} probabilities in "
        f"{len(program.groups)} kinds of sub-graphs"
    )
    names = {name: len(members) for name, members in small.members.items()}
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
    if len(program.groups) and len(names) > 1:
        out.print(table)
    whole = local(program).forecast
    out.print(
        f"forecast {1e3 * plan.forecast.mean_s:.4g} ms, whole on one server {1e3 * whole.mean_s:.4g} ms; "
        f"link {plan.forecast.load:.1%} busy, a message waits {1e6 * plan.forecast.wait_s:.3g} µs; "
        f"certified gap {plan.gap:.1e}"
    )


def _print_simulation(program: Program) -> None:
    from edgewise.sim.split import compare_split

    work_s = sum(task.work_ops for task in program.classes[0].graph.tasks) / program.power_ops
    load = float(program.rates_qps[0]) * work_s / program.servers
    if load >= 1:
        raise EdgewiseError(
            f"--rate {program.rates_qps[0]:g} needs {load * program.servers:.3g} servers and there are "
            f"{program.servers}; nothing can be simulated: lower --rate, or raise --servers or --power"
        )
    table = Table("policy", "mean ms", "99 % ms", "predicted ms", "link busy", box=None)
    for row in compare_split(program, SIMULATED, [load], QUERIES, [SEED]):
        predicted = "–" if row.predicted_s is None else f"{1e3 * row.predicted_s:.2f}"
        table.add_row(
            escape(row.policy),
            f"{1e3 * row.mean_s[0]:.2f}",
            f"{1e3 * row.p99_s[0]:.2f}",
            predicted,
            f"{row.link_load:.0%}",
        )
    out.print(f"simulated: load {load:.2f}, {QUERIES} queries, seed {SEED}")
    out.print(table)
