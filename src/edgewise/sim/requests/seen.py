"""Replicas as gateways see them: what sites know of each, and report to the controller."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgewise.core.orchestrate.core import may_end
from edgewise.core.orchestrate.events import ReplicaSeen
from edgewise.sim.requests.queues import ReplicaServer
from edgewise.sim.requests.state import NONE, RequestRun


def seen_of(run: RequestRun, servers: Sequence[ReplicaServer]) -> dict[str, ReplicaSeen]:
    """What sites report of some replicas, by name."""
    rows = [server.row for server in servers]
    at = run.row_of[:, rows]
    known, desks = at != NONE, np.arange(len(at))[:, None]
    replica, server = run.desks.replica.view(np.ndarray), run.server.view(np.ndarray)[rows]
    started = server["broken"] == 0
    up = started & (known & (replica["up"][desks, at] != 0)).any(axis=0)
    held = (known * replica["mine"][desks, at]).sum(axis=0)
    columns = (
        [each.name for each in servers], server["station"] - 1, server["service"],
        server["wanted"] != 0, started, up, np.zeros_like(up), held, server["serves"],
    )  # fmt: skip
    lists = [column if isinstance(column, list) else column.tolist() for column in columns]
    return {each[0]: ReplicaSeen(*each) for each in zip(*lists, strict=True)}


def gone(run: RequestRun, server: ReplicaServer) -> bool:
    """Whether a replica that is to go may end, by what sites know of it."""
    rows = enumerate(run.row_of[:, server.row].tolist())
    sees = [run.desks.replica[d, row] for d, row in rows if row != NONE]
    return may_end((bool(each.wanted), int(each.mine)) for each in sees)
