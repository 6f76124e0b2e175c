"""The cases, an area a module. Each cites the sentence that it tests."""

from picker_conformance.cases import (
    bodies,
    destination,
    errors,
    health,
    responses,
    robustness,
    served,
    subset,
)
from picker_conformance.suite import REGISTERED, Case

# Errors come last: to bring them about, the pool is emptied, and what comes back has other addresses.
AREAS = ("destination", "subset", "served", "bodies", "robustness", "health", "errors")
ALL: tuple[Case, ...] = tuple(sorted(REGISTERED, key=lambda each: AREAS.index(each.id.partition(".")[0])))

__all__ = ["ALL", "bodies", "destination", "errors", "health", "responses", "robustness", "served", "subset"]
