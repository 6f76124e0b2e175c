"""The rules of requests, each one kernel: what may be sent where, and what can end in time.

Cores of live gateways, simulated sites, policies and the engine of many worlds all call these. Index b is the
site, k the station (0 the cloud), s the service.
"""

import numpy as np

from edgewise.core.orchestrate import HOLD, ReplicaView
from edgewise.kernels.compiled import inner
from edgewise.model.orchestration import System

CLOUD = 0  # the station; node n is station n + 1
TRIES = 3  # workers or replicas that one query or request is sent to, each of them lost
SLACK_S = 1e-9  # sums of floats may miss a deadline by rounding


@inner
def stays(view: ReplicaView, world: int, k: int, s: int) -> bool:
    """Whether station k has a replica of service s that stays; the cloud always."""
    replicas = view.replicas[world, k, s]
    return bool(k == CLOUD or replicas.ready > replicas.removing)


def goes_again(lost: int, left_s: float, former: int, bound: int) -> bool:
    """Whether a query of a stream, whose worker is lost, is sent to where its stream is bound now.

    Args:
        lost: workers that were lost with it, `former` the last of them.
        left_s: until its deadline.
        bound: -1: its stream is refused, or closed.
    """
    return lost < TRIES and left_s > 0.0 and bound >= 0 and bound != former


@inner
def possible(view: ReplicaView, world: int, b: int, k: int) -> bool:
    """Whether site b may send its head to station k, or hold it."""
    if k == HOLD:
        return True
    head = view.site[world, b]
    return bool(
        head.head >= 0 and 0 <= k < view.replicas.shape[1] and stays(view, world, k, head.head_service)
    )


@inner
def way_s(system: System, cloud_delay_s: float, b: int, k: int, size_bytes: float) -> float:
    """Time from site b to station k: the delay, to the cloud as last measured, and the transfer."""
    delay_s = cloud_delay_s if k == CLOUD else system.delay_s[b, k]
    return float(delay_s + 8.0 * size_bytes / system.rate_bps[b, k])


@inner
def least_way_s(
    system: System, view: ReplicaView, world: int, b: int, s: int, size_bytes: float, anywhere: bool
) -> float:
    """Least time in which a request of service s can get from site b to who serves it.

    Args:
        anywhere: the frozen settings of KaiS: to the nearest of all stations over the fastest link, as if
            each had a replica and the delay to the cloud were its mean.
    """
    least_s, most_bps = np.inf, 0.0
    if anywhere:
        for k in range(system.delay_s.shape[1]):
            least_s, most_bps = min(least_s, system.delay_s[b, k]), max(most_bps, system.rate_bps[b, k])
        return float(least_s + 8.0 * size_bytes / most_bps)
    for k in range(view.replicas.shape[1]):
        if stays(view, world, k, s):
            least_s = min(least_s, way_s(system, view.world[world].cloud_delay_s, b, k, size_bytes))
    return float(least_s)


@inner
def in_time(end_s: float, deadline_s: float) -> bool:
    """Whether what ends then keeps its deadline."""
    return end_s <= deadline_s + SLACK_S


@inner
def too_late(drops: bool, begin_s: float, service_s: float, deadline_s: float) -> bool:
    """Whether a request begun at `begin_s` would miss its deadline, and is dropped for it.

    Sites ask for a request that waits there, with what `least_way_s` says; stations for one in their queue.
    Where the system never drops, `drops` is false. (Python calls it often, and a whole `System` costs 10 µs.)
    """
    return drops and not in_time(begin_s + service_s, deadline_s)
