"""Workers whose servers somebody else runs, as processes: what is known of a server, and who grants its rate.

Our own workers grant their rate to gateways themselves. A server that knows no reservations has its grants
kept by one gateway, which all others ask, so that they do not book it twice.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.topology import Topology, Worker
from edgewise.runtime.store import Process


def check_taken(topology: Topology, on_cluster: bool, on_namespaces: bool) -> None:
    """Whether servers that somebody else runs can be found, and reached, where a system runs.

    Raises:
        ScenarioError: they cannot.
    """
    for worker in topology.workers:
        if worker.served_by is None:
            continue
        if on_namespaces:
            raise ScenarioError(
                f"workers: {worker.name} is served_by others, whom no namespace reaches; leave --on out"
            )
        if worker.served_by.labels and not on_cluster:
            raise ScenarioError(
                f"workers: {worker.name} is served_by pods of a cluster; use --on kubernetes, or give a url"
            )


def taken(
    worker: Worker, kind: Mapping[str, Any], topology: Topology, gateways: Sequence[Process]
) -> dict[str, Any]:
    """Settings of a worker whose server somebody else runs.

    Args:
        kind: settings of all workers of its variant.
        gateways: of the system, those of a group in their order.
    """
    by = worker.served_by
    assert by is not None
    cluster = next(node.cluster for node in topology.nodes if node.name == worker.node)
    nodes = [node.name for node in topology.nodes if node.cluster == cluster]
    return {
        "model": by.model or worker.variant,
        "capacity_qps": kind["capacity_qps"],
        "split": None,
        "node": worker.node,
        "granted_by": _granting(cluster, topology, gateways),
        "served_by": {**by._asdict(), "labels": dict(by.labels), "nodes": nodes},
        **{name: kind[name] for name in ("needs",) if name in kind},
    }


def _granting(cluster: str, topology: Topology, gateways: Sequence[Process]) -> str | None:
    """Name of the gateway that grants what a cluster's servers have: that of its site, else the first."""
    sites = {site.name for site in topology.sites if site.cluster == cluster}
    of_site = [each.name for each in gateways if each.settings["site"] in sites]
    return next(iter((*of_site, *(each.name for each in gateways))), None)
