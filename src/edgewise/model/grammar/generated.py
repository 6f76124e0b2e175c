"""The YAML form of a generated topology: kinds, tiers, and the figures they start from.

The paper gives ranges only (ASET, section V-A); where in a range a default lies is our choice, and
each one is explained in docs/reference/scenario.md. Forbidden here: I/O.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from edgewise.model.values import (
    BitsPerSecond,
    Count,
    Index,
    Name,
    Positive,
    ResourcesSpec,
    SecondsOrZero,
    Spec,
    integer,
)

MOST_ANTENNAS = MOST_NODES = 1_000
GRAPH = "sndlib/nobel-germany"
TIERS = {
    "dc-cloud": ("data_centre", "cloud"),
    "co-dc-cloud": ("central_office", "data_centre", "cloud"),
    "full-edge": ("access", "central_office", "data_centre", "cloud"),
    "isp": ("access", "central_office", "data_centre", "cloud"),
}

Shapes = Annotated[
    tuple[ResourcesSpec, ...],
    Field(min_length=1, description="Resources of a server; the servers of a cluster take these in turn."),
]
Mix = Annotated[
    dict[Name, Positive],
    Field(
        min_length=1,
        description="Variant: share. Every server is filled until nothing fits, each time with the variant "
        "that lags most behind its share in the cluster.",
    ),
]
Delay = Annotated[
    SecondsOrZero,
    Field(description="Mean one-way delay from an antenna in s; kind isp adds the way through the graph."),
]
Deviation = Annotated[SecondsOrZero, Field(description="Standard deviation of that delay in s.")]
Bandwidth = Annotated[BitsPerSecond, Field(description="Bandwidth from a site in bits/s.")]


def _shape(cores: float, memory_gb: float, accelerator_bytes: float) -> ResourcesSpec:
    return ResourcesSpec(
        cpu_cores=cores, memory_bytes=memory_gb * 1e9, accelerator_memory_bytes=accelerator_bytes
    )


class AccessSpec(Spec):
    """A machine behind each antenna: 8 or 16 cores, 16 GB, a small TPU."""

    servers: Count = Field(default=1, description="Servers of each antenna.")
    shapes: Shapes = (_shape(8, 16, 8e6), _shape(16, 16, 8e6))
    mix: Mix = Field(default={"mobilenet-ssd-tpu": 1.0, "mobilenet-ssd-cpu4": 1.0, "tiny-yolov2-cpu2": 1.0})
    delay_s: Delay = 0.3e-3
    deviation_s: Deviation = 0.05e-3
    bandwidth_bps: Bandwidth = 10e9


class CentralOfficeSpec(Spec):
    """Servers of 32 or 64 cores with a V100 and two T4 GPUs each, for the antennas nearby."""

    antennas: Count = Field(default=5, description="Antennas that share a central office.")
    servers: Count = Field(default=5, description="Servers of a central office that has all its antennas.")
    shapes: Shapes = (_shape(32, 128, 64e9), _shape(64, 256, 64e9))
    mix: Mix = Field(
        default={
            "yolov3-v100-b8": 1.0,
            "yolov3-t4-b1": 1.0,
            "yolov3-t4-b4": 1.0,
            "mobilenet-ssd-cpu8": 2.0,
            "tiny-yolov2-cpu8": 1.0,
        }
    )
    delay_s: Delay = 2e-3
    deviation_s: Deviation = 0.3e-3
    bandwidth_bps: Bandwidth = 10e9


class DataCentreSpec(Spec):
    """Hundreds of servers with V100 GPUs at the operator, scaled to the antennas simulated."""

    servers: Count = Field(default=400, description="Servers for 1,000 antennas.")
    shapes: Shapes = (_shape(64, 256, 256e9),)
    mix: Mix = Field(default={"yolov3-v100-b8": 2.0, "mobilenet-ssd-cpu8": 1.0})
    delay_s: Delay = 5e-3
    deviation_s: Deviation = 0.4e-3
    bandwidth_bps: Bandwidth = 10e9


class CloudSpec(Spec):
    """A remote cloud with more servers than the load needs."""

    servers: Count = Field(default=500, description="Servers for 1,000 antennas.")
    shapes: Shapes = (_shape(64, 512, 256e9),)
    mix: Mix = Field(default={"yolov3-v100-b8": 1.0, "mobilenet-ssd-cpu8": 1.0})
    delay_s: Delay = 15e-3
    deviation_s: Deviation = 2e-3
    bandwidth_bps: Bandwidth = 10e9


def _kind(value: Any) -> Any:
    kinds = [*TIERS, "edge-network"]
    if value not in kinds:
        raise ValueError(f"is not allowed; use {', '.join(map(repr, kinds[:-1]))} or {kinds[-1]!r}")
    return value


class TopologySpec(Spec):
    """A generated topology: antennas, and clusters in tiers above them, full of workers."""

    kind: Annotated[Literal["dc-cloud", "co-dc-cloud", "full-edge", "isp"], BeforeValidator(_kind)] = Field(
        description="Which tiers have servers: 'dc-cloud' data centre and cloud, 'co-dc-cloud' also central "
        "offices, 'full-edge' also the antennas, 'isp' all, placed on the graph of an operator."
    )
    antennas: Annotated[int, *integer(1, most=MOST_ANTENNAS)] | None = Field(
        default=None,
        description="Sites, 1 … 1000; left out: 10, or one for each node of the graph. "
        "The servers are scaled to them.",
    )
    graph: str | None = Field(
        default=None, description=f"Kind isp: a graph of the topohub package; left out: {GRAPH}."
    )
    access_delay_s: SecondsOrZero = Field(
        default=1e-3, description="One-way delay from a client to its antenna in s."
    )
    uplink_bps: BitsPerSecond = Field(default=200e6, description="Rate of a client's uplink in bits/s.")
    access: AccessSpec | None = Field(default=None, description="Kinds full-edge and isp.")
    central_office: CentralOfficeSpec | None = Field(
        default=None, description="Kinds co-dc-cloud, full-edge and isp."
    )
    data_centre: DataCentreSpec | None = Field(default=None, description="All kinds.")
    cloud: CloudSpec | None = Field(default=None, description="All kinds.")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        """Write out what the kind has when it is left out."""
        kind = data.get("kind") if isinstance(data, dict) else None
        if not isinstance(kind, str) or kind not in TIERS:
            return data
        data = {name: value for name, value in data.items() if value is not None}
        for tier in TIERS[kind]:
            data.setdefault(tier, {})
        if kind == "isp":
            data.setdefault("graph", GRAPH)
        else:
            data.setdefault("antennas", 10)
        return data

    @model_validator(mode="after")
    def _of_its_kind(self) -> "TopologySpec":
        for tier in TIERS["full-edge"]:
            if getattr(self, tier) is not None and tier not in TIERS[self.kind]:
                raise ValueError(f"kind {self.kind!r} has no {tier!r}; remove it or choose another kind")
        if self.graph is not None and self.kind != "isp":
            raise ValueError(f"kind {self.kind!r} has no 'graph'; remove it or choose kind 'isp'")
        return self


class EdgeNetworkSpec(Spec):
    """ENTS's random network: nodes of its Table I with a speed, joined by shared links, mean degree 3."""

    kind: Literal["edge-network"] = Field(description="'edge-network': nodes and links for pipelines.")
    nodes: Annotated[int, *integer(2, most=MOST_NODES)] = Field(
        default=30, description="2 … 1000; more than 70 go on with virtual machines."
    )
    mean_bps: BitsPerSecond = Field(default=1e6, description="Mean bandwidth of a link in bits/s.")
    seed: Index = Field(default=0, description="Keys every draw: another seed, another network.")


def _form(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "(edge-network)" if kind == "edge-network" else "(tiers)"


AnyTopologySpec = Annotated[
    Annotated[TopologySpec, Tag("(tiers)")] | Annotated[EdgeNetworkSpec, Tag("(edge-network)")],
    Discriminator(_form),
]
