"""Policies that see one world, where a driver has many: each world has a copy of its own.

Policies of requests, replicas and jobs that say `batched = True` see all worlds of a driver at once. All
others see one, live and in simulation: its arrays lack the first dimension, and so does what is decided.
"""

from copy import deepcopy
from typing import Any

import numpy as np

from edgewise.arrays import Ints
from edgewise.core.defer import CapacityView
from edgewise.core.hooks import Batched
from edgewise.core.keyed import Key
from edgewise.core.orchestrate import ReplicaView, commands_of
from edgewise.errors import EdgewiseError, PolicyError


def batched(policy: Any) -> Any:
    """The policy as drivers ask it: with views of many worlds."""
    return policy if isinstance(policy, Batched) and policy.batched else OneByOne(policy)


class OneByOne:
    """Asks a policy for one world after the other.

    Raises:
        PolicyError: from its methods: the policy raised something, or gave an array of a wrong shape.
    """

    batched = True

    def __init__(self, policy: Any) -> None:
        self.policy, self.name = policy, getattr(policy, "name", type(policy).__name__)

    def reset(self, world: Any, key: Key) -> None:
        """Start anew; copies are made when it is known how many worlds there are."""
        self.policy.reset(world, key)
        self._world, self._key, self._each = world, key, list[Any]()

    def decide(self, view: CapacityView | ReplicaView) -> Any:
        """(W, P) jobs to start, or (W, B) stations; of a policy that orchestrates, commands of each world."""
        if isinstance(view, CapacityView):
            return self._stacked(view, view.job)
        if getattr(self.policy, "decision", "") == "orchestrate":
            return commands_of([self.in_world(view, w) for w in range(view.worlds)])
        return self._stacked(view, view.head)

    def in_world(self, view: Any, w: int) -> Any:
        """What the copy of one world decides."""
        try:
            while len(self._each) <= w:
                mine = deepcopy(self.policy)
                mine.reset(self._world, Key(self._key.seed + len(self._each), self._key.purpose))
                self._each.append(mine)
            return self._each[w].decide(view.of_world(w))
        except EdgewiseError:
            raise
        except Exception as error:  # foreign code
            raise PolicyError(f"policy {self.name!r}: {type(error).__name__} in decide: {error}") from error

    def array_in_world(self, view: Any, w: int, like: Ints) -> Any:
        """The same, as an array of the shape of `like`."""
        found = self.in_world(view, w)
        if np.shape(found) != like.shape:
            raise PolicyError(
                f"policy {self.name!r} gives an array of shape {np.shape(found)}, needs {like.shape}"
            )
        return np.asarray(found)

    def _stacked(self, view: Any, like: Ints) -> Any:
        found = [self.array_in_world(view, w, like[w]) for w in range(len(like))]
        return np.array(found).reshape(like.shape)
