"""A training of a chooser that is judged by whoever trains it, and not by the harness."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgewise.learn.dqn import DqnTrainer


class Unjudged(DqnTrainer):
    """As it is otherwise, but its card has no scores."""

    def rivals(self, card: Path) -> dict[str, Any]:
        """None."""
        return {}

    def more_scores(self, rivals: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """None."""
        return {}
