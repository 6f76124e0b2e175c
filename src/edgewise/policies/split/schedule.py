"""Kernels that place the tasks of a query on servers, a few hundred nanoseconds each.

A placement says who shares a server; the *rule* then says which server. All policies use the same rule,
so that what is compared is how they split, not how they balance.
"""

import math
from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Ints
from edgewise.core.keyed import Purpose, uniform_of
from edgewise.core.split import Ledger, give
from edgewise.kernels.compiled import kernel
from edgewise.policies.split.program import ServerChoice
from edgewise.policies.split.tables import Graphs, Groups, Table

FIRST_PICK = 1_000  # on a layout, draws of servers come after those of placements


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
    """A policy as kernels read it; what it does not use is None, and its code is not compiled.

    Attributes:
        graphs: the classes of queries.
        choice: of servers.
        table: what it draws from.
        groups: of servers, where they are not equal.
        link_bps: of `earliest_finish`, which estimates transfers. Without it and `table` tasks are scattered.
    """

    graphs: Graphs
    choice: Choice
    table: Table | None = None
    groups: Groups | None = None
    link_bps: float | None = None


UNIFORM, ROUND_ROBIN, LEAST_LOADED = (
    int(ServerChoice.UNIFORM),
    int(ServerChoice.ROUND_ROBIN),
    int(ServerChoice.LEAST_LOADED),
)
SHORTEST_QUEUE, TWO_CHOICES = int(ServerChoice.SHORTEST_QUEUE), int(ServerChoice.TWO_CHOICES)
POLICY = int(Purpose.POLICY)


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
    free = 0
    for i in range(servers):
        free += not used[i]
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
    work_s = 0.0
    for server in range(ledger.work_s.size):
        work_s += ledger.work_s[server]
    return max(0, ledger.work_s.size - math.ceil(work_s / unit_s - 1e-9))


@kernel
def draw_placement(
    table: Table, graphs: Graphs, choice: Choice, ledger: Ledger, job: int, query: int, out: Ints
) -> None:
    """Server of the first task by the rule; then a placement for every sub-graph, by its probability.

    A table of several plans says by the number of free servers which one is drawn from. Where it says so, a
    query keeps to some servers, by the rule, and leaves all others to others: each then has work of few
    queries, and whoever comes next finds the rest as free as it counts.
    Randomness: draws 0, 1, … of (seed, POLICY, query); even and odd ones belong to the rule.
    """
    servers = ledger.work_s.size
    used, others = np.zeros(servers, np.bool_), np.zeros(servers, np.bool_)
    server_of = np.empty(servers + 1, np.int64)
    plans = table.entry.size // graphs.tasks.size
    planned = job * plans + (table.level[free_servers(ledger, table.unit_s)] if plans > 1 else 0)
    now = pick(choice, ledger, others, query, 0)
    keep = table.keep[planned]
    if keep > 0:
        used[now] = True
        for i in range(1, keep):
            used[pick(choice, ledger, used, query, i)] = True
        for server in range(servers):
            others[server] = not used[server]
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
        for server in range(servers):
            used[server] = others[server]
            server_of[server + 1] = -1
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
def scatter(graphs: Graphs, choice: Choice, ledger: Ledger, job: int, query: int, out: Ints) -> None:
    """Every task on a server of its own choice, by the rule."""
    used = np.zeros(ledger.work_s.size, np.bool_)
    for task in range(graphs.tasks[job]):
        out[task] = pick(choice, ledger, used, query, task)
        give(ledger, out[task], graphs.work_ops[job, task])


@kernel
def earliest_finish(graphs: Graphs, ledger: Ledger, job: int, link_bps: float, out: Ints) -> None:
    """Tasks by falling upward rank, each where it would finish first (Topcuoglu et al., HEFT, 2002).

    A server is free when its outstanding work is done; a transfer takes S, without waiting.
    """
    free, done = np.empty(ledger.work_s.size), np.zeros(graphs.tasks[job])
    for server in range(free.size):
        free[server] = ledger.work_s[server]
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
    """Server of every task of one query of class `job`, into `out`; the ledger stays as it is."""
    place_beside(rule, ledger, beside(ledger), job, query, out)


