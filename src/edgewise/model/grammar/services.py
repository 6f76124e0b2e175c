"""Services in YAML: what requests ask for, and the replicas that serve them. Forbidden here: I/O."""

from __future__ import annotations

from pydantic import Field

from edgewise.model.values import Count, Index, Name, Seconds, Spec


class ServiceSpec(Spec):
    """A service: a variant whose replicas come and go. It is called by the variant's name."""

    variant: Name = Field(
        description="Name of the variant, and of the service; a worker of it is needed in the cloud."
    )
    deadline_s: Seconds = Field(description="Deadline of requests that state none, s.")
    initial: Index = Field(default=1, description="Replicas at first, each where most memory is free.")


class ServicesSpec(Spec):
    """Services whose requests are dispatched one by one, and whose replicas are orchestrated (KaiS)."""

    cloud: Name = Field(
        description="Cluster whose `workers` serve what nodes cannot; replicas run on all other clusters."
    )
    offered: tuple[ServiceSpec, ...] = Field(min_length=1, description="What requests ask for.")
    dispatch: str = Field(
        default="deadline-queue", description="Request policy, or a card NAME.json, relative to this file."
    )
    orchestrate: str = Field(
        default="autoscaler", description="Replica policy, or a card NAME.json, relative to this file."
    )
    frame_s: Seconds = Field(default=25.0, description="Time between orchestrations, s.")
    hold_s: Seconds = Field(
        default=0.01, description="A request that the policy holds is decided anew after this time, s."
    )
    nodes_per_frame: Count | None = Field(
        default=None, description="Nodes on which replicas may change in a frame (KaiS's H); all by default."
    )
