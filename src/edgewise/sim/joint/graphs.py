"""Queries of split models in a joint run: `SplitWorld` knows servers and links, `SplitCore` places them.

Servers hold their part of nodes for life, so queries ask nothing of the plane. What a dead server had waits
for it and is begun anew there; queries that come later go elsewhere once the scheduler has heard of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from edgewise.core.split.core import ServerChanged
from edgewise.sim.joint.parts import Bystander
from edgewise.sim.stations.split import SplitWorld


class GraphsPart(Bystander):
    """Queries on their way through servers and links, decided in their own event loop.

    Nobody looks at them on the way, so they go on when something changes, or at the end.

    Args:
        world: before its first query.
        nodes: (S,) names of the servers' nodes.
        lag_s: after which the scheduler hears that a server went down or came up.
    """

    def __init__(self, world: SplitWorld, nodes: Sequence[str], lag_s: float) -> None:
        self.world, self._nodes, self._lag_s = world, tuple(nodes), lag_s
        self._news: deque[ServerChanged] = deque()

    def change_node(self, node: str, up: bool, now_s: float) -> None:
        """The server there stops, or begins anew what it had."""
        for server in [s for s, name in enumerate(self._nodes) if name == node]:
            self._go_on(now_s)
            engine = self.world.engine
            engine.change(now_s, engine.network.stations[server].name, up=up)
            self._news.append(ServerChanged(now_s + self._lag_s, server, up))

    def finish(self) -> None:
        """To the last query that can end."""
        self._go_on(math.inf)

    def _go_on(self, to_s: float) -> None:
        while self._news and self._news[0].time_s <= to_s:
            heard = self._news.popleft()
            self.world.run(heard.time_s)
            self.world.core.handle(heard)
        self.world.run(to_s)
