"""The cases, an area a module. Each cites the sentence that it tests."""

from picker_conformance.cases import bodies, destination, errors, health, robustness, served, subset
from picker_conformance.suite import REGISTERED, Case

ALL: tuple[Case, ...] = tuple(REGISTERED)

__all__ = ["ALL", "bodies", "destination", "errors", "health", "robustness", "served", "subset"]
