"""What changes while a run goes on, apart from the work: nodes and links fail, return, change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node, with all its workers, goes down or comes up."""

    at_s: float
    node: str
    up: bool


@dataclass(frozen=True, slots=True)
class LinkChange:
    """The way from a site to a cluster goes down, comes up, or changes; None leaves as it is."""

    at_s: float
    site: str
    cluster: str
    up: bool | None = None
    delay_s: float | None = None
    deviation_s: float | None = None
    bandwidth_bps: float | None = None


Change = NodeChange | LinkChange
