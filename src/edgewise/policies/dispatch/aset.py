"""ASET's learned dispatch, run from an ONNX file and its card. Needs onnxruntime, never torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from edgewise.arrays import Floats32
from edgewise.core.compiled import PACKAGE
from edgewise.core.keyed import Key
from edgewise.core.views import DispatchView
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.policies.dispatch.golden import features_hash, fingerprint, golden_states
from edgewise.policies.dispatch.meta import PAPER, MetaPolicy
from edgewise.policies.dispatch.states import History, pooled_state
from edgewise.policies.registry import dispatch_policy

SHIPPED = PACKAGE / "data" / "policies"
GOLDEN_WORKERS = 8  # of the golden views of a network that takes any number of workers
DEFAULT = "aset-any"  # where no card was trained on the topology


class Trained:
    """A Q-network in ONNX with its card, checked when it is loaded.

    Args:
        path: of the card; the network lies beside it, as NAME.onnx.
    Raises:
        PolicyError: a file is missing or unreadable, it was made for other features, or it
            decides otherwise than its card says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            self.state, self.actions = str(self.card["state"]), tuple(map(str, self.card["actions"]))
            self.workers = int(self.card["workers"])  # 0: any number
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self._session = onnxruntime.InferenceSession(
                path.with_suffix(".onnx"), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime raises kinds of its own
            raise PolicyError(
                f"policy card {path}: {error}; train again with `edgewise train aset`"
            ) from error
        self._check()

    def values(self, states: Floats32) -> Floats32:
        """(B, actions) of (B, W, …) states."""
        (values,) = self._session.run(None, {"state": states})
        return np.asarray(values)

    def _check(self) -> None:
        found = features_hash(self.state)
        if found != self.card["features"]:
            raise PolicyError(
                f"policy card {self.path}: trained on features {self.card['features']}, this edgewise has "
                f"{found}; train again with `{self.card['command']}`"
            )
        states = golden_states(self.state, self.workers or GOLDEN_WORKERS)
        decisions = self.values(states).argmax(axis=1).tolist()
        if decisions != self.card["golden"]:
            raise PolicyError(
                f"policy card {self.path}: on the golden views it decides {decisions}, its card says "
                f"{self.card['golden']}; restore both files, or train again"
            )


@cache
def trained(path: Path) -> Trained:
    """A trained network, loaded and checked once per process."""
    return Trained(path)


@cache
def _shipped() -> dict[str, Path]:
    """Fingerprint of the topology trained on → card; "" → the one for all others."""
    cards: dict[str, Path] = {}
    for path in sorted(SHIPPED.glob("aset-*.json")):
        card = json.loads(path.read_text(encoding="utf-8"))
        cards["" if path.stem == DEFAULT else card["topology"]] = path
    return cards


@dispatch_policy("aset")
class Aset(MetaPolicy):
    """A trained Q-network chooses the static policy of each window (ASET).

    It takes the shipped network of its topology, and one that fits any number of workers where none
    was trained. A subclass runs a network of one's own: set `card` to its file.

    Attributes:
        card: path of a card; None chooses among those that ship.
    """

    card: str | None = None

    def __init__(self) -> None:
        super().__init__(PAPER)

    def reset(self, world: World, key: Key) -> None:
        """Load the network that fits the world.

        Raises:
            PolicyError: there is none, or it cannot be used.
        """
        self._trained = trained(self._card(world))
        wanted = self._trained.workers
        if wanted not in (0, world.workers):
            raise PolicyError(
                f"policy card {self._trained.path}: its network is for {wanted} workers, here are "
                f"{world.workers}; use one with state 'pooled'"
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

    def _card(self, world: World) -> Path:
        if self.card is not None:
            return Path(self.card)
        cards = _shipped()
        path = cards.get(fingerprint(world)) or cards.get("")
        if path is None:
            raise PolicyError(f"policy 'aset': no card in {SHIPPED}; train one with `edgewise train aset`")
        return path
