"""Nona by the state of the servers: a plan for each number of free servers, all optimised together.

Nona's formula draws from one plan, whatever goes on. Splitting pays while servers are free and costs when
they are not, so here a query that finds f servers free draws from a plan that uses at most ⌊share f⌋ of
them, and at least one. Which servers wait between two tasks of a query changes all the time; so f is
counted from the outstanding work: a query that runs is half done on average, and so much work is one
busy server. With p_f the chance of finding f free, class j becomes one class for each f, of
rate β_j p_f: the formula and its certified optimum stay as they are, the link is shared by all.

The query then *keeps to* as many servers as its plan needs: the parts of all its sub-graphs share them. If
every sub-graph chose anew, a query of few parts at a time would in the end have tasks on nearly all servers;
whoever comes next would find none free, and long tasks of others would stand in its way.

    p_f: number of busy servers in M/M/c at the same load (Erlang, 1917)
"""

from dataclasses import replace

import numpy as np

from edgewise.arrays import Ints
from edgewise.errors import PolicyError
from edgewise.policies.split.placements import Lines
from edgewise.policies.split.program import Group, SplitProgram, assemble, free_chances

SHARE = 0.3
HALF_DONE = 0.5  # of the mean work of a query: outstanding work that counts as one busy server
RARE = 1e-6  # rates of 0 are refused


def mean_work_s(program: SplitProgram) -> float:
    """Mean time that a query needs on one server."""
    work = [sum(task.work_ops for task in job.graph.tasks) for job in program.classes]
    return float(program.rates_qps @ np.array(work)) / program.power_ops / float(program.rates_qps.sum())


def useful_servers(program: SplitProgram) -> int:
    """More servers than this no placement uses."""
    return max([1, *(int(group.lines.part.max()) + 1 for group in program.groups)])


def levels(program: SplitProgram, share: float = SHARE) -> Ints:
    """(servers + 1,) which plan is drawn from when so many servers are free: that for level + 1 servers.

    Raises:
        PolicyError: `share` is not from 0 to 1.
    """
    if not 0.0 <= share <= 1.0:
        raise PolicyError(f"share must be from 0 to 1, got {share}")
    used = np.floor(share * np.arange(program.servers + 1) + 1e-9)
    return np.asarray(np.clip(used, 1, useful_servers(program)).astype(np.int64) - 1)


def by_free(program: SplitProgram, share: float = SHARE) -> SplitProgram:
    """The program whose class j * L + l is class j while the plan for l + 1 servers applies.

    Args:
        program: with or without `queues`; its waits for servers are left out, for a plan is used only
            while as many servers are free.
        share: of the free servers that a query may take.
    """
    level = levels(program, share)
    chances = free_chances(mean_work_s(program) * float(program.rates_qps.sum()), program.servers)
    weight = np.maximum(np.bincount(level, weights=chances), RARE)
    count = len(weight)
    classes = tuple(
        replace(job, rate_qps=job.rate_qps * float(chance)) for job in program.classes for chance in weight
    )
    groups = tuple(
        Group(group.job * count + number, group.subgraphs, _within(group.lines, number + 1))
        for group in program.groups
        for number in range(count)
    )
    fixed = np.repeat(program.fixed_s, count)
    return assemble(
        classes, program.servers, program.power_ops, program.link_bps, groups, fixed, program.queues
    )


def _within(lines: Lines, servers: int) -> Lines:
    """The placements that use at most so many servers, which are free: nobody waits for them."""
    keep = lines.part.max(axis=1) < servers
    kept = Lines(*(column[keep] for column in lines))
    return kept._replace(visits=np.zeros_like(kept.visits))
