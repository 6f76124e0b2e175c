"""Room first: a rule on the features that the learned dispatcher reads, and what that one imitates first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgewise.core.orchestration import HOLD, ReplicaView, hosts
from edgewise.model.orchestration import Ints, System
from edgewise.policies.kais.features import draws, station_rows
from edgewise.policies.kais.stations import CLOUD, FITS, OWN, ROOM


class Weights(NamedTuple):
    """What a station is worth besides its room log(1 + seconds): begins now, own node, is the cloud, a draw.

    The draw keeps sites that see the same from all choosing one station.
    """

    fits: float = 10.0
    own: float = 0.5
    cloud: float = 0.0
    noise: float = 0.5


class RoomFirst:
    """Where the request begins at once, own nodes first; else where most time is left."""

    name = "room-first"

    def __init__(self, weights: Weights = Weights()) -> None:  # noqa: B008
        self._weights = weights

    def reset(self, system: System) -> None:
        """Nothing is drawn."""
        self._system = system

    def dispatch(self, view: ReplicaView) -> Ints:
        """(W, B) the station of most worth."""
        allowed, weights = hosts(view), self._weights
        rows = station_rows(self._system, view, allowed)
        values = np.full(allowed.size, -np.inf)
        kinds = np.array(weights[:3])
        values[rows.cell] = rows.values[:, ROOM] + rows.values[:, [FITS, OWN, CLOUD]] @ kinds
        values += weights.noise * draws(view, self._system.stations).reshape(-1)
        return np.where(view.head >= 0, values.reshape(allowed.shape).argmax(axis=2), HOLD)
