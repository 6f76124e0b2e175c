"""What the plane tells the cores of others' work; see `core.plane`."""

from typing import NamedTuple

from edgewise.core.ledger import Reservation


class Evicted(NamedTuple):
    """These reservations of the core's own were pushed out, and the ledger has others now."""

    now_s: float
    reservations: tuple[Reservation, ...]


class CapacityChanged(NamedTuple):
    """Nodes, or what others hold of them, changed; all that happened up to now was told."""

    now_s: float
