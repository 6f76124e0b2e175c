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


def gone(run: RequestRun, servers: Sequence[ReplicaServer]) -> list[ReplicaServer]:
    """Those of replicas that are to go which may end, by what sites know of them."""
    replica, rows = run.desks.replica.view(np.ndarray), [server.row for server in servers]
    wanted, mine = (replica["wanted"] != 0).tolist(), replica["mine"].tolist()
    ends = [
        may_end((wanted[d][row], mine[d][row]) for d, row in enumerate(at) if row != NONE)
        for at in run.row_of[:, rows].T.tolist()
    ]
    return [server for server, end in zip(servers, ends, strict=True) if end]
