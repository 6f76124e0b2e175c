"""ASET's learned dispatch, run from an ONNX file and its card."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from edgewise.arrays import Floats32
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.policies import cards
from edgewise.policies.cards import Card
from edgewise.policies.dispatch.golden import features_hash, fingerprint, golden_states
from edgewise.policies.dispatch.meta import PAPER, MetaPolicy
from edgewise.policies.dispatch.states import History, pooled_state
from edgewise.policies.registry import policy

GOLDEN_WORKERS = 8  # of the golden views of a network that takes any number of workers
DEFAULT = "aset-any"  # where no card was trained on the topology


class Trained:
    """A Q-network in ONNX with its card, checked when it is loaded.

    Args:
        card: of it; the network lies beside it, as NAME.onnx.
    Raises:
        PolicyError: a file is missing or unreadable, it was made for other features, or it
            decides otherwise than its card says.
    """

    def __init__(self, card: Card) -> None:
        self.card, part = card, card.part
        self.state, self.actions = str(part["state"]), tuple(map(str, part["actions"]))
        self.workers = int(part["workers"])  # 0: any number
        card.check_features(features_hash(self.state))
        self._run = card.network()
        states = golden_states(self.state, self.workers or GOLDEN_WORKERS)
        card.check_golden(self.values(states).argmax(axis=1), part["golden"])

    def values(self, states: Floats32) -> Floats32:
        """(B, actions) of (B, W, …) states."""
        (values,) = self._run(states)
        return np.asarray(values)


def trained(path: Path) -> Trained:
    """The network of a card, loaded and checked."""
    return Trained(cards.read("dispatch", "streams", path))


def of_card(card: Card) -> Aset:
    """ASET with the network of a card."""
    made = Aset()
    made.card, made.name = Trained(card), card.name
    return made


@cache
def _shipped(topology: str) -> Trained:
    """What ships for a topology, loaded once per process: files that ship do not change."""
    paths = cards.shipped("dispatch", "streams")
    read = {name: cards.read("dispatch", "streams", path) for name, path in paths.items()}
    fits = (card for name, card in read.items() if name != DEFAULT and card.part["topology"] == topology)
    return Trained(next(fits, read[DEFAULT]))


@policy("aset")
class Aset(MetaPolicy):
    """A trained Q-network chooses the static policy of each window (ASET).

    It takes the shipped network of its topology, and one that fits any number of workers where none
    was trained. A subclass runs a network of one's own: set `card` to its file.

    Attributes:
        card: path of a card, or what was loaded from one; None chooses among those that ship.
    """

    card: str | Path | Trained | None = None

    def __init__(self) -> None:
        super().__init__(PAPER)

    def reset(self, world: World, key: Key) -> None:
        """Load the network that fits the world.

        Raises:
            PolicyError: there is none, or it cannot be used.
        """
        self._trained = self._fitting(world)
        wanted = self._trained.workers
        if wanted not in (0, world.workers):
            raise self._trained.card.error(
                f"its network is for {wanted} workers, here are {world.workers}; use one with state 'pooled'"
            )
        if self._trained.actions != self.actions:
            MetaPolicy.__init__(self, self._trained.actions)
        self._history = History() if self._trained.state == "history" else None
        super().reset(world, key)

    def observe(self, view: DispatchView) -> None:
        """Keep a second of history, where the network takes it."""
        if self._history is not None:
            self._history.observe(view)

    def choose(self, view: DispatchView) -> int:
        """max_a Q(s, a)."""
        state = pooled_state(view) if self._history is None else self._history.state(view)
        return int(self._trained.values(state[None])[0].argmax())

    def _fitting(self, world: World) -> Trained:
        if self.card is None:
            return _shipped(fingerprint(world))
        return self.card if isinstance(self.card, Trained) else trained(Path(self.card))
