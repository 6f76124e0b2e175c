"""The YAML form of a scenario of requests and replicas, and the arrays it becomes.

Forbidden here: I/O (`edgewise.config` reads the files).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgewise.arrays import Bools, Floats, Ints
from edgewise.errors import ScenarioError
from edgewise.model.orchestration import System
from edgewise.model.problems import listed
from edgewise.model.values import (
    BYTES,
    PLAIN,
    BitsPerSecond,
    Bytes,
    BytesOrZero,
    Count,
    Name,
    NotNegative,
    Positive,
    RateRange,
    Seconds,
    SecondsOrZero,
    Spec,
    span,
)

BytesRange = Annotated[tuple[float, float], *span(BYTES)]
AmountRange = Annotated[tuple[float, float], *span(PLAIN)]


class EdgeNodeSpec(Spec):
    """Equal nodes of a site."""

    count: Count = Field(default=1, description="How many.")
    cpu_cores: Positive = Field(description="Cores of each.")
    memory_bytes: Bytes = Field(description="Memory of each in bytes.")
    disk_bytes: Bytes = Field(default=0.3e12, description="Disk of each for images in bytes.")


class EdgeSiteSpec(Spec):
    """An access site (the paper's eAP) with its nodes, or `count` equal ones."""

    name: Name = Field(description="Unique among the sites; with `count` above 1: name-0, name-1, …")
    count: Count = Field(default=1, description="How many.")
    nodes: tuple[EdgeNodeSpec, ...] = Field(min_length=1, description="Its nodes.")


class CentralCloudSpec(Spec):
    """The cloud: equal machines behind one queue, every image on their disks."""

    machines: Count = Field(default=15, description="How many.")
    cpu_cores: Positive = Field(default=4.0, description="Cores of each.")
    memory_bytes: Bytes = Field(default=16e9, description="Memory of each in bytes.")
    disk_bytes: Bytes = Field(default=1e12, description="Disk of each in bytes.")


class EdgeNetworkSpec(Spec):
    """LAN between sites and nodes, WAN to the cloud."""

    own_delay_s: SecondsOrZero = Field(default=1e-3, description="One-way delay from a site to its nodes, s.")
    other_delay_s: SecondsOrZero = Field(default=5e-3, description="… to the nodes of other sites, s.")
    lan_bps: BitsPerSecond = Field(default=1e9, description="Rate of a site's link to all nodes, bits/s.")
    cloud_delay_s: SecondsOrZero = Field(default=0.1, description="Mean one-way delay to the cloud, s.")
    cloud_deviation_s: SecondsOrZero = Field(
        default=0.0, description="Standard deviation of that delay, s; drawn anew in every slot."
    )
    cloud_bps: BitsPerSecond = Field(
        default=1e8, description="Rate of the way to the cloud, and of the way back, shared by all, bits/s."
    )


class EdgeServiceSpec(Spec):
    """A service, or `count` of them whose values are spread evenly over the ranges."""

    name: Name = Field(description="Unique among the services; with `count` above 1: name-0, name-1, …")
    count: Count = Field(default=1, description="How many.")
    memory_bytes: BytesRange = Field(
        description="What a replica holds while it lives, bytes: x or [low, high]."
    )
    cpu_cores: AmountRange = Field(
        description="Cores a request uses while it is worked on: x or [low, high]."
    )
    image_bytes: BytesRange = Field(description="Layers of its own in its image, bytes: x or [low, high].")
    base: Name = Field(default="base", description="Its images share this base layer.")
    base_bytes: BytesOrZero = Field(default=0.0, description="Size of the base layer in bytes.")


class SteadySpec(Spec):
    """Requests without a trace: Poisson arrivals, every site and every service as likely."""

    kind: Literal["steady"] = Field(default="steady", description="Which generator.")
    rate_qps: Positive = Field(description="Requests per second, all sites together.")
    service_s: AmountRange = Field(description="Time on a replica in s: x, or uniform in [low, high].")
    slack: RateRange = Field(
        default=(1.5, 4.0), description="Deadline over time on a replica: x, or uniform in [low, high]."
    )
    least_slack_s: SecondsOrZero = Field(
        default=0.0, description="Deadlines leave at least this much more, s."
    )
    memory_share: NotNegative = Field(
        default=0.0, description="Memory in use while working, as a share of what the replica holds."
    )
    payload_bytes: BytesOrZero = Field(default=100e3, description="Payload of a request in bytes.")


class OrchestrationSpec(Spec):
    """A scenario of requests, dispatched in slots, and replicas, orchestrated in frames (KaiS)."""

    name: Name = Field(description="Names the run.")
    description: str = Field(default="", description="What it shows, in a sentence.")
    slot_s: Seconds = Field(default=0.25, description="Each site dispatches one request per slot, s.")
    frame_slots: Count = Field(default=100, description="Slots from one orchestration to the next.")
    frames: Count = Field(default=10, description="Length of a run in frames.")
    sites: tuple[EdgeSiteSpec, ...] = Field(min_length=1, description="Access sites and their nodes.")
    cloud: CentralCloudSpec = Field(default=CentralCloudSpec(), description="The cloud.")
    network: EdgeNetworkSpec = Field(default=EdgeNetworkSpec(), description="Delays and rates.")
    services: tuple[EdgeServiceSpec, ...] = Field(min_length=1, description="What requests ask for.")
    initial_share: NotNegative = Field(
        default=0.5, le=1.0, description="Share of each node's memory that replicas fill at first, in turn."
    )
    start_delay_s: SecondsOrZero = Field(
        default=1.0, description="From a pulled image to a ready replica, s."
    )
    service_deviation: NotNegative = Field(
        default=0.0, description="Standard deviation of service times as a fraction of their mean."
    )
    returns_cpu: bool = Field(
        default=True, description="false: nodes never get cores back, as in the authors' public demo."
    )
    drops: bool = Field(default=True, description="false: nothing is dropped; late requests are served.")
    requests: SteadySpec = Field(description="What arrives.")


def build_system(spec: OrchestrationSpec) -> System:
    """The arrays of a scenario.

    Raises:
        ScenarioError: a name is used twice, an image does not fit the cloud's disks, a replica no node.
    """
    sites = [site for site in spec.sites for _ in range(site.count)]
    nodes = [(b, node) for b, site in enumerate(sites) for node in site.nodes for _ in range(node.count)]
    machines, count = spec.cloud.machines, len(nodes)
    cloud = spec.cloud
    site_of = np.array([b for b, _ in nodes])
    memory = np.array([cloud.memory_bytes] * machines + [node.memory_bytes for _, node in nodes])
    service_memory, service_cpu, layer_bytes, needs_layer = _services(spec)
    net = spec.network
    own = site_of[None, :] == np.arange(len(sites))[:, None]
    lan = np.where(own, net.own_delay_s, net.other_delay_s)
    system = System(
        slot_s=spec.slot_s,
        frame_slots=spec.frame_slots,
        site_of=site_of,
        first_machine=np.concatenate([[0], machines + np.arange(count + 1)]),
        cpu_cores=np.array([cloud.cpu_cores] * machines + [node.cpu_cores for _, node in nodes]),
        memory_bytes=memory,
        disk_bytes=np.array([cloud.disk_bytes] + [node.disk_bytes for _, node in nodes]),
        service_memory_bytes=service_memory,
        service_cpu_cores=service_cpu,
        layer_bytes=layer_bytes,
        needs_layer=needs_layer,
        initial=spread(memory[machines:] * spec.initial_share, service_memory),
        delay_s=np.concatenate([np.full((len(sites), 1), net.cloud_delay_s), lan], axis=1),
        lan_bps=net.lan_bps,
        wan_bps=net.cloud_bps,
        wan_deviation_s=net.cloud_deviation_s,
        start_delay_s=spec.start_delay_s,
        service_deviation=spec.service_deviation,
        returns_cpu=spec.returns_cpu,
        drops=spec.drops,
    )
    _check(spec, system)
    return system


def spread(room_bytes: Floats, service_memory_bytes: Floats) -> Ints:
    """(N, S) replicas: services in turn, node by node, as long as the next one fits.

    Args:
        room_bytes: (N,) memory to fill on each node.
        service_memory_bytes: (S,) of a replica.
    """
    placed = np.zeros((room_bytes.size, service_memory_bytes.size), dtype=np.int64)
    following = 0
    for n, room in enumerate(room_bytes.tolist()):
        while service_memory_bytes[following] <= room * (1 + 1e-9):
            placed[n, following] += 1
            room -= float(service_memory_bytes[following])
            following = (following + 1) % service_memory_bytes.size
    return placed


def _services(spec: OrchestrationSpec) -> tuple[Floats, Floats, Floats, Bools]:
    """(S,) memory and cores, (L,) layers: each service's own, then bases; (S, L) who needs which."""

    def column(name: str) -> Floats:
        parts: list[Floats] = []
        for service in spec.services:
            low, high = getattr(service, name)
            parts.append(np.linspace(float(low), float(high), service.count))
        return np.concatenate(parts)

    bases = {s.base: s.base_bytes for s in spec.services if s.base_bytes > 0}
    own = column("image_bytes")
    base_of = [s.base for s in spec.services for _ in range(s.count)]
    shares = np.array([[base == name for name in bases] for base in base_of]).reshape(own.size, len(bases))
    needs = np.concatenate([np.eye(own.size, dtype=bool), shares.astype(bool)], axis=1)
    layers = np.concatenate([own, np.array(list(bases.values()))])
    return column("memory_bytes"), column("cpu_cores"), layers, needs


def _check(spec: OrchestrationSpec, system: System) -> None:
    problems = []
    for what, parts in (("sites", spec.sites), ("services", spec.services)):
        names = [part.name for part in parts]
        problems += [
            f"{what}: name {x!r} is used twice; names must differ" for x in set(names) if names.count(x) > 1
        ]
    images = float(system.layer_bytes.sum())
    if images > system.disk_bytes[0]:
        problems.append(f"cloud.disk_bytes: all images are {images:g} bytes; give each machine as much")
    biggest = float(system.service_memory_bytes.max())
    if biggest > min(spec.cloud.memory_bytes, system.memory_bytes[spec.cloud.machines :].max()):
        problems.append(
            f"services: a replica holds {biggest:g} bytes, more than the largest node or machine has"
        )
    node_images = (system.initial @ system.needs_layer > 0) @ system.layer_bytes
    for n in np.flatnonzero(node_images > system.disk_bytes[1:]):
        problems.append(
            f"node {n}: images of its first replicas are {node_images[n]:g} bytes; give more disk"
        )
    if problems:
        raise ScenarioError(listed(spec.name, sorted(problems)))
