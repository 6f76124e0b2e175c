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
PUBLISHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "dc-cloud-published": ("dc-cloud", ASET),
    "co-dc-cloud-published": ("co-dc-cloud", ASET),
    "full-edge-published": ("full-edge", ASET),
    "full-edge-burst-published": ("full-edge-burst", ASET),
    "full-edge-steady-published": ("full-edge-steady", ASET),
    "full-edge-scarce-published": ("full-edge-scarce", ASET),
    "full-edge-scarce-burst-published": ("full-edge-scarce-burst", ASET),
    "kais-demo-published": ("kais-demo", KAIS),
    "edge-cloud-published": ("edge-cloud", KAIS),
    "edge-cloud-complex-published": ("edge-cloud-complex", KAIS),
    "scarce-published": ("scarce", KAIS),
    "scarce-complex-published": ("scarce-complex", KAIS),
    "deferrable-published": ("deferrable", OSDEC),
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
