"""Public conformance kit: a policy that passes `check_policy` runs in simulation and live.

from edgewise.testing import check_policy
check_policy(lambda: MyPolicy())

`check_backend` does the same for what the live system runs its processes on, `check_testbed` for what
pipelines run on.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.core import hooks
from edgewise.errors import extra
from edgewise.policies.registry import declared
from edgewise.testing import driven, streams
from edgewise.testing.streams import queue_scenario, small_world, some_streams

if TYPE_CHECKING:
    from edgewise.model.pipelines import Network
    from edgewise.runtime.backends.contract import ServingBackend
    from edgewise.runtime.testbeds import Testbed as Testbed

__all__ = [
    "VirtualClock",
    "check_backend",
    "check_policy",
    "check_testbed",
    "queue_scenario",
    "small_world",
    "some_streams",
]
BUDGET_S = 0.05


class VirtualClock:
    """A clock that moves only when told to; hand it to whatever takes a `clock`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        """The present time in seconds."""
        return self.now_s

    def advance(self, by_s: float) -> float:
        """Move forward and return the new time.

        Raises:
            ValueError: `by_s` is negative.
        """
        if by_s < 0:
            raise ValueError(f"time must not go back: by_s={by_s}")
        self.now_s += by_s
        return self.now_s


def check_backend(
    make_backend: "Callable[[Path], ServingBackend]", folder: Path, limit_s: float = 60.0
) -> None:
    """Start, watch, kill, start again and end a real worker through a backend (extra `live`).

    Args:
        make_backend: makes a backend that keeps its files in a folder.
        folder: an empty one.
        limit_s: for each step.
    Raises:
        AssertionError: says which part of the contract in `runtime.backends.contract` is broken.
    """
    with extra("live", "check_backend"):
        from edgewise.runtime.backends import conformance

    conformance.check_backend(make_backend, folder, limit_s)


def check_testbed(make_testbed: "Callable[[Network], Testbed]", limit_s: float = 60.0) -> None:
    """Addresses, flows, real traffic, a link that fails and returns, and a clean end (extra `place`).

    Args:
        make_testbed: makes a test bed of a network; namespaces need root.
        limit_s: for each transfer.
    Raises:
        AssertionError: says which part of the contract of `edgewise.runtime.testbeds.Testbed` is broken.
    """
    with extra("place", "check_testbed"):
        from edgewise.runtime.backends import conformance

    conformance.check_testbed(make_testbed, limit_s)


def check_policy(make: Callable[[], Any], *, budget_s: float = BUDGET_S) -> None:
    """Check a policy of any decision against its contract; its class says which by `decision`.

    Same key, same decisions; two worlds that are equal up to now, the same decisions up to now; the view
    unmodified; answers of the right shape and range, and only what is possible; worlds without work and with
    one piece of it; no hook that nobody calls (`core.hooks`). Of dispatchers of streams also: refusals only
    with a reason, and a decision within `budget_s` (median).

    Args:
        make: makes a new policy; called several times.
    Raises:
        AssertionError: names what is broken.
        PolicyError: the policy fits none of the worlds that it is tried on.
    """
    made = make()
    who = f"policy {type(made).__qualname__!r}"
    decision = declared(who, type(made))
    hooks.check(who, decision, made)
    if decision == "dispatch":
        streams.check(make, budget_s)
    else:
        driven.check(make, decision)
