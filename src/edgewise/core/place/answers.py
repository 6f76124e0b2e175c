"""What a policy of placement answers: checked, and turned into commands. Forbidden here: I/O."""

from collections.abc import Sequence

import numpy as np

from edgewise.core.place import (
    MovePipeline,
    NetworkView,
    PlaceCommand,
    Placement,
    PlacementPolicy,
    ReroutePipeline,
    StartPipeline,
    used,
    validate,
)
from edgewise.errors import PolicyError


def checked(policy: PlacementPolicy, view: NetworkView, capped: bool) -> dict[int, Placement]:
    """What a policy decides, by pipeline, with rates that these can use.

    Raises:
        PolicyError, CapacityError, ValueError: it cannot be carried out.
    """
    decided, known = by_id(policy.decide(view)), by_id(view.running)
    for placed in decided.values():
        _check_arrays(policy, placed)
    if unknown := decided.keys() - known.keys() - {pipeline.id for pipeline in view.waiting}:
        raise PolicyError(
            f"policy {policy.name!r} placed pipeline {min(unknown)}, which neither waits nor runs"
        )
    validate(view.network, list((known | decided).values()))
    return by_id(used(view.network, list(decided.values()))) if capped else decided


def _check_arrays(policy: PlacementPolicy, placed: Placement) -> None:
    """Refuse arrays that compiled code cannot read."""
    tasks, edges, start = placed.pipeline.memory_bytes.size, placed.pipeline.tail.size, placed.start
    shapes = placed.node.shape, start.shape, placed.bandwidth_bps.shape
    whole = all(array.dtype.kind in "iu" for array in (placed.node, start, placed.links))
    if shapes != ((tasks,), (edges + 1,), (edges,)) or placed.links.ndim != 1 or not whole:
        raise PolicyError(
            f"policy {policy.name!r}: pipeline {placed.pipeline.id} needs whole numbers of nodes, start and "
            f"links, of shapes ({tasks},), ({edges + 1},) and any, and bandwidth of ({edges},); has {shapes}"
        )
    if start[0] != 0 or start[-1] != placed.links.size or (np.diff(start) < 0).any():
        raise PolicyError(
            f"policy {policy.name!r}: paths of pipeline {placed.pipeline.id} do not lie in links"
        )


def by_id(placements: Sequence[Placement]) -> dict[int, Placement]:
    """Placements by the number of their pipeline."""
    return {p.pipeline.id: p for p in placements}


def command(before: Placement | None, now: Placement) -> PlaceCommand | None:
    """What is to be done about a pipeline that was placed so, or waited, and is placed so now."""
    if before is None:
        return StartPipeline(now)
    if before.node.tolist() != now.node.tolist():
        return MovePipeline(now)
    return None if before is now or _flows(before) == _flows(now) else ReroutePipeline(now)


def _flows(placed: Placement) -> tuple[bytes, ...]:
    """What paths and rates are told by; bytes are compared in a tenth of the time that arrays take."""
    return placed.start.tobytes(), placed.links.tobytes(), placed.bandwidth_bps.tobytes()
