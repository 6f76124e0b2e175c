"""Queries of split models, as they come in simulation and live."""

from collections.abc import Sequence

import numpy as np

from edgewise.arrays import Floats, Ints
from edgewise.core.keyed import Purpose, uniform
from edgewise.model.grammar.pipelines import GraphSpec


def query_count(graphs: Sequence[GraphSpec], duration_s: float) -> int:
    """How many queries a run has: as many as come on average, so that all runs have the same number."""
    return max(1, round(sum(graph.rate_qps for graph in graphs) * duration_s))


def split_queries(graphs: Sequence[GraphSpec], duration_s: float, seed: int) -> tuple[Floats, Ints]:
    """((Q,) times, (Q,) graphs) of a run's queries."""
    return poisson_queries([graph.rate_qps for graph in graphs], query_count(graphs, duration_s), seed)


def poisson_queries(rates_qps: Sequence[float] | Floats, queries: int, seed: int) -> tuple[Floats, Ints]:
    """((Q,) times, (Q,) classes) of Poisson arrivals; class j comes at rates_qps[j]."""
    number = np.arange(queries)
    rates = np.asarray(rates_qps, dtype=float)
    gaps = -np.log(uniform(seed, Purpose.ARRIVAL, number, 0)) / rates.sum()
    bounds = np.cumsum(rates) / rates.sum()
    job = np.searchsorted(bounds[:-1], uniform(seed, Purpose.ARRIVAL, number, 1))
    return np.cumsum(gaps), job.astype(np.int64)
