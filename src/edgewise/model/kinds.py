"""What the name of a place stands for, in every part of a scenario: one resolver.

Places that are numbered are a *kind*: `box` stands for box-0, box-1, …, whether `count` made them, or a
generated topology, or they are written out one by one. A place that is called so itself goes before: then its
name is its own. '*' stands for every place, where a part allows it.

Forbidden here: I/O.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from edgewise.model.problems import Problems, nearest

ALL = "*"
NUMBERED = re.compile(r"(.+)-\d+")


class Named(Protocol):
    """A site or a cluster."""

    @property
    def name(self) -> str:
        """Unique among its like."""


P = TypeVar("P", bound=Named)


def kinds(places: Iterable[Named]) -> dict[str, str]:
    """By name of a place the kind that it is of; empty where it is of none."""
    names = [place.name for place in places]
    found = {name: match.group(1) if (match := NUMBERED.fullmatch(name)) else "" for name in names}
    return {name: "" if kind in found else kind for name, kind in found.items()}


def names_of(places: Iterable[Named]) -> list[str]:
    """Names, and then kinds, each once."""
    of = kinds(places)
    return list(dict.fromkeys([*of, *filter(None, of.values())]))


def meant(name: str, places: Sequence[P]) -> tuple[P, ...]:
    """The places that a name stands for, in order; none where it is unknown."""
    of = kinds(places)
    return tuple(place for place in places if name in (ALL, place.name) or name == of[place.name] != "")


def places_named(
    where: str, what: str, name: str, places: Sequence[P], problems: Problems, also: Sequence[str] = ()
) -> tuple[P, ...]:
    """See `meant`; a name that stands for no place is a problem, with a hint at the nearest.

    Args:
        what: a site or a cluster, for the message.
        also: other words that are allowed; they stand for no place here.
    """
    found = meant(name, places)
    if not found and name not in also:
        problems.append(f"{where}: unknown {what} {name!r}; {nearest(name, [*also, *names_of(places)])}")
    return found
