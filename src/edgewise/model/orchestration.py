"""What replicas run on: access sites with nodes on a LAN, a cloud behind a WAN, services and their images.

One `System` is shared by all worlds of a batch. *Stations* hold queues: station 0 is the cloud (one queue
for all its machines), station n + 1 is node n. Action j of a dispatcher is station j. Forbidden here: I/O.
"""

from typing import NamedTuple

import numpy as np

from edgewise.arrays import Bools, Floats, Ints


class System(NamedTuple):
    """Arrays of B sites, N nodes, S services, M machines, L image layers.

    Attributes:
        slot_s: each site dispatches one request per slot.
        frame_slots: slots between orchestrations.
        site_of: (N,) the site that manages each node.
        first_machine: (N + 2,) machines of station k are first_machine[k] … first_machine[k + 1] - 1;
            the cloud's come first, then one for each node.
        cpu_cores, memory_bytes: (M,) what each machine has.
        disk_bytes: (N + 1,) for images on one machine of each station.
        service_memory_bytes: (S,) what a replica holds while it lives.
        service_cpu_cores: (S,) what a request usually uses while it is worked on; generators read it.
        replica_cpu_cores: (S,) what a replica holds while it lives; 0 where each request holds its own cores.
        layer_bytes: (L,) image layers.
        needs_layer: (S, L) layers of each service's image.
        initial: (N, S) replicas at the start, their images pulled.
        delay_s: (B, N + 1) mean one-way delay from each site to each station.
        rate_bps: (B, N + 1) rate from each site to each station, and back. Where work does not share links,
            what one site sends to nodes waits for each other, and so does what all send to the cloud.
        deviation_s: (B, N + 1) standard deviation of the delay; drawn anew in every slot.
        start_delay_s: from the image's last byte to the first request of a new replica.
        service_deviation: of service times, as a fraction of their mean (log-normal); 0 for none.
        returns_cpu: False: nodes never get a finished request's cores back (the authors' public demo).
        drops: False: nothing is dropped, late requests are served (count as late).
    """

    slot_s: float
    frame_slots: int
    site_of: Ints
    first_machine: Ints
    cpu_cores: Floats
    memory_bytes: Floats
    disk_bytes: Floats
    service_memory_bytes: Floats
    service_cpu_cores: Floats
    replica_cpu_cores: Floats
    layer_bytes: Floats
    needs_layer: Bools
    initial: Ints
    delay_s: Floats
    rate_bps: Floats
    deviation_s: Floats
    start_delay_s: float
    service_deviation: float
    returns_cpu: bool
    drops: bool

    @property
    def sites(self) -> int:
        """B."""
        return int(self.delay_s.shape[0])

    @property
    def nodes(self) -> int:
        """N."""
        return int(self.site_of.size)

    @property
    def services(self) -> int:
        """S."""
        return int(self.service_memory_bytes.size)

    @property
    def replica_holds(self) -> Floats:
        """(S, 2) memory and cores of a replica while it lives; no cores where each request holds its own."""
        return np.stack([self.service_memory_bytes, self.replica_cpu_cores], axis=1)

    @property
    def node_has(self) -> Floats:
        """(N, 2) memory and cores of each node."""
        machines = slice(int(self.first_machine[1]), None)
        return np.stack([self.memory_bytes[machines], self.cpu_cores[machines]], axis=1)

    @property
    def stations(self) -> int:
        """N + 1: the cloud and the nodes; also the number of a dispatcher's actions."""
        return self.nodes + 1


class Pools(NamedTuple):
    """P pools of streams' workers that come and go, which are the last columns of a system's services.

    Attributes:
        first: column of the first.
        least, most: (P,) workers that there may be. capacity_qps: (P,) C_v. start_s: (P,) from the image's
            last byte to a new one's first answer.
        serves: (P,) service whose requests these workers serve as well, -1: none.
        may: (N, S) which nodes may have some of a service or pool.
    """

    first: int
    least: Ints
    most: Ints
    capacity_qps: Floats
    start_s: Floats
    serves: Ints
    may: Bools


def no_pools(system: System) -> Pools:
    """Services of requests alone."""
    none = np.zeros(0, dtype=np.int64)
    may = np.ones((system.nodes, system.services), dtype=np.bool_)
    return Pools(system.services, none, none, np.zeros(0), np.zeros(0), none, may)
