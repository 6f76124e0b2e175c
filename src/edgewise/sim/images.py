"""Images on nodes: what starts finds them there, or fetches them from where images are kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
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
Part = Hashable
"""Of an image: a layer, by its number; or the whole image, by its name."""
Parts = tuple[Part, ...]


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
    """Images of workers' variants, of pipelines or of services on nodes, each whole or layer by layer.

    What a node has got once it keeps, and fetches no more.

    Args:
        images: how they come: over links that all share; or, of outages alone, at the whole rate of the way.
        system: nodes, and the ways from where images are kept to their sites.
        came: told of what has come to a node, together: node, which, and when it is there.
        in_turn: on unshared ways, what is fetched comes one after the other, to whichever node, as KaiS has
            it; what stands still, for its way is down, holds up nothing else. A layer of no bytes is asked
            for, too.
    Attributes:
        fetched_bytes: so far.
    """

    def __init__(
        self,
        images: Images | Outages,
        system: System,
        came: Callable[[int, Parts, float], None],
        in_turn: bool = False,
    ) -> None:
        self._images = images if isinstance(images, Images) else None
        self._outages: Outages = {} if isinstance(images, Images) else images
        self._site_of, self._came = system.site_of, came
        self._delay_s: Floats = system.delay_s[:, 0]
        self._rate_bps: Floats = system.rate_bps[:, 0]
        self._there_s: list[dict[Part, float]] = [{} for _ in system.site_of]
        self._pulls: list[dict[Parts, Pull]] = [{} for _ in system.site_of]
        self._in_turn, self._free_s = in_turn, 0.0
        self.fetched_bytes = 0.0

    def have(self, node: int, parts: Iterable[Part]) -> None:
        """They are there from the beginning."""
        self._there_s[node] |= dict.fromkeys(parts, 0.0)

    def there_s(self, node: int, parts: Iterable[Part]) -> float:
        """When all are there, or were; infinite: `came` will say, or nobody fetches them."""
        return max((self._there_s[node].get(part, math.inf) for part in parts), default=0.0)

    def fetch(self, node: int, sizes_bytes: Mapping[Part, float], now_s: float) -> float:
        """Have come, together, what is not there yet and does not come; when all is there, see `there_s`."""
        there = self._there_s[node]
        lacking = [part for part in sizes_bytes if part not in there]
        self.fetched_bytes += sum(sizes_bytes[part] for part in lacking)
        coming = tuple(part for part in lacking if sizes_bytes[part] > 0.0 or self._in_turn)
        there |= dict.fromkeys(lacking, now_s)
        if coming and self._images is not None:
            there |= dict.fromkeys(coming, math.inf)
            (pulls, ways, paths), bits = self._images, 8.0 * sum(sizes_bytes[part] for part in coming)
            ended = partial(self._ended, node, coming)
            self._pulls[node][coming] = pulls.begin(now_s, ways[node], paths[node], bits, ended)
        else:
            there |= {part: self._alone_s(node, sizes_bytes[part], now_s) for part in coming}
        return max(self.there_s(node, sizes_bytes), now_s)

    def lose(self, node: int, now_s: float) -> None:
        """A node dies: what it has not got whole is lost."""
        self._there_s[node] = {part: at_s for part, at_s in self._there_s[node].items() if at_s <= now_s}
        for pull in self._pulls[node].values():
            assert self._images is not None, "whose images come over shared links"
            self._images.pulls.cancel(now_s, pull)
        self._pulls[node] = {}

    def _alone_s(self, node: int, size_bytes: float, now_s: float) -> float:
        site, begin_s = int(self._site_of[node]), max(now_s, self._free_s)
        end_s = begin_s + 8.0 * size_bytes / float(self._rate_bps[site])
        if self._in_turn:
            self._free_s = end_s
        return after_outages(begin_s, end_s, self._outages.get(site, ())) + float(self._delay_s[site])

    def _ended(self, node: int, parts: Parts) -> None:
        """The last byte has left where images are kept."""
        there_s = self._pulls[node].pop(parts).end_s + float(self._delay_s[self._site_of[node]])
        self._there_s[node] |= dict.fromkeys(parts, there_s)
        self._came(node, parts, there_s)


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