@kernel
def beside(ledger: Ledger) -> Ledger:
    """Room for what a query adds."""
    return Ledger(np.empty(ledger.work_s.size), np.empty(ledger.work_s.size, np.int64), ledger.power_ops)


@kernel
def place_beside(rule: SplitRule, ledger: Ledger, given: Ledger, job: int, query: int, out: Ints) -> None:
    """`place_query`; `given` receives the ledger with the tasks of this query."""
    for server in range(given.tasks.size):
        given.work_s[server], given.tasks[server] = ledger.work_s[server], ledger.tasks[server]
    _place(rule.table, rule.groups, rule.link_bps, rule, given, job, query, out)


@kernel
def _place(
    table: Table | None, groups: Groups | None, link_bps: float | None,
    rule: SplitRule, ledger: Ledger, job: int, query: int, out: Ints,
) -> None:  # fmt: skip
    """What of the first three is None, in the type of the rule, decides what is compiled."""
    graphs, choice = rule.graphs, rule.choice
    if table is not None:
        if groups is not None:
            lay_out(table, groups, graphs, choice, ledger, job, query, out)
        else:
            draw_placement(table, graphs, choice, ledger, job, query, out)
    elif link_bps is not None:
        earliest_finish(graphs, ledger, job, link_bps, out)
    else:
        scatter(graphs, choice, ledger, job, query, out)


@kernel
def lay_out(
    table: Table,
    groups: Groups,
    graphs: Graphs,
    choice: Choice,
    ledger: Ledger,
    job: int,
    query: int,
    out: Ints,
) -> None:
    """The same on a layout: a placement for each sub-graph, given the group of its root, then servers.

    Tasks that share a server have a *slot*; slots of a sub-graph are numbered after its root's. A slot gets a
    server of its group by the rule, other than those of its sub-graph's slots so far.
    Randomness: draw i of (seed, POLICY, query) for the i-th sub-graph, then those of the rule.
    """
    servers = ledger.work_s.size
    most = 1 + groups.group.shape[1] * (table.first_sub[job + 1] - table.first_sub[job])
    group, root, begin = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    slot_of = np.empty(out.size, np.int64)
    now, slots = -1, 0
    for g in range(table.first_sub[job], table.first_sub[job + 1]):
        target, total, row = 0.0, 0.0, table.first_row[g]
        for r in range(row, table.first_row[g + 1]):
            if now < 0 or groups.group[r, 0] == group[now]:
                target += table.chance[r]
        target *= uniform_of(choice.seed, POLICY, query, g - table.first_sub[job])
        for row in range(table.first_row[g], table.first_row[g + 1]):
            if now < 0 or groups.group[row, 0] == group[now]:
                total += table.chance[row]
            if total > target:
                break
        if now < 0:
            group[0], root[0], begin[0], now, slots = groups.group[row, 0], 0, 0, 0, 1
            slot_of[table.entry[job]] = 0
        first, sink = slots, now
        for part in range(1, groups.group.shape[1]):
            if groups.group[row, part] >= 0:
                group[slots], root[slots], begin[slots] = groups.group[row, part], now, first
                slots += 1
        for column in range(table.task.shape[1]):
            if table.task[g, column] >= 0:
                part = table.part[row, column]
                slot_of[table.task[g, column]] = now if part == 0 else first + part - 1
                sink = slot_of[table.task[g, column]]
        now = sink
    used, server = np.empty(servers, np.bool_), np.empty(most, np.int64)
    for slot in range(slots):
        for i in range(servers):
            used[i] = not groups.first_server[group[slot]] <= i < groups.first_server[group[slot] + 1]
        for i in range(begin[slot], slot):
            used[server[i]] = True
        if root[slot] < slot:
            used[server[root[slot]]] = True
        server[slot] = pick(choice, ledger, used, query, FIRST_PICK + slot)
        for task in range(graphs.tasks[job]):
            if slot_of[task] == slot:
                out[task] = server[slot]
                give(ledger, server[slot], graphs.work_ops[job, task])
