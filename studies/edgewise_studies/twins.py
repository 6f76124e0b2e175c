"""Shipped scenarios as the papers have them, by names of their own; what ships is as live.

ASET: one gateway decides for all sites at once. KaiS: one gateway sees all and sends one request per site and
slot. OSDEC: jobs have all nodes as one pool.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgewise.config import load_scenario
from edgewise.model.scenario import Scenario

ASET = {"streams.gateways": "one"}
KAIS = {"services.gateways": "one"}
OSDEC = {"jobs.room": "pooled"}
ASET_WORLDS = (
    "dc-cloud", "co-dc-cloud", "full-edge", "full-edge-burst", "full-edge-steady", "full-edge-scarce",
    "full-edge-scarce-burst",
)  # fmt: skip
KAIS_WORLDS = ("kais-demo", "edge-cloud", "edge-cloud-complex", "scarce", "scarce-complex")
WORLDS = ((ASET, ASET_WORLDS), (KAIS, KAIS_WORLDS), (OSDEC, ("deferrable",)))
PUBLISHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    f"{name}-published": (name, settings) for settings, names in WORLDS for name in names
}


def published_settings(name: str | Path) -> Mapping[str, Any]:
    """What a shipped scenario's twin sets; nothing where it has none."""
    return PUBLISHED.get(f"{name}-published", ("", {}))[1]


def as_published(name: str | Path, settings: Mapping[str, Any] | None = None) -> Scenario:
    """A scenario in the setting of its paper, by its own name; as it is where it has no twin.

    Args:
        name: of a shipped scenario, or a file.
        settings: changes, see `load_scenario`.
    Raises:
        ScenarioError: see `load_scenario`.
    """
    return load_scenario(name, {**published_settings(name), **(settings or {})})
