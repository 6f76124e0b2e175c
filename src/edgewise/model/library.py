"""What a scenario takes from elsewhere: catalogs, applications, graphs of operators.

Forbidden here: I/O; whoever reads files implements `Library` (`edgewise.config`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from edgewise.errors import ScenarioError
from edgewise.model.grammar.places import CatalogSpec, CatalogUseSpec, ModelSpec, VariantSpec
from edgewise.model.grammar.scenario import ScenarioSpec
from edgewise.model.grammar.services import ApplicationSpec, ApplicationsUseSpec

Named = TypeVar("Named", ModelSpec, VariantSpec, ApplicationSpec)


@dataclass(frozen=True, slots=True)
class Backbone:
    """Nodes and links of an operator's network.

    Attributes:
        nodes: names, unique.
        edges: (node index, node index, length in km).
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[int, int, float], ...]


class Library:
    """Reads what scenarios name; raises ScenarioError with a reason when it cannot.

    This one is without anything, for scenarios that are complete in themselves.
    """

    def catalog(self, name: str) -> CatalogSpec:
        """The catalog of this name or file."""
        raise ScenarioError(f"catalog {name!r}: not at hand; load the scenario with edgewise.config")

    def applications(self, name: str) -> tuple[ApplicationSpec, ...]:
        """The applications of this name or file."""
        raise ScenarioError(f"applications {name!r}: not at hand; load the scenario with edgewise.config")

    def graph(self, name: str) -> Backbone:
        """The graph of this name."""
        raise ScenarioError(f"graph {name!r}: not at hand; load the scenario with edgewise.config")


def resolve(spec: ScenarioSpec, library: Library, problems: list[str]) -> ScenarioSpec:
    """The scenario with its catalog and applications written out.

    What cannot be found is a problem, and left as it is.
    """
    changed: dict[str, Any] = {}
    try:
        if isinstance(spec.catalog, CatalogUseSpec):
            changed["catalog"] = _catalog(spec.catalog, library)
    except ScenarioError as error:
        problems.append(f"catalog.use: {error}")
    try:
        if spec.streams is not None and isinstance(spec.streams.applications, ApplicationsUseSpec):
            applications = _applications(spec.streams.applications, library)
            changed["streams"] = spec.streams.model_copy(update={"applications": applications})
    except ScenarioError as error:
        problems.append(f"streams.applications.use: {error}")
    return spec.model_copy(update=changed)


def _catalog(use: CatalogUseSpec, library: Library) -> CatalogSpec:
    base = library.catalog(use.use)
    return CatalogSpec(models=_merged(base.models, use.models), variants=_merged(base.variants, use.variants))


def _applications(use: ApplicationsUseSpec, library: Library) -> tuple[ApplicationSpec, ...]:
    base = library.applications(use.use)
    if use.weights == "uniform":
        base = tuple(application.model_copy(update={"weight": 1.0}) for application in base)
    return _merged(base, use.applications)


def _merged(base: Sequence[Named], changes: Sequence[Named]) -> tuple[Named, ...]:
    """`base` with entries of the same name replaced in place, and the others at the end.

    A name twice among the changes stays twice, so that it is found out later.
    """
    new: dict[str, Named] = {change.name: change for change in reversed(changes)}
    replaced = {entry.name for entry in base} & new.keys()
    left: list[Named] = [c for c in changes if c.name not in replaced or c is not new[c.name]]
    merged: list[Named] = [new.get(entry.name, entry) for entry in base]
    return tuple(merged + left)
