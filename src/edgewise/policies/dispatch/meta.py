"""Meta-policies: at each window they name the static policy that decides until the next one.

A bandit over these is the cheap rival of learned and lookahead dispatch.
"""

from collections.abc import Sequence

import numpy as np

from edgewise.core.dispatch.policy import ChoosingPolicy, ScorePolicy
from edgewise.core.dispatch.views import DispatchView
from edgewise.core.keyed import Key
from edgewise.core.world import World
from edgewise.errors import PolicyError
from edgewise.policies.registry import load, policy

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


class MetaPolicy(ChoosingPolicy):
    """Base of policies that choose a static policy at each window.

    Subclasses define `choose(view)`. Records of windows hold the name of the chosen policy.

    Attributes:
        actions: names of the policies to choose from.
    """

    def __init__(self, actions: Sequence[str] = ALL) -> None:
        self.actions = tuple(actions)
        self._policies = [_static(name) for name in self.actions]
        self._use(0)

    def reset(self, world: World, key: Key) -> None:
        """Start anew; subclasses that learn forget here."""
        self.world, self.key = world, key
        for each in self._policies:
            each.reset(world, key)
        self._use(0)

    def choose(self, view: DispatchView) -> int:
        """Index into `actions` of the policy for the window that begins."""
        raise NotImplementedError(f"{type(self).__name__} must define choose(view)")

    def tick(self, view: DispatchView) -> None:
        """A window begins: choose."""
        self._use(self.choose(view))

    def _use(self, index: int) -> None:
        self.current = self._policies[index]


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


DISCOUNT = 0.9  # of what was seen a window ago: load changes
WIDTH = 0.05  # of the confidence term; gains differ by a few hundredths


@policy("bandit")
class Bandit(MetaPolicy):
    """Discounted UCB over the static policies (Garivier and Moulines 2011), learning within a run.

    The gain of a window is what the workers' measured delays leave of the deadlines: the share of
    bound queries/s whose measured p95 at the worker, with the network there and back, is in time.
    """

    def reset(self, world: World, key: Key) -> None:
        """Forget all gains."""
        super().reset(world, key)
        count = len(self.actions)
        self._gains, self._plays, self._played = np.zeros(count), np.zeros(count), -1

    def choose(self, view: DispatchView) -> int:
        """max mean gain + width · √(log Σ n / n), every policy once first."""
        if self._played >= 0:
            self._gains *= DISCOUNT
            self._plays *= DISCOUNT
            self._gains[self._played] += in_time(view)
            self._plays[self._played] += 1.0
        fresh = np.flatnonzero(self._plays == 0.0)
        if fresh.size:
            self._played = int(fresh[self.key.uniform(fresh, 0).argmin()])
        else:
            bonus = WIDTH * np.sqrt(np.log(max(self._plays.sum(), 1.0)) / self._plays)
            self._played = int((self._gains / self._plays + bonus).argmax())
        return self._played


def in_time(view: DispatchView) -> float:
    """Share of the bound streams' queries/s that arrive in time at the measured p95; 1 without streams."""
    bound = view.bound
    if bound is None or not bound.worker.size:
        return 1.0
    world, items = view.world, bound.items
    cluster = world.cluster[bound.worker]
    network = view.links.delay_s[items.site, cluster] + world.access_delay_s[items.site]
    bps = np.minimum(world.uplink_bps[items.site], view.links.bandwidth_bps[items.site, cluster])
    waits_s = view.backlog_s[items.site, cluster] + view.delay_p95_s[bound.worker]
    late = 2.0 * network + items.size_bytes * 8.0 / bps + waits_s > items.deadline_s
    return float(1.0 - items.rate_qps[late].sum() / items.rate_qps.sum())
