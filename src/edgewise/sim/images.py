"""Images on nodes: what starts finds there, or fetches from where images are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from edgewise.arrays import Floats, Ints
from edgewise.core.pulls import Pull, Pulls
from edgewise.model.orchestration import System
from edgewise.model.pools import image_cluster
from edgewise.model.scenario import Scenario
from edgewise.model.topology import LinkChange

Outages = Mapping[int, Sequence[tuple[float, float]]]
"""Of the way from where images are kept to a site, by its index: from when to when, in order."""
NO_OUTAGES: Outages = MappingProxyType({})


class Images(NamedTuple):
    """How images come to nodes where links are shared: all at once, with reserved rates.

    Attributes:
        ways: (N,) to each node, as `pulls` calls them.
        paths: (N,) links of these.
    """

    pulls: Pulls
    ways: tuple[int, ...]
    paths: tuple[Ints, ...]


class NodeImages:
    """Images of workers' variants, or of pipelines, on nodes.

    Args:
        images: how they come: over links that all share; or, of outages alone, each with the whole rate.
        system: nodes, and the ways from where images are kept to their sites.
        came: told of an image that has come to a node: which, node, and when it is there.
    Attributes:
        fetched_bytes: so far.
    """

    def __init__(
        self,
        images: Images | Outages,
        system: System,
        came: Callable[[str, int, float], None],
    ) -> None:
        self._images = images if isinstance(images, Images) else None
        self._outages: Outages = {} if isinstance(images, Images) else images
        self._site_of, self._came = system.site_of, came
        self._delay_s: Floats = system.delay_s[:, 0]
        self._rate_bps: Floats = system.rate_bps[:, 0]
        self._there_s: dict[tuple[str, int], float] = {}
        self._pulls: dict[tuple[str, int], Pull] = {}
        self.fetched_bytes = 0.0

    def have(self, image: str, node: int) -> None:
        """It is there from the beginning."""
        self._there_s[image, node] = 0.0

    def fetch(self, image: str, node: int, size_bytes: float, now_s: float) -> float:
        """Have an image come, unless it is there or comes; when it is there, infinite: `came` will say."""
        key = image, node
        if key in self._there_s:
            return max(self._there_s[key], now_s)
        site, there_s = int(self._site_of[node]), now_s
        if size_bytes > 0.0:
            self.fetched_bytes += size_bytes
            there_s = math.inf if self._images else self._alone_s(site, size_bytes, now_s)
        self._there_s[key] = there_s
        if there_s == math.inf and self._images is not None:
            pulls, ways, paths = self._images
            self._pulls[key] = pulls.begin(
                now_s, ways[node], paths[node], 8.0 * size_bytes, lambda: self._ended(key)
            )
        return there_s

    def lose(self, node: int, now_s: float) -> None:
        """A node dies: what it has not got whole is lost."""
        for key in [key for key, there_s in self._there_s.items() if key[1] == node and there_s > now_s]:
            del self._there_s[key]
            if self._images is not None and key in self._pulls:
                self._images.pulls.cancel(now_s, self._pulls.pop(key))

    def _alone_s(self, site: int, size_bytes: float, now_s: float) -> float:
        end_s = now_s + 8.0 * size_bytes / float(self._rate_bps[site])
        return after_outages(now_s, end_s, self._outages.get(site, ())) + float(self._delay_s[site])

    def _ended(self, key: tuple[str, int]) -> None:
        pull, (image, node) = self._pulls.pop(key), key
        self._there_s[key] = pull.end_s + float(self._delay_s[self._site_of[node]])
        self._came(image, node, self._there_s[key])


def after_outages(begin_s: float, end_s: float, outages: Sequence[tuple[float, float]]) -> float:
    """When what would last from `begin_s` to `end_s` ends, if it stands still in outages, in order."""
    for down_s, up_s in outages:
        if begin_s < up_s and down_s < end_s:
            end_s += up_s - max(down_s, begin_s)
    return end_s


def outages(scenario: Scenario) -> Outages:
    """When the ways between where images are kept and sites are down, by the timeline."""
    cluster = image_cluster(scenario)
    sites, found = [site.name for site in scenario.topology.sites], dict[int, list[tuple[float, float]]]()
    down_s: dict[int, float] = {}
    for change in scenario.timeline:
        if isinstance(change, LinkChange) and change.cluster == cluster:
            site = sites.index(change.site)
            if change.up is False:
                down_s.setdefault(site, change.at_s)
            elif change.up and site in down_s:
                found.setdefault(site, []).append((down_s.pop(site), change.at_s))
    for site, at_s in down_s.items():
        found.setdefault(site, []).append((at_s, math.inf))
    return found
