"""How a gateway treats streams, as a scenario says."""

from __future__ import annotations

from dataclasses import dataclass

from edgewise.core.dispatch.policing import BURST
from edgewise.model.grammar.scenario import BUDGETS_S, BudgetsSpec
from edgewise.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How streams are treated.

    Attributes:
        window_s: length of a window.
        retry_refused: decide refused streams anew at each window.
        burst: queries that any stream may send at once, see `core.policing`.
        budgets_s: that policies have for a decision, and those in shadow.
        keep_closed: closed streams whose records are kept; older ones are forgotten.
    """

    window_s: float = 25.0
    retry_refused: bool = False
    burst: float = BURST
    keep_closed: int = 10_000
    budgets_s: BudgetsSpec = BUDGETS_S

    @classmethod
    def of(cls, scenario: Scenario) -> StreamRules:
        """Those of a scenario."""
        streams = scenario.streams
        budgets_s = scenario.spec.live.budgets_s
        return cls(scenario.window_s, scenario.retry_refused, streams.burst, budgets_s=budgets_s)


RULES = StreamRules()
"""Where no scenario says otherwise."""
