"""Kernels that place the tasks of a query on servers, a few hundred nanoseconds each.

A placement says who shares a server; the *rule* then says which server. All policies use the same rule,
so that what is compared is how they split, not how they balance.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints
from edgewise.core.compiled import kernel
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.policies.split.tables import Graphs, Table


class ServerChoice(IntEnum):
    """Which of the servers that a query has not used in this sub-graph is taken."""

    UNIFORM = 0
    ROUND_ROBIN = 1
    LEAST_LOADED = 2
    SHORTEST_QUEUE = 3
    TWO_CHOICES = 4


class Method(IntEnum):
    """How the tasks of a query are placed."""

    DRAW = 0
    SCATTER = 1
    EARLIEST_FINISH = 2


class Ledger(NamedTuple):
    """What this scheduler has given to each server and is not finished yet.

    The kernels add what they place. The driver calls `finish` when a task is done.

    Attributes:
        work_s: (S,) outstanding work over the server's power.
        tasks: (S,) outstanding tasks.
        power_ops: (S,) operations per second.
        turn: (1,) position of the round robin.
    """

    work_s: Floats
    tasks: Ints
    power_ops: Floats
    turn: Ints


def new_ledger(power_ops: Floats) -> Ledger:
    """Idle servers of these powers."""
    power = np.asarray(power_ops, dtype=np.float64)
    return Ledger(np.zeros(power.size), np.zeros(power.size, np.int64), power, np.zeros(1, np.int64))


UNIFORM, ROUND_ROBIN, LEAST_LOADED = (
    int(ServerChoice.UNIFORM),
    int(ServerChoice.ROUND_ROBIN),
    int(ServerChoice.LEAST_LOADED),
)
SHORTEST_QUEUE, TWO_CHOICES = int(ServerChoice.SHORTEST_QUEUE), int(ServerChoice.TWO_CHOICES)
DRAW, SCATTER = int(Method.DRAW), int(Method.SCATTER)
POLICY = int(Purpose.POLICY)


@kernel
def finish(ledger: Ledger, server: int, work_ops: float) -> None:
    """A task is done."""
    ledger.tasks[server] -= 1
    ledger.work_s[server] -= work_ops / ledger.power_ops[server]


@kernel
def give(ledger: Ledger, server: int, work_ops: float) -> None:
    """A task is placed."""
    ledger.tasks[server] += 1
    ledger.work_s[server] += work_ops / ledger.power_ops[server]


@kernel
def nth_free(used: Bools, nth: int) -> int:
    """The nth server that is not used."""
    for server in range(used.size):
        if not used[server]:
            if nth == 0:
                return server
            nth -= 1
    return -1


@kernel
def pick(ledger: Ledger, used: Bools, rule: int, seed: np.uint64, query: int, draw: int) -> int:
    """A server that is not used; there is one. Ties go to the first after a random place."""
    servers = used.size
    if rule == ROUND_ROBIN:
        server = ledger.turn[0] % servers
        while used[server]:
            server = (server + 1) % servers
        ledger.turn[0] = server + 1
        return int(server)
    free = servers - used.sum()
    nth = int(uniform_of(seed, POLICY, query, 2 * draw) * free)
    if rule == UNIFORM or free == 1:
        return nth_free(used, nth)
    if rule == TWO_CHOICES:
        other = int(uniform_of(seed, POLICY, query, 2 * draw + 1) * (free - 1))
        a, b = nth_free(used, nth), nth_free(used, other if other < nth else other + 1)
        return a if ledger.work_s[a] <= ledger.work_s[b] else b
    start, best, least = nth_free(used, nth), -1, np.inf
    for i in range(servers):
        server = (start + i) % servers
        load = ledger.work_s[server] if rule == LEAST_LOADED else float(ledger.tasks[server])
        if not used[server] and load < least:
            best, least = server, load
    return best


@kernel
def free_servers(ledger: Ledger, unit_s: float) -> int:
    """Servers less those that the outstanding work keeps busy, at least 0."""
    return max(0, ledger.work_s.size - int(np.ceil(ledger.work_s.sum() / unit_s - 1e-9)))


@kernel
def keep_to(ledger: Ledger, first: int, count: int, rule: int, seed: np.uint64, query: int) -> Bools:
    """(S,) servers that a query leaves to others: all but `first` and `count` - 1 more, by the rule.

    Each of them then has work of few queries, and whoever comes next finds the rest as free as it counts.
    """
    taken = np.zeros(ledger.work_s.size, np.bool_)
    taken[first] = True
    for i in range(1, count):
        taken[pick(ledger, taken, rule, seed, query, i)] = True
    return ~taken


@kernel
def draw_placement(
    table: Table, graphs: Graphs, ledger: Ledger, job: int, rule: int, seed: np.uint64, query: int, out: Ints
) -> None:
    """Server of the first task by the rule; then a placement for every sub-graph, by its probability.

    A table of several plans says by the number of free servers which one is drawn from.
    Randomness: draws 0, 1, … of (seed, POLICY, query); even and odd ones belong to the rule.
    """
    servers = ledger.work_s.size
    used, none = np.empty(servers, np.bool_), np.zeros(servers, np.bool_)
    server_of = np.empty(servers + 1, np.int64)
    plans = table.entry.size // graphs.tasks.size
    planned = job * plans + (table.level[free_servers(ledger, table.unit_s)] if plans > 1 else 0)
    now = pick(ledger, none, rule, seed, query, 0)
    keep = table.keep[planned]
    others = keep_to(ledger, now, keep, rule, seed, query) if keep else none
    draw = max(1, keep)
    out[table.entry[planned]] = now
    give(ledger, now, graphs.work_ops[job, table.entry[planned]])
    for g in range(table.first_sub[planned], table.first_sub[planned + 1]):
        row = table.first_row[g]
        if row + 1 < table.first_row[g + 1]:
            chance = uniform_of(seed, POLICY, query, 2 * draw)
            draw += 1
            while chance > table.chance[row]:
                row += 1
        used[:] = others
        server_of[:] = -1
        used[now], server_of[0] = True, now
        for column in range(table.task.shape[1]):
            task = table.task[g, column]
            if task < 0:
                break
            part = table.part[row, column]
            if server_of[part] < 0:
                server_of[part] = pick(ledger, used, rule, seed, query, draw)
                used[server_of[part]] = True
                draw += 1
            out[task] = server_of[part]
            give(ledger, server_of[part], graphs.work_ops[job, task])
            now = server_of[part]  # the last column is the sink, the next root


@kernel
def scatter(
    graphs: Graphs, ledger: Ledger, job: int, rule: int, seed: np.uint64, query: int, out: Ints
) -> None:
    """Every task on a server of its own choice, by the rule."""
    used = np.zeros(ledger.work_s.size, np.bool_)
    for task in range(graphs.tasks[job]):
        out[task] = pick(ledger, used, rule, seed, query, task)
        give(ledger, out[task], graphs.work_ops[job, task])


@kernel
def earliest_finish(graphs: Graphs, ledger: Ledger, job: int, link_bps: float, out: Ints) -> None:
    """Tasks by falling upward rank, each where it would finish first (Topcuoglu et al., HEFT, 2002).

    A server is free when its outstanding work is done; a transfer takes S, without waiting.
    """
    free = ledger.work_s.copy()
    done = np.zeros(graphs.tasks[job])
    for i in range(graphs.tasks[job]):
        task = graphs.order[job, i]
        best, earliest = -1, np.inf
        for server in range(free.size):
            ready = free[server]
            for e in range(graphs.first_in[job, task], graphs.first_in[job, task + 1]):
                source = graphs.source[e]
                transfer = graphs.bits[e] / link_bps if out[source] != server else 0.0
                ready = max(ready, done[source] + transfer)
            end = ready + graphs.work_ops[job, task] / ledger.power_ops[server]
            if end < earliest:
                best, earliest = server, end
        out[task], done[task], free[best] = best, earliest, earliest
        give(ledger, best, graphs.work_ops[job, task])


@kernel
def place_query(
    table: Table,
    graphs: Graphs,
    ledger: Ledger,
    job: int,
    method: int,
    rule: int,
    link_bps: float,
    seed: np.uint64,
    query: int,
    out: Ints,
) -> None:
    """Server of every task of one query of class `job`, into `out`, and into the ledger."""
    if method == DRAW:
        draw_placement(table, graphs, ledger, job, rule, seed, query, out)
    elif method == SCATTER:
        scatter(graphs, ledger, job, rule, seed, query, out)
    else:
        earliest_finish(graphs, ledger, job, link_bps, out)


@kernel
def place_queries(
    table: Table,
    graphs: Graphs,
    ledger: Ledger,
    jobs: Ints,
    first: int,
    method: int,
    rule: int,
    link_bps: float,
    seed: np.uint64,
    out: Ints,
) -> None:
    """The same for queries `first`, `first` + 1, … of classes `jobs`, one after the other; `out`: (Q, T)."""
    for i in range(jobs.size):
        place_query(table, graphs, ledger, jobs[i], method, rule, link_bps, seed, first + i, out[i])
