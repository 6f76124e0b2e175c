"""What `edgewise run` keeps in its folder of nodes, links, tasks and flows, and how it is shown."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from edgewise.cli.output import out, show
from edgewise.errors import EdgewiseError

DATABASE = "streams.db"


def pipelines_of(state: Path) -> dict[str, Any] | None:
    """What is known of nodes, links, tasks and flows of `edgewise run`; None: there was none."""
    if not (state / DATABASE).is_file():
        return None
    from edgewise.runtime.pipelines.meta import FlowStatus, LinkStatus, MetaStore, NodeStatus, TaskStatus

    meta = MetaStore(database_of(state))
    pipelines = [
        each._asdict()
        | {
            "tasks": [task._asdict() for task in meta.seen(TaskStatus, each.number)],
            "flows": [flow._asdict() for flow in meta.seen(FlowStatus, each.number)],
        }
        for each in meta.pipelines()
    ]
    return {
        "nodes": [each._asdict() for each in meta.seen(NodeStatus)],
        "links": [each._asdict() for each in meta.seen(LinkStatus)],
        "pipelines": pipelines,
        "faults": [each._asdict() for each in meta.faults.since(time.time() - 86400.0)],
    }


def show_pipelines(found: Mapping[str, Any]) -> None:
    """Show what `pipelines_of` found."""
    now_s = time.time()
    nodes = (
        (
            n["name"],
            f"{n['free_bytes'] / 1e6:.0f}",
            n["tasks"],
            f"{n['busy']:.2f}",
            f"{now_s - n['seen_s']:.0f}",
        )
        for n in found["nodes"]
    )
    show(("node", "free MB", "tasks", "busy", "seen s ago"), nodes)
    links = (
        (
            f"{x['one']}-{x['other']}",
            "up" if x["up"] else "down",
            mbps(x["bandwidth_bps"]),
            mbps(x["rate_bps"]),
        )
        for x in found["links"]
    )
    show(("link", "state", "bandwidth Mbit/s", "carries Mbit/s"), links)
    for pipeline in found["pipelines"]:
        name = escape(pipeline["name"])
        out.print(f"\npipeline {pipeline['number']} [bold]{name}[/bold]: {pipeline['state']}")
        for task in pipeline["tasks"]:
            took = f"{task['frames']} frames, {1e3 * task['time_s']:.1f} ms each"
            out.print(f"  {task['name']} on {task['node']}: {took}")
        for flow in pipeline["flows"]:
            rates = f"{mbps(flow['rate_bps'])} Mbit/s of {mbps(flow['allowed_bps'])}"
            out.print(f"  {flow['edge']} over {flow['links']}: {rates}")
    for fault in found["faults"]:
        ago = f"{now_s - fault['at_s']:.0f} s ago"
        said = f"policy {fault['policy']} failed {ago}: {fault['why']}; {fault['instead']}"
        out.print(said, markup=False, style="red", soft_wrap=True)


def database_of(state: Path) -> Path:
    """The file of a run.

    Raises:
        EdgewiseError: there was none.
    """
    file = state / DATABASE
    if not file.is_file():
        raise EdgewiseError(f"--state {state}: no run has kept anything there; check the path")
    return file


def mbps(bps: float) -> str:
    """Mbit/s."""
    return f"{bps / 1e6:.3f}"
