"""What enters `OrchestrateCore`, and what leaves it: either driver builds the same events, and obeys."""

from typing import NamedTuple

from edgewise.arrays import Floats, Ints
from edgewise.core.orchestrate.counting import LEAVING, READY, REMOVING, STARTING

NO_NODE = -1  # in place of a node: a worker of the cloud, which no command touches


class ReplicaSeen(NamedTuple):
    """A replica, or a worker of streams that may go, as it is now; it is new, or it has changed.

    Attributes:
        replica: its name.
        node: or `NO_NODE`.
        service: index of what it serves.
        wanted: False: it gets no more requests, and is to go.
        started: it has a process.
        up: it answers.
        ending: its process was told to end, so that it cannot be kept.
        held: requests that it has or will get; streams that are bound to it.
        serves: how many of them it works on at once.
    """

    replica: str
    node: int
    service: int
    wanted: bool = True
    started: bool = True
    up: bool = False
    ending: bool = False
    held: int = 0
    serves: int = 1

    @property
    def stays(self) -> bool:
        """Whether it serves, will serve, or could be kept."""
        return self.wanted or (self.started and not self.ending)

    @property
    def state(self) -> int:
        """One of those that `counting` knows."""
        if self.wanted:
            return READY if self.started and self.up else STARTING
        return REMOVING if self.stays and self.up else LEAVING


class ReplicaGone(NamedTuple):
    """A replica's process has ended, and it holds nothing."""

    replica: str


class RequestsCounted(NamedTuple):
    """What was counted since the last frame.

    Attributes:
        arrived: (S,) requests that arrived.
        cloud_delay_s: measured delay to the cloud.
        service_s: (S,) mean time of a request on a replica.
        most: replicas that may be added.
        dropped: (S,) requests that were refused, or dropped where they were sent.
    """

    arrived: Ints
    cloud_delay_s: float
    service_s: Floats
    most: int
    dropped: Ints


class StreamsCounted(NamedTuple):
    """What was counted of streams since the last frame, for P pools of workers; see `ReplicaView.pools`.

    Attributes:
        load: (N, P) of streams that are bound to workers on each node, and of requests that are sent there,
            as measured, in workers' worth.
        asked, unserved, in_time: (P,)
        refused: (P, 5) streams, by `REFUSED`.
    """

    load: Floats
    asked: Floats
    unserved: Floats
    in_time: Floats
    refused: Ints


class FrameBegan(NamedTuple):
    """All that happened up to now was told, and replicas may change.

    Attributes:
        changes: (C, 2) of `core.orchestrate.commands_of`, what the policy answered if a driver asked it
            apart, as it may take long (`OrchestrateCore.question`); None: it is asked now.
    """

    time_s: float
    changes: Ints | None = None


class StartReplica(NamedTuple):
    """One more replica of a service on a node."""

    node: int
    service: int


class KeepReplica(NamedTuple):
    """A replica that was to go stays, by its name."""

    replica: str


class EndReplica(NamedTuple):
    """A replica gets no more requests and ends when it has none, by its name."""

    replica: str


OrchestrateEvent = ReplicaSeen | ReplicaGone | RequestsCounted | StreamsCounted | FrameBegan
OrchestrateCommand = StartReplica | KeepReplica | EndReplica
