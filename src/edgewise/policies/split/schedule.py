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
from edgewise.policies.split.program import ServerChoice
from edgewise.policies.split.tables import Graphs, Table

FIRST_PICK = 1_000  # on a layout, draws of servers come after those of placements


class Method(IntEnum):
    """How the tasks of a query are placed."""

    DRAW = 0
    SCATTER = 1
    EARLIEST_FINISH = 2


class Ledger(NamedTuple):
    """What this scheduler has given to each server and is not finished yet.

    Attributes:
        work_s: (S,) outstanding work over the server's power.
        tasks: (S,) outstanding tasks.
        power_ops: (S,) operations per second.
    """

    work_s: Floats
    tasks: Ints
    power_ops: Floats

    def copy(self) -> Ledger:
        """One that may be changed."""
        return Ledger(self.work_s.copy(), self.tasks.copy(), self.power_ops)

    def change(self, servers: Ints, work_ops: Floats, sign: int = 1) -> None:
        """(T,) tasks are placed on `servers`; with -1 they are done."""
        np.add.at(self.tasks, servers, sign)
        np.add.at(self.work_s, servers, sign * work_ops / self.power_ops[servers])


class Choice(NamedTuple):
    """How a server is chosen among those that may be.

    Attributes:
        rule: a `ServerChoice`.
        seed: of the draws.
        turn: (1,) position of the round robin.
    """

    rule: int
    seed: np.uint64
    turn: Ints


class SplitRule(NamedTuple):
    """A policy as kernels read it.

    Attributes:
        table, graphs: what it draws from, and the classes of queries.
        method: a `Method`.
        link_bps: for methods that estimate transfers.
        choice: of servers.
    """

    table: Table
    graphs: Graphs
    method: int
    link_bps: float
    choice: Choice


def new_ledger(power_ops: Floats) -> Ledger:
    """Idle servers of these powers."""
    power = np.asarray(power_ops, dtype=np.float64)
    return Ledger(np.zeros(power.size), np.zeros(power.size, np.int64), power)


UNIFORM, ROUND_ROBIN, LEAST_LOADED = (
    int(ServerChoice.UNIFORM),
    int(ServerChoice.ROUND_ROBIN),
    int(ServerChoice.LEAST_LOADED),
)
SHORTEST_QUEUE, TWO_CHOICES = int(ServerChoice.SHORTEST_QUEUE), int(ServerChoice.TWO_CHOICES)
DRAW, SCATTER = int(Method.DRAW), int(Method.SCATTER)
POLICY = int(Purpose.POLICY)


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
def pick(choice: Choice, ledger: Ledger, used: Bools, query: int, draw: int) -> int:
    """A server that is not used; there is one. Ties go to the first after a random place."""
    servers, rule, seed = used.size, choice.rule, choice.seed
    if rule == ROUND_ROBIN:
        server = choice.turn[0] % servers
        while used[server]:
            server = (server + 1) % servers
        choice.turn[0] = server + 1
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
def keep_to(choice: Choice, ledger: Ledger, first: int, count: int, query: int) -> Bools:
    """(S,) servers that a query leaves to others: all but `first` and `count` - 1 more, by the rule.

    Each of them then has work of few queries, and whoever comes next finds the rest as free as it counts.
    """
    taken = np.zeros(ledger.work_s.size, np.bool_)
    taken[first] = True
    for i in range(1, count):
        taken[pick(choice, ledger, taken, query, i)] = True
    return ~taken


