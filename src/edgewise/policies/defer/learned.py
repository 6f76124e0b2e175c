"""A trained policy as any other: features in, scores out, the same ranking as all rules.

How the network is run is handed in, so that an agent in training decides by the same code; `of_card` does so
with onnxruntime.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from edgewise.arrays import Floats
from edgewise.core.deferral import CapacityView, Slots
from edgewise.core.keyed import Key
from edgewise.policies.cards import Card, Run
from edgewise.policies.defer.features import (
    JOB_FEATURES,
    SUMMARY_FEATURES,
    Scale,
    job_features,
    summary_features,
)
from edgewise.policies.defer.rules import ScoreDeferral

CLOSE = 1e-4  # golden scores of another machine


def feature_hash() -> str:
    """Hash of what the features mean; a policy trained on others is refused."""
    text = json.dumps([JOB_FEATURES, SUMMARY_FEATURES, Scale()])
    return hashlib.sha256(text.encode()).hexdigest()


def of_card(card: Card) -> LearnedDeferral:
    """The policy of a card.

    Raises:
        PolicyError: its files were changed, are for other features, or decide otherwise than they did.
    """
    card.check_features(feature_hash())
    infer, golden = card.network(), card.part["golden"]
    scores, _ = infer(*(np.array(golden[key], dtype=np.float32) for key in ("jobs", "summary", "memory")))
    card.check_golden(scores, golden["scores"], CLOSE)
    slot_s = card.part.get("slot_s", 0.0)
    return LearnedDeferral(card.name, infer, card.part["memory"], card.part["skip"], slot_s)


class LearnedDeferral(ScoreDeferral):
    """Starts by falling confidence score.

    Args:
        name: of the policy.
        infer: runs the network: jobs (W, P, F), summary (W, S), memory (W, H) → scores (W, P), memory (W, H).
        memory: H, what the network carries from slot to slot in each world.
        skip: go on past a job that does not fit, where OSDEC stops.
        slot_s: length of the slots it was trained with. Its memory moves on once in that time, however
            often it is asked; 0 takes the slots it is asked in.
    """

    def __init__(self, name: str, infer: Run, memory: int, skip: bool = False, slot_s: float = 0.0) -> None:
        self.name, self.skip, self.slot_s = name, skip, slot_s
        self._infer, self._size = infer, memory
        self.reset(Slots(slot_s, 1), Key(0))

    def reset(self, world: Slots, key: Key) -> None:
        """Forget the past; without noise nothing is drawn."""
        self._slot = -1
        self._before = self._after = np.zeros((0, self._size), dtype=np.float32)

    def score(self, view: CapacityView) -> Floats:
        """Confidence, in (-1, 1)."""
        if self._after.shape[0] != view.state.shape[0]:
            self._after = np.zeros((view.state.shape[0], self._size), dtype=np.float32)
            self._slot = -1
        slot = int(view.now * view.slot_s / self.slot_s) if self.slot_s else view.now
        if slot != self._slot:
            self._slot, self._before = slot, self._after
        scores, self._after = self._infer(job_features(view), summary_features(view), self._before)
        return scores.astype(np.float64)
