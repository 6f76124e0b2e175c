"""What a policy may have beside `reset` and `decide`: six hooks, all optional, each a protocol here.

| hook | of policies of | what it is |
|---|---|---|
| `tick(view)` | dispatch | called when a window begins, before anything is decided in it |
| `observe(view)` | dispatch | called whenever measurements have come |
| `max_age_s` | dispatch | measurements may be this old; with older ones the fallback decides |
| `renewed(rates_qps)` | split | the policy with a plan for other rates |
| `batched` | requests, orchestrate, defer | whether its views are of many worlds at once |
| `rests` | orchestrate | whether it would change nothing as long as nothing changes |

Drivers ask `isinstance(policy, Ticks)`, never for a name. `check` refuses a policy whose hook nobody would
call: misspelt, of another decision, or of another form. What base classes ask of their subclasses (`score`,
`choose`) are no hooks: those bases call it themselves.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from edgewise.arrays import Floats
from edgewise.core.dispatch.views import DispatchView
from edgewise.errors import PolicyError


@runtime_checkable
class Ticks(Protocol):
    """Wants to see the beginning of each window: the place for slow work."""

    def tick(self, view: DispatchView) -> None:
        """A window begins; the view lists the streams that are bound."""


@runtime_checkable
class Observes(Protocol):
    """Wants to see all measurements, as they come."""

    def observe(self, view: DispatchView) -> None:
        """The view holds measurements that have just come."""


@runtime_checkable
class Ages(Protocol):
    """Does not decide on old measurements.

    Attributes:
        max_age_s: the oldest that it decides on; None: any.
    """

    max_age_s: float | None


@runtime_checkable
class Renews(Protocol):
    """Plans for rates, which drift."""

    def renewed(self, rates_qps: Floats) -> Any:
        """Itself with a plan for these (J,) rates; None where no plan can be made for them.

        Called beside decisions, which go on with the old plan.
        """


@runtime_checkable
class Batched(Protocol):
    """Says how many worlds it sees.

    Attributes:
        batched: many at once; False: one, as policies without this do (`core.one_world`).
    """

    batched: bool


@runtime_checkable
class Rests(Protocol):
    """Says after each answer whether it has to be asked again.

    It counts in the very class that defines it: a subclass may decide by more than its base.

    Attributes:
        rests: it would change nothing from now on, as long as replicas and counts stay as they are.
    """

    rests: bool


class Hook(NamedTuple):
    """A hook.

    Attributes:
        protocol: it.
        decisions: of the policies that may have it.
        takes: how many arguments a method takes; None: it is no method.
        of: what its value is an instance of, if it is no method.
    """

    protocol: type
    decisions: tuple[str, ...]
    takes: int | None = None
    of: tuple[type, ...] = (bool,)


HOOKS: Mapping[str, Hook] = {
    "tick": Hook(Ticks, ("dispatch",), takes=1),
    "observe": Hook(Observes, ("dispatch",), takes=1),
    "max_age_s": Hook(Ages, ("dispatch",), of=(int, float, type(None))),
    "renewed": Hook(Renews, ("split",), takes=1),
    "batched": Hook(Batched, ("requests", "orchestrate", "defer")),
    "rests": Hook(Rests, ("orchestrate",)),
}
Shown = Callable[[object], Callable[[DispatchView], None] | None]  # a policy's hook that takes a view
ALIKE = 0.8  # names that are so much alike are taken for one that is misspelt, see `difflib`


def held(policy: object) -> list[str]:
    """The hooks that a policy has."""
    return [name for name, hook in HOOKS.items() if isinstance(policy, hook.protocol)]


def tick_of(policy: object) -> Callable[[DispatchView], None] | None:
    """What is called when a window begins, if the policy wants that."""
    return policy.tick if isinstance(policy, Ticks) else None


def observe_of(policy: object) -> Callable[[DispatchView], None] | None:
    """What is called when measurements come, if the policy wants that."""
    return policy.observe if isinstance(policy, Observes) else None


SHOWN: tuple[Shown, ...] = (tick_of, observe_of)


def check(who: str, decision: str, policy: object) -> None:
    """See that all hooks of a policy are called.

    Args:
        who: it is, for messages.
        decision: its own.
    Raises:
        PolicyError: one is misspelt, of another decision, or of another form.
    """
    mine = [name for name, hook in HOOKS.items() if decision in hook.decisions]
    for name, value in _members(policy):
        if name in mine:
            _check_form(f"{who}: {name}", HOOKS[name], value)
        elif name in HOOKS:
            raise PolicyError(
                f"{who}: {name} is a hook of {', '.join(HOOKS[name].decisions)}, nobody calls it of a policy "
                f"that decides {decision}; hooks here: {', '.join(mine) or 'none'}"
            )
        else:
            near = [each for each in mine if sorted(each) == sorted(name)]
            near = near or difflib.get_close_matches(name, mine, 1, ALIKE)
            if near and _fits(HOOKS[near[0]], value) and not hasattr(policy, near[0]):
                raise PolicyError(
                    f"{who}: no hook is called {name!r}; did you mean {near[0]!r}? "
                    f"What is no hook may be called _{name}"
                )


def _members(policy: object) -> Iterator[tuple[str, Any]]:
    """Public names of a policy and its classes, and what is there."""
    seen: dict[str, Any] = {}
    for part in (policy, *type(policy).__mro__[:-1]):
        for name, value in getattr(part, "__dict__", {}).items():
            seen.setdefault(name, value)
    return ((name, value) for name, value in seen.items() if not name.startswith("_"))


def _fits(hook: Hook, value: Any) -> bool:
    """Whether a value could be this hook."""
    return callable(value) if hook.takes is not None else isinstance(value, hook.of)


def _check_form(who: str, hook: Hook, value: Any) -> None:
    """See that a hook is what it must be.

    Raises:
        PolicyError: it is not.
    """
    if isinstance(value, property):
        return
    if not _fits(hook, value) and not isinstance(value, staticmethod | classmethod):
        kinds = "a method" if hook.takes is not None else " or ".join(each.__name__ for each in hook.of)
        raise PolicyError(f"{who} is {value!r}; it must be {kinds.replace('NoneType', 'None')}")
    if hook.takes is not None and inspect.isfunction(value):
        given = [None] * (hook.takes + 1)  # with self
        try:
            inspect.signature(value).bind(*given)
        except TypeError as error:
            raise PolicyError(f"{who} must take {hook.takes} argument beside self: {error}") from None
