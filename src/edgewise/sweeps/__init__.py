"""How much can it carry, and what hardware does it need? One scenario at many values of its keys."""

from edgewise.sweeps.answer import FILES, Answer, size, sweep
from edgewise.sweeps.points import Points
from edgewise.sweeps.vary import FINE, Target, Vary, parse_target, parse_vary

__all__ = [
    "FILES",
    "FINE",
    "Answer",
    "Points",
    "Target",
    "Vary",
    "parse_target",
    "parse_vary",
    "size",
    "sweep",
]
