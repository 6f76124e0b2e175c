"""Workers onto nodes: a stated number, as many as fit, or a mix of variants until nothing fits.

Forbidden here: I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgewise.model.catalog import Catalog
from edgewise.model.grammar.places import WorkerSpec
from edgewise.model.problems import nearest
from edgewise.model.resources import KINDS
from edgewise.model.topology import Cluster, Node, Worker

Placed = list[tuple[str, str]]  # (variant, node)
SLACK = 1e-9  # relative, so that ten workers of 0.1 cores fit one core
MOST_WORKERS = 100_000


def deploy(
    specs: Sequence[WorkerSpec], catalog: Catalog, clusters: Sequence[Cluster], problems: list[str]
) -> tuple[Worker, ...]:
    """Place workers in order, first fit; what has been placed before keeps its resources."""
    left = {node.name: list(node.resources.as_tuple()) for c in clusters for node in c.nodes}
    total = {node.name: node.resources.as_tuple() for c in clusters for node in c.nodes}
    placed: list[tuple[str, str]] = []
    for i, spec in enumerate(specs):
        need = catalog.variant(spec.variant).resources.as_tuple()
        nodes = (
            [spec.node]
            if spec.node
            else [n.name for c in clusters if c.name == spec.cluster for n in c.nodes]
        )
        if spec.count == "fill" and not any(need):
            problems.append(
                f"workers[{i}].count: 'fill' never ends, variant {spec.variant!r} reserves nothing; "
                "give it resources or a number"
            )
            continue
        wanted = MOST_WORKERS if spec.count == "fill" else int(spec.count)
        done = 0
        for node in nodes:
            while done < wanted and fits(need, left[node], total[node]):
                left[node] = [have - take for have, take in zip(left[node], need, strict=True)]
                placed.append((spec.variant, node))
                done += 1
        if done < wanted and (spec.count != "fill" or done == 0):
            problems.append(_does_not_fit(i, spec, need, nodes, left, done))
    return named(placed)


def fits(need: Sequence[float], left: Sequence[float], total: Sequence[float]) -> bool:
    """Whether `need` is left, up to rounding."""
    return all(n <= have + SLACK * all_ for n, have, all_ in zip(need, left, total, strict=True))


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
    place = f"node {spec.node!r}" if spec.node else f"cluster {spec.cluster!r}"
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
    known = {variant.name: variant for variant in catalog.variants}
    before = len(problems)
    for name in mix:
        if name not in known:
            problems.append(f"{where}: unknown variant {name!r}; {nearest(name, known)}")
        elif not any(known[name].resources.as_tuple()):
            problems.append(
                f"{where}: variant {name!r} reserves nothing, so nothing limits it; give it resources"
            )
    return len(problems) == before
