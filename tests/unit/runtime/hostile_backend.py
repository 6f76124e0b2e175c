"""A backend that others use too: what runs there gets ready late, moves, and is deleted by whomever."""

from dataclasses import dataclass

from alone import Alone
from edgewise.errors import RunError
from edgewise.runtime.backends.contract import Answering

LONGEST = 4  # turns until one is ready, or has ended
RARELY = 0.15


@dataclass
class Played:
    """A process: whose, where, and in how many turns it is ready or has ended."""

    name: str
    url: str
    ready_in: int
    ends_in: int | None = None
    alive: bool = True

    @property
    def ready(self):
        return self.alive and self.ready_in <= 0


class Cluster:
    """What runs, whoever looks; it goes on by a turn before each thing that a backend is asked.

    Args:
        random: says what happens.
    Attributes:
        calm: nothing happens any more but what was asked for.
        rarely: share of turns in which something else happens.
        late: turns at least until what is started is ready.
    """

    def __init__(self, random, rarely=RARELY):
        self.random, self.rarely, self.calm, self.late = random, rarely, False, 0
        self.processes, self.twice = {}, []  # by handle; names that were started while they ran

    def happens(self):
        return not self.calm and self.random.random() < self.rarely

    def running(self):
        """Handles of all that runs."""
        return [handle for handle, each in self.processes.items() if each.alive]

    def turn(self):
        for each in self.processes.values():
            each.ready_in -= 1
            if each.ends_in is not None:
                each.ends_in -= 1
            if each.ends_in == 0 or (each.alive and self.happens()):
                each.alive = False
            if each.alive and self.happens():
                each.url = self._address()

    def answers(self, url):
        """Whether one that is ready is at an address now."""
        return any(each.ready and each.url == url for each in self.processes.values())

    def put(self, name):
        if any(self.processes[handle].name == name for handle in self.running()):
            self.twice.append(name)
        handle = f"{name}-{len(self.processes)}"
        self.processes[handle] = Played(name, self._address(), self.late + self.random.randint(0, LONGEST))
        return handle

    def _address(self):
        return f"http://10.0.{self.random.randint(0, 255)}.{self.random.randint(1, 254)}:8000"


class HostileBackend(Alone):
    """A backend on a cluster; it knows no more of what it started than one that is made later."""

    def __init__(self, cluster):
        self.cluster = cluster

    def start(self, process):
        self.cluster.turn()
        if self.cluster.happens():
            raise RunError(f"{process.name}: there is no room")
        return self.cluster.put(process.name)

    def alive(self, handle):
        self.cluster.turn()
        return handle in self.cluster.running()

    def look(self, process, handle):
        self.cluster.turn()
        found = self.cluster.processes.get(handle)
        return Answering(process.url, False) if found is None else Answering(found.url, found.ready)

    def stop(self, handle, force=False):
        self.cluster.turn()
        found = self.cluster.processes.get(handle)
        if found is not None and found.ends_in is None:
            found.ends_in = self.cluster.random.randint(1, LONGEST)
