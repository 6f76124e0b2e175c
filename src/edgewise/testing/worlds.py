"""Small worlds to try policies on: workers, streams, and a textbook queue."""

from dataclasses import replace
from typing import Any

import numpy as np

from edgewise.core import keyed
from edgewise.core.world import World
from edgewise.model.catalog import Catalog, Model, Profile, Resources, Variant
from edgewise.model.scenario import Scenario, parse_scenario
from edgewise.model.topology import Cable, Cluster, Node, Site, Topology, Way, Worker
from edgewise.model.work import Stream

LAW: dict[str, Any] = {"distribution": "exponential", "deviation": 0.0, "batch_slope": 0.0}


def small_world(workers: int = 6, sites: int = 2, wan_bps: float | None = None) -> World:
    """A world for tests: `workers` workers of two tasks on three clusters, all different.

    Args:
        wan_bps: messages share links, a wide one of each site and one of this rate to all clusters but the
            first; None: they share none.
    """
    models = tuple(Model(f"model-{k}", "detect" if k % 3 else "classify", 10.0 + 10.0 * k) for k in range(4))
    variants = tuple(
        Variant(
            name=f"variant-{k}",
            model=f"model-{k % 4}",
            resources=Resources(1.0),
            profile=Profile(0.01 * (k % 5 + 1), 1e-8),
            capacity_qps=20.0 + 5 * k,
            largest_bytes=1e6,
        )
        for k in range(workers)
    )
    clusters = tuple(
        Cluster(f"cluster-{c}", c, (Node(f"node-{c}", f"cluster-{c}", Resources(1000.0)),)) for c in range(3)
    )
    cables = (
        () if wan_bps is None else (Cable("wan", wan_bps), *(Cable(f"lan-{s}", 1e9) for s in range(sites)))
    )
    ways = tuple(
        Way(
            f"site-{s}",
            f"cluster-{c}",
            0.002 + 0.01 * c + 0.001 * s,
            0.001,
            min(1e9, wan_bps if wan_bps and c else 1e9),
            (f"lan-{s}", "wan")[: 1 + (c > 0)] if cables else (),
        )
        for s in range(sites)
        for c in range(3)
    )
    deployed = tuple(Worker(f"worker-{k}", f"variant-{k}", f"node-{k % 3}") for k in range(workers))
    site_list = tuple(Site(f"site-{s}", 0.001, 1e8) for s in range(sites))
    topology = Topology(site_list, clusters, ways, deployed, cables=cables)
    return World.build(Catalog(models, variants), topology, "fifo" if cables else "none")


def queue_scenario(
    rate_qps: float,
    service_s: float,
    seconds: float,
    *,
    servers: int = 1,
    max_batch: int = 1,
    batch_timeout_s: float = 0.0,
    poisson: bool = True,
    **law: Any,
) -> tuple[Scenario, list[Stream]]:
    """One stream on one worker with no network: a textbook queue that runs as any scenario does.

    Args:
        law: of service, fields of `Profile` where it is not exponential, without deviation and batch_slope.
    Returns:
        The scenario, and its one stream; hand both to `Simulation`.
    """
    size_bytes = 1e-9  # next to nothing to carry
    data = {
        "name": "queue",
        "duration_s": seconds,
        "window_s": seconds,
        "telemetry": {"period_s": seconds},
        "catalog": {
            "models": [{"name": "m", "task": "t", "accuracy": 1}],
            "variants": [
                {
                    "name": "v",
                    "model": "m",
                    "profile": {"fixed_s": service_s},
                    "servers": servers,
                    "max_batch": max_batch,
                    "largest_bytes": 1,
                }
            ],
        },
        "clusters": [{"name": "c", "tier": 0, "nodes": [{"name": "n", "resources": {}}]}],
        "sites": [{"name": "s", "uplink_bps": 1e15}],
        "links": [{"site": "s", "cluster": "c", "delay_s": 0, "bandwidth_bps": 1e15}],
        "workers": [{"variant": "v", "node": "n"}],
        "streams": {
            "applications": [
                {"name": "a", "task": "t", "rate_qps": 1, "size_bytes": 1, "deadline_s": 1, "length_s": 1}
            ],
            "arrivals": {"clients_per_min": 1},
        },
    }
    scenario = parse_scenario(data, "queue")
    (variant,) = scenario.catalog.variants
    profile = replace(variant.profile, **LAW | law)
    # Capacity without bound: the stream is admitted at any load.
    variant = replace(variant, profile=profile, capacity_qps=np.inf, batch_timeout_s=batch_timeout_s)
    scenario = replace(scenario, catalog=replace(scenario.catalog, variants=(variant,)))
    arrivals = "poisson" if poisson else "periodic"
    return scenario, [Stream(0, 0, "a", "t", 0.0, seconds, rate_qps, size_bytes, np.inf, 0.0, 0, arrivals)]


def some_streams(count: int, seed: int = 0, sites: int = 2) -> list[Stream]:
    """Streams of mixed needs, two per second, some of which nothing can serve."""
    draw = keyed.uniform(seed, keyed.Purpose.STREAM, np.arange(count)[:, None], np.arange(6)[None, :])
    return [
        Stream(
            id=i,
            site=int(u[0] * sites),
            application="test",
            task=("detect", "classify", "unknown")[min(int(u[1] * 2.2), 2)],
            open_s=0.5 * i,
            close_s=0.5 * i + 20.0 * u[2] + 0.1,
            rate_qps=1.0 + 9.0 * u[3],
            size_bytes=1e5,
            deadline_s=0.02 + 0.3 * u[4],
            min_accuracy=45.0 * u[5],
        )
        for i, u in enumerate(draw)
    ]
