"""Classes by name: what every kind of policy is registered in."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from edgewise.errors import PolicyError

P = TypeVar("P", bound=type)


class Names:
    """Classes of one kind of policy by their names.

    Args:
        what: the kind, for messages.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._known: dict[str, type] = {}

    def add(self, name: str) -> Callable[[P], P]:
        """A decorator that registers a class as `name`.

        Raises:
            PolicyError: another class has that name.
        """

        def register(cls: P) -> P:
            other = self._known.get(name)
            if other is not None and other.__qualname__ != cls.__qualname__:
                owner = f"{other.__module__}.{other.__qualname__}"
                raise PolicyError(f"{self._what} name {name!r} is taken by {owner}")
            cls.name = name  # type: ignore[attr-defined]
            self._known[name] = cls
            return cls

        return register

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def get(self, name: str) -> type | None:
        """The class, None when there is none."""
        return self._known.get(name)

    def create(self, name: str) -> Any:
        """A new policy of that name.

        Raises:
            PolicyError: nothing has that name.
        """
        cls = self._known.get(name)
        if cls is None:
            raise self.unknown(name, sorted(self._known))
        return cls()

    def unknown(self, name: str, have: Sequence[str], more: str = "") -> PolicyError:
        """The error for a name that nobody has; says which one may have been meant."""
        near = difflib.get_close_matches(name, have, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return PolicyError(f"no {self._what} {name!r}{hint} Have: {', '.join(have)}{more}")