@kernel
def draw_placement(rule: SplitRule, ledger: Ledger, job: int, query: int, out: Ints) -> None:
    """Server of the first task by the rule; then a placement for every sub-graph, by its probability.

    A table of several plans says by the number of free servers which one is drawn from.
    Randomness: draws 0, 1, … of (seed, POLICY, query); even and odd ones belong to the rule.
    """
    table, graphs, choice, servers = rule.table, rule.graphs, rule.choice, ledger.work_s.size
    used, none = np.empty(servers, np.bool_), np.zeros(servers, np.bool_)
    server_of = np.empty(servers + 1, np.int64)
    plans = table.entry.size // graphs.tasks.size
    planned = job * plans + (table.level[free_servers(ledger, table.unit_s)] if plans > 1 else 0)
    now = pick(choice, ledger, none, query, 0)
    keep = table.keep[planned]
    others = keep_to(choice, ledger, now, keep, query) if keep else none
    draw = max(1, keep)
    out[table.entry[planned]] = now
    give(ledger, now, graphs.work_ops[job, table.entry[planned]])
    for g in range(table.first_sub[planned], table.first_sub[planned + 1]):
        row = table.first_row[g]
        if row + 1 < table.first_row[g + 1]:
            chance = uniform_of(choice.seed, POLICY, query, 2 * draw)
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
                server_of[part] = pick(choice, ledger, used, query, draw)
                used[server_of[part]] = True
                draw += 1
            out[task] = server_of[part]
            give(ledger, server_of[part], graphs.work_ops[job, task])
            now = server_of[part]  # the last column is the sink, the next root


@kernel
def scatter(rule: SplitRule, ledger: Ledger, job: int, query: int, out: Ints) -> None:
    """Every task on a server of its own choice, by the rule."""
    used = np.zeros(ledger.work_s.size, np.bool_)
    for task in range(rule.graphs.tasks[job]):
        out[task] = pick(rule.choice, ledger, used, query, task)
        give(ledger, out[task], rule.graphs.work_ops[job, task])


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
def place_query(rule: SplitRule, ledger: Ledger, job: int, query: int, out: Ints) -> None:
    """Server of every task of one query of class `job`, into `out`, and into the ledger."""
    if rule.method == DRAW:
        draw_placement(rule, ledger, job, query, out)
    elif rule.method == SCATTER:
        scatter(rule, ledger, job, query, out)
    else:
        earliest_finish(rule.graphs, ledger, job, rule.link_bps, out)


@kernel
def lay_out(rule: SplitRule, ledger: Ledger, job: int, query: int, out: Ints) -> None:
    """The same on a layout: a placement for each sub-graph, given the group of its root, then servers.

    Tasks that share a server have a *slot*; slots of a sub-graph are numbered after its root's. A slot gets a
    server of its group by the rule, other than those of its sub-graph's slots so far.
    Randomness: draw i of (seed, POLICY, query) for the i-th sub-graph, then those of the rule.
    """
    table, servers = rule.table, ledger.work_s.size
    most = 1 + table.group.shape[1] * (table.first_sub[job + 1] - table.first_sub[job])
    group, root, begin = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    slot_of = np.empty(out.size, np.int64)
    now, slots = -1, 0
    for g in range(table.first_sub[job], table.first_sub[job + 1]):
        target, total, row = 0.0, 0.0, table.first_row[g]
        for r in range(row, table.first_row[g + 1]):
            if now < 0 or table.group[r, 0] == group[now]:
                target += table.chance[r]
        target *= uniform_of(rule.choice.seed, POLICY, query, g - table.first_sub[job])
        for row in range(table.first_row[g], table.first_row[g + 1]):
            if now < 0 or table.group[row, 0] == group[now]:
                total += table.chance[row]
            if total > target:
                break
        if now < 0:
            group[0], root[0], begin[0], now, slots = table.group[row, 0], 0, 0, 0, 1
            slot_of[table.entry[job]] = 0
        first, sink = slots, now
        for part in range(1, table.group.shape[1]):
            if table.group[row, part] >= 0:
                group[slots], root[slots], begin[slots] = table.group[row, part], now, first
                slots += 1
        for column in range(table.task.shape[1]):
            if table.task[g, column] >= 0:
                part = table.part[row, column]
                slot_of[table.task[g, column]] = now if part == 0 else first + part - 1
                sink = slot_of[table.task[g, column]]
        now = sink
    used, server = np.empty(servers, np.bool_), np.empty(most, np.int64)
    for slot in range(slots):
        used[:] = True
        used[table.first_server[group[slot]] : table.first_server[group[slot] + 1]] = False
        used[server[begin[slot] : slot]] = True
        if root[slot] < slot:
            used[server[root[slot]]] = True
        server[slot] = pick(rule.choice, ledger, used, query, FIRST_PICK + slot)
        for task in range(rule.graphs.tasks[job]):
            if slot_of[task] == slot:
                out[task] = server[slot]
                give(ledger, server[slot], rule.graphs.work_ops[job, task])
