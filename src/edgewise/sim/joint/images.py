"""Images on nodes: what a worker that starts finds there, or fetches from where images are kept."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgewise.arrays import Floats, Ints
from edgewise.core.pulls import Pull
from edgewise.sim.requests.queues import Images, Outages, after_outages


class NodeImages:
    """Images of variants on nodes.

    Args:
        images: how they come: over links that all share; or, of outages alone, each with the whole rate.
        site_of: (N,) site of each node.
        delay_s, rate_bps: (B,) of the ways from where images are kept to the sites.
        came: told of an image that has come to a node: which, node, and when it is there.
    Attributes:
        fetched_bytes: so far.
    """

    def __init__(
        self,
        images: Images | Outages,
        site_of: Ints,
        delay_s: Floats,
        rate_bps: Floats,
        came: Callable[[str, int, float], None],
    ) -> None:
        self._images = images if isinstance(images, Images) else None
        self._outages: Outages = {} if isinstance(images, Images) else images
        self._site_of, self._delay_s, self._rate_bps, self._came = site_of, delay_s, rate_bps, came
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
