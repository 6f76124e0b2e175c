"""What policies that defer jobs are trained on."""

from edgewise.core.defer import Objective
from edgewise.model.work import DeferralPattern
from edgewise.workloads.deferrable import PAPER, cases


def situations() -> dict[str, tuple[DeferralPattern, Objective]]:
    """Worlds and objective, by name."""
    found = {"paper": (PAPER, Objective())}
    found |= {name: (pattern, Objective()) for name, pattern in cases().items()}
    found["utilisation"] = (PAPER, Objective(delay=0.0))
    found["real-time"] = (PAPER.real_time(), Objective(delay=0.0))
    return found


def name_of(method: str, seed: int, situation: str = "paper", recipe: str = "ours") -> str:
    """Name of a run's files."""
    extra = [situation] * (situation != "paper") + [f"{recipe}-recipe"] * (recipe != "ours")
    return "-".join([method, *extra, str(seed)])
