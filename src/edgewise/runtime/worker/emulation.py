"""Emulated places: links that take their time, and workers as slow as their profile says.

The draws are the simulator's: one-way delays normal and truncated at 0, processing times normal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgewise.core.keyed import Purpose, normal_of, normal_pair_of
from edgewise.core.world import World
from edgewise.errors import ProtocolError
from edgewise.model.catalog import Profile
from edgewise.runtime.protocol.messages import InferRequest, InferResponse
from edgewise.runtime.worker.onnx_model import OnnxModel


@dataclass(slots=True)
class Ways:
    """Delays between access sites and clusters.

    there = δ + max(N(d, σ), 0) + ζ/u,  back = δ + max(N(d, σ), 0)

    Args:
        world: δ, d, σ and u of each site and cluster.
        seed: keys the draws, one pair for each (stream, query number).
        client_s: time that clients here take themselves; deducted from the ways.

    Real time between a gateway and its workers counts as part of the emulated ways.
    """

    world: World
    seed: int = 0
    client_s: float = 0.0

    def delays_s(
        self, site: int, cluster: int, size_bytes: float, stream: int, number: int
    ) -> tuple[float, float]:
        """Delay of a query there, and of its answer back."""
        world = self.world
        mean_s, deviation_s = world.delay_s[site, cluster], world.deviation_s[site, cluster]
        up, down = normal_pair_of(np.uint64(self.seed), int(Purpose.NETWORK), stream, number)
        rate_bps = min(world.uplink_bps[site], world.bandwidth_bps[site, cluster])
        access_s = world.access_delay_s[site]
        there_s = access_s + max(mean_s + deviation_s * up, 0.0) + size_bytes * 8.0 / rate_bps
        return float(there_s), float(access_s + max(mean_s + deviation_s * down, 0.0))


async def pass_time(delay_s: float) -> None:
    """Wait, where there is anything to wait for."""
    if delay_s > 0.0:
        await asyncio.sleep(delay_s)


class SlowModel(OnnxModel):
    """Runs the real network, then waits until its profile's processing delay has passed.

    t = (D_0 + d ζ) (1 + s (b - 1)) max(1 + σ N, 0)

    for a batch of b queries with payload ζ: the same as in simulation. A network that takes longer
    than t here takes what it takes; `late` counts those batches.

    Args:
        profile: D_0, d, s and σ.
        seed, entity: key the draws, one for each batch.
    """

    clock = staticmethod(time.perf_counter)  # it sleeps

    def __init__(
        self, name: str, file: Path, folder: Path | None, profile: Profile, seed: int = 0, entity: int = 0
    ) -> None:
        super().__init__(name, file, folder)
        self.profile, self.late = profile, 0
        self._seed, self._entity, self._batches = seed, entity, 0

    def run_batch(self, requests: Sequence[InferRequest]) -> list[InferResponse | ProtocolError]:
        """See `OnnxModel.run_batch`."""
        started_s = time.perf_counter()
        answers = super().run_batch(requests)
        size = max(sum(array.nbytes for array in request.inputs.values()) for request in requests)
        noise = normal_of(np.uint64(self._seed), int(Purpose.SERVICE), self._entity, self._batches)
        self._batches += 1
        mean_s = self.profile.delay_s(size, len(requests))
        left_s = mean_s * max(1.0 + self.profile.deviation * noise, 0.0) - (time.perf_counter() - started_s)
        self.late += left_s < 0
        time.sleep(max(left_s, 0.0))
        return answers
