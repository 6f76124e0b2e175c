"""Topologies of kind `edge-network`: ENTS's random network of edge nodes (section VI).

What the paper leaves open is fixed here, each with its reason:

- Speeds: effective rates of inference per core, 4 / 8 / 16 Gop/s for low / medium / high (Table I gives cores
  and classes only).
- Virtual machines: by turns 2 cores and 2 GB, 3 and 4, 2 and 2, 4 and 8; 62 of them take 248 of the 256 GB of
  both servers, so the largest network (70 nodes) is the whole test bed and small ones are parts of it.
- Bandwidth: normal around the mean with variance 0.3 at a mean of 1 Mbit/s, and the same relative spread at
  any mean; draws below a tenth of the mean are drawn again.

Forbidden here: I/O, and randomness other than keyed by the network's seed.
"""

from statistics import NormalDist

import numpy as np

from edgewise.arrays import Ints
from edgewise.model.grammar.generated import EdgeNetworkSpec
from edgewise.model.keyed import Purpose, uniform
from edgewise.model.topology import Cluster, Link, Node, Resources, Topology

LOW_OPS, MEDIUM_OPS, HIGH_OPS = 4e9, 8e9, 16e9  # per core
GB = 1e9
# (prefix, how many at most, cores, operations per core and second, memory)
PHYSICAL = (
    ("pi", 4, 1, LOW_OPS, 1.0 * GB),
    ("nano", 2, 6, LOW_OPS, 4.0 * GB),
    ("xavier", 2, 6, MEDIUM_OPS, 8.0 * GB),
)
VIRTUAL = ((2, 2.0 * GB), (3, 4.0 * GB), (2, 2.0 * GB), (4, 8.0 * GB))  # cores and memory, by turns
RELATIVE_DEVIATION = 0.3**0.5
LEAST_SHARE = 0.1  # of the mean bandwidth
MEAN_DEGREE = 3.0


def edge_network(spec: EdgeNetworkSpec) -> Topology:
    """A random connected network of mean degree 3 with the node classes of ENTS Table I, in one cluster."""
    nodes = _machines(spec.nodes)
    ends = random_links(spec.seed, spec.nodes, MEAN_DEGREE)
    normal = NormalDist(1.0, RELATIVE_DEVIATION)
    least = normal.cdf(LEAST_SHARE)  # drawing again below the least = drawing from what lies above it
    draws = uniform(spec.seed, Purpose.NETWORK, np.arange(len(ends)), 1 << 20)
    rates = spec.mean_bps * np.array([normal.inv_cdf(least + (1 - least) * float(u)) for u in draws])
    links = tuple(
        Link((nodes[one].name, nodes[other].name), bandwidth_bps=rate, shared=True)
        for (one, other), rate in zip(ends.tolist(), rates.tolist(), strict=True)
    )
    return Topology(clusters=(Cluster("edge", 0, nodes),), links=links)


def _machines(count: int) -> tuple[Node, ...]:
    rows = [
        (f"{prefix}{i}", cores, ops, memory)
        for prefix, many, cores, ops, memory in PHYSICAL
        for i in range(many)
    ]
    turns = ((i, *VIRTUAL[i % len(VIRTUAL)]) for i in range(count - len(rows)))
    rows += [(f"vm{i}", cores, HIGH_OPS, memory) for i, cores, memory in turns]
    return tuple(
        Node(name, "edge", Resources(cpu_cores=cores, memory_bytes=memory), cores * ops, cores)
        for name, cores, ops, memory in rows[:count]
    )


def random_links(seed: int, nodes: int, mean_degree: float) -> Ints:
    """(L, 2) distinct links of a random connected graph: a random tree, then random further pairs."""
    turn = np.argsort(uniform(seed, Purpose.NETWORK, np.arange(nodes), 0), kind="stable")
    to = uniform(seed, Purpose.NETWORK, np.arange(nodes), 1)
    chosen = {_pair(turn[i], turn[int(to[i] * i)]) for i in range(1, nodes)}
    wanted = min(round(mean_degree * nodes / 2), nodes * (nodes - 1) // 2)
    counter = 0
    while len(chosen) < wanted:
        one, other = (uniform(seed, Purpose.NETWORK, [0, 1], 2 + counter) * nodes).astype(np.int64)
        counter += 1
        if one != other:
            chosen.add(_pair(one, other))
    return np.array(sorted(chosen), dtype=np.int64)


def _pair(one: np.int64, other: np.int64) -> tuple[int, int]:
    return min(int(one), int(other)), max(int(one), int(other))
