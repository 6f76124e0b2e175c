"""Workers onto nodes: a stated number, as many as fit, a mix until nothing fits; and pools that come and go.

Forbidden here: I/O, and stopping at the first problem: they are collected in a list.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np

from edgewise.model.grammar.places import WorkerSpec
from edgewise.model.kinds import meant
from edgewise.model.problems import known
from edgewise.model.served import ServedBy
from edgewise.model.topology import KINDS, Catalog, Cluster, Node, Pool, Worker, have_room

Placed = list[tuple[str, str]]  # (variant, node)
MOST_WORKERS = 100_000


def deploy(
    specs: Sequence[WorkerSpec], catalog: Catalog, clusters: Sequence[Cluster], problems: list[str]
) -> tuple[tuple[Worker, ...], tuple[Pool, ...]]:
    """Place workers in order; what has been placed before keeps its resources.

    A node takes all that a form says, and so does each node of a kind of cluster; over the nodes of one
    cluster they are spread, first fit. Behind these come the workers that may start beside or in place of
    those that come and go: as many on each node as its fixed workers leave room for.

    Returns:
        Workers, and the pools that some belong to.
    """
    left = {node.name: list(node.resources.as_tuple()) for c in clusters for node in c.nodes}
    total = {node.name: node.resources.as_tuple() for c in clusters for node in c.nodes}
    placed, for_good = Placed(), set[tuple[str, str]]()
    pools, fixed = list[Pool](), {node: list(all_) for node, all_ in total.items()}
    served = list[ServedBy | None]()  # of those that are placed
    for i, spec in enumerate(specs):
        need = catalog.variant(spec.variant).resources.as_tuple()
        if (spec.count == "fill" or spec.scales) and not any(need):
            problems.append(
                f"workers[{i}].count: {'most' if spec.scales else repr(spec.count)} never ends, variant "
                f"{spec.variant!r} reserves nothing; give it resources or a number"
            )
            continue
        wanted = MOST_WORKERS if spec.count == "fill" else int(spec.count)
        for nodes in _where(spec, clusters):
            done = 0
            for node in nodes:
                while done < wanted and fits(need, left[node], total[node]):
                    for room in (left,) if spec.scales else (left, fixed):
                        room[node] = [have - take for have, take in zip(room[node], need, strict=True)]
                    placed.append((spec.variant, node))
                    served.append(_served(spec))
                    for_good |= set() if spec.scales else {(spec.variant, node)}
                    done += 1
            if done < wanted and (spec.count != "fill" or done == 0):
                problems.append(_does_not_fit(i, spec, need, nodes, left, done))
                break
        if spec.scales:
            pools += _pools(i, spec, clusters, problems)
    _check_pools(pools, for_good, problems)
    workers = _with_pools(placed, pools, catalog, fixed, total)
    others = [replace(worker, served_by=by) for worker, by in zip(workers, served, strict=False)]
    return (*others, *workers[len(others) :]), tuple(pools)


def _served(spec: WorkerSpec) -> ServedBy | None:
    if (by := spec.served_by) is None:
        return None
    return ServedBy(tuple(sorted((by.selector or {}).items())), by.namespace, by.port, by.url, by.model)


def _pools(i: int, spec: WorkerSpec, clusters: Sequence[Cluster], problems: list[str]) -> Iterable[Pool]:
    """Of the node, or of each cluster that a form names."""
    least = 1 if spec.least is None else spec.least
    if spec.node is not None:
        found: dict[str, tuple[str, ...]] = {spec.node: (spec.node,)}
        first = int(spec.count)
    else:
        of = meant(str(spec.cluster), clusters)
        found = {c.name: tuple(node.name for node in c.nodes) for c in of}
        each = spec.cluster not in [c.name for c in clusters]
        first = int(spec.count) * (max(map(len, found.values())) if each else 1)
    for name, nodes in found.items():
        if not least <= first <= (spec.most or MOST_WORKERS):
            problems.append(
                f"workers[{i}].count: {first} of {spec.variant!r} in {name!r} at first, where least is "
                f"{least} and most {spec.most or 'what fits'}; give a number between"
            )
            return
        yield Pool(f"{spec.variant}@{name}", spec.variant, nodes, least, spec.most or MOST_WORKERS)


def _check_pools(pools: Sequence[Pool], for_good: Set[tuple[str, str]], problems: list[str]) -> None:
    """A variant that comes and goes on a node is placed there by no other form."""
    mine = Counter((pool.variant, node) for pool in pools for node in pool.nodes)
    for (variant, node), count in mine.items():
        if count > 1 or (variant, node) in for_good:
            problems.append(
                f"workers: {variant!r} comes and goes on {node!r}, and another form places it there too; "
                "leave one of them out"
            )
            return


def _with_pools(
    placed: Placed,
    pools: Sequence[Pool],
    catalog: Catalog,
    fixed: Mapping[str, Sequence[float]],
    total: Mapping[str, Sequence[float]],
) -> tuple[Worker, ...]:
    """Workers that are there at first, and those that may start; `fixed`: what is left beside fixed ones."""
    pool_of = {(pool.variant, node): pool for pool in pools for node in pool.nodes}
    at_first, more = Counter(placed), Placed()
    for (variant, node), pool in pool_of.items():
        need, left, count = catalog.variant(variant).resources.as_tuple(), list(fixed[node]), 0
        while count < pool.most and fits(need, left, total[node]):
            left = [have - take for have, take in zip(left, need, strict=True)]
            count += 1
        more += [(variant, node)] * (count - at_first[variant, node])
    return tuple(
        replace(worker, at_first=k < len(placed), pool=pool_of[place].name if place in pool_of else None)
        for k, (worker, place) in enumerate(zip(named([*placed, *more]), [*placed, *more], strict=True))
    )


def _where(spec: WorkerSpec, clusters: Sequence[Cluster]) -> list[list[str]]:
    """Groups of nodes, each of which takes `count` workers: a node, those of a cluster, each of a kind."""
    if spec.node is not None:
        return [[spec.node]]
    of = [[node.name for node in c.nodes] for c in meant(str(spec.cluster), clusters)]
    is_one = spec.cluster in [c.name for c in clusters]
    return of if is_one else [[name] for names in of for name in names]


def fits(need: Sequence[float], left: Sequence[float], total: Sequence[float]) -> bool:
    """Whether `need` is left, up to rounding: ten workers of 0.1 cores fit one core."""
    return bool(have_room(np.array(need), np.array(left), np.array(total)).all())


def _does_not_fit(
    i: int,
    spec: WorkerSpec,
    need: Sequence[float],
    nodes: Sequence[str],
    left: dict[str, list[float]],
    done: int,
) -> str:
    """What is missing on the node that has the most room."""

    def lacking(node: str) -> list[str]:
        return [
            f"{kind} needs {n:g}, {max(have, 0.0):g} left"
            for kind, n, have in zip(KINDS, need, left[node], strict=True)
            if n > have
        ]

    best = min(nodes, key=lambda node: len(lacking(node)))
    each = spec.cluster is not None and len(nodes) == 1
    place = f"node {nodes[0]!r}" if spec.node or each else f"cluster {spec.cluster!r}"
    return (
        f"workers[{i}].count: {done} of {spec.count} workers of {spec.variant!r} fit {place}; "
        f"on {best!r} {', '.join(lacking(best))}; lower count or add resources"
    )


def named(placed: Sequence[tuple[str, str]]) -> tuple[Worker, ...]:
    """variant@node, numbered where a node has several workers of one variant."""
    several = Counter(placed)
    seen: dict[tuple[str, str], int] = {}
    workers = []
    for pair in placed:
        variant, node = pair
        number = seen.get(pair, 0)
        seen[pair] = number + 1
        workers.append(
            Worker(f"{variant}@{node}" + (f"#{number}" if several[pair] > 1 else ""), variant, node)
        )
    return tuple(workers)


def fill(nodes: Sequence[Node], mix: Mapping[str, float], catalog: Catalog) -> Placed:
    """Fill the nodes of a cluster, one after the other, with a mix of variants until nothing fits.

    Each turn places the variant whose number in the cluster, divided by its share, is least among
    those that fit the node (ties: the earlier in the mix). So variants that compete for the same
    resource keep their shares, and no resource stays free that a variant of the mix could use.

    Args:
        mix: variant name → share > 0; every variant reserves something.
    """
    need = {name: catalog.variant(name).resources.as_tuple() for name in mix}
    count = dict.fromkeys(mix, 0)
    placed: Placed = []
    for node in nodes:
        total = node.resources.as_tuple()
        left = list(total)
        while fitting := [name for name in mix if fits(need[name], left, total)]:
            name = min(fitting, key=lambda name: count[name] / mix[name])
            left = [have - take for have, take in zip(left, need[name], strict=True)]
            count[name] += 1
            placed.append((name, node.name))
    return placed


def check_mix(where: str, mix: Mapping[str, float], catalog: Catalog, problems: list[str]) -> bool:
    """Whether every variant of a mix exists and reserves something; else problems are added."""
    needs = {variant.name: variant.resources.as_tuple() for variant in catalog.variants}
    before = len(problems)
    for name in mix:
        known(where, "variant", name, needs, problems)
        if not any(needs.get(name, (1.0,))):
            problems.append(
                f"{where}: variant {name!r} reserves nothing, so nothing limits it; give it resources"
            )
    return len(problems) == before
