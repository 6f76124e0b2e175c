"""Meta-policies: at each window they name the static policy that decides until the next one."""

from collections.abc import Sequence

from edgewise.core.dispatch.policy import ScorePolicy
from edgewise.core.dispatch.views import Decisions, DispatchView, Items
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.policies.registry import load

PAPER = (
    "closest",
    "load-balancing",
    "farthest",
    "cheaper",
    "random-by-latency",
    "random-by-load",
    "least-impedance",
)  # the seven static policies of ASET: its actions, in this order
ALL = (*PAPER, "least-loaded-feasible", "slack-aware")  # with two that are not in the paper


class MetaPolicy:
    """Base of policies that choose a static policy at each window.

    Subclasses define `choose(view)`. The core compiles what `current` names, so a meta-policy
    decides at the pace of the policy it chose.

    Attributes:
        actions: names of the policies to choose from.
        current: the policy that decides now.
        active: its name; records of windows hold it.
    """

    decision = "dispatch"
    of = "streams"
    name = ""

    def __init__(self, actions: Sequence[str] = ALL) -> None:
        self.actions = tuple(actions)
        self._policies = [_static(name) for name in self.actions]
        self._use(0)

    def reset(self, world: World, key: Key) -> None:
        """Start anew; subclasses that learn forget here."""
        self.world, self.key = world, key
        for policy in self._policies:
            policy.reset(world, key)
        self._use(0)

    def choose(self, view: DispatchView) -> int:
        """Index into `actions` of the policy for the window that begins."""
        raise NotImplementedError(f"{type(self).__name__} must define choose(view)")

    def tick(self, view: DispatchView) -> None:
        """A window begins: choose."""
        self._use(self.choose(view))

    def decide(self, view: DispatchView, items: Items) -> Decisions:
        """As the chosen policy decides."""
        return self.current.decide(view, items)

    def _use(self, index: int) -> None:
        self.current, self.active = self._policies[index], self.actions[index]


class Chosen(MetaPolicy):
    """Decides as it is told from outside: an environment sets `index` before each window."""

    name = "chosen"
    index = 0

    def choose(self, view: DispatchView) -> int:
        """What was set last."""
        return self.index


def _static(name: str) -> ScorePolicy:
    policy = load("dispatch", name)
    if not isinstance(policy, ScorePolicy):
        raise PolicyError(f"action {name!r}: only score policies can be chosen, such as {', '.join(PAPER)}")
    return policy
