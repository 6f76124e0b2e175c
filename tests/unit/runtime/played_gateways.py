"""Gateways as far as their controller sees them: they follow the store late, and hold work at who serves."""

from collections import Counter

from edgewise.core.orchestrate import REFUSED


class PlayedGateway:
    """One that runs.

    Args:
        what: comes and goes in the scenario that it was started with; None: nothing.
    Attributes:
        sends: to replicas and workers of pools by name, whether it would send there.
        held: requests and streams that it has there.
        places: of workers by name.
    """

    def __init__(self, what):
        self.what, self.services = what, what is not None and what.pools.first > 0
        self.sends, self.held, self.places = {}, Counter(), {}

    def follow(self, rows):
        """Read the store, as it does every now and then."""
        self.sends = {r.process.name: r.process.wanted for r in rows if self._knows(r.process)}
        self.places = {r.process.name: r.process.url for r in rows if r.process.kind == "worker"}

    def _knows(self, process):
        names = () if self.what is None else [name for pool in self.what.workers for name in pool]
        return process.name in names or (self.services and process.kind == "replica")

    def work(self, random, running):
        """Something comes, and something is over; what was at one that does not run any more is elsewhere."""
        for name in [name for name in self.held if name not in running or random.random() < 0.4]:
            del self.held[name]
        self.held.update(
            name for name, may in self.sends.items() if may and name in running and random.random() < 0.4
        )

    def uses(self, name):
        return self.sends.get(name, False) or self.held[name] > 0

    def answer(self, path, rows, running):
        """Of its administration; None: it refuses."""
        kinds = {r.process.name: r.process.kind for r in rows}
        seen = {
            name: {"up": name in running, "wanted": may, "held": self.held[name], "streams": self.held[name]}
            | {"load": 0.5 * self.held[name]}
            for name, may in self.sends.items()
            if name in kinds
        }
        match path:
            case "/v1/admin/workers":
                return [
                    {"worker": name, "up": name in running, "url": url} for name, url in self.places.items()
                ]
            case "/v1/admin/replicas" if self.services:
                what = self.what
                services = {name: {"arrived": 0, "dropped": 0} for name in what.names[: what.pools.first]}
                mine = {name: view for name, view in seen.items() if kinds[name] == "replica"}
                return {"fault": "", "cloud_delay_s": 0.03, "services": services, "replicas": mine}
            case "/v1/admin/pools":
                pools = 0 if self.what is None else len(self.what.workers)
                none, mine = [0] * pools, {n: view for n, view in seen.items() if kinds[n] == "worker"}
                return {
                    "workers": mine, "asked": none, "unserved": none, "waiting": none,
                    "refused": [[0] * len(REFUSED)] * pools, "judged": [[0, 0]] * pools,
                    "waiting_refused": [[0] * len(REFUSED)] * pools,
                }  # fmt: skip
        return None


def comes_and_goes(process):
    return process.kind == "replica" or process.pooled
