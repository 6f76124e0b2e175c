"""Split models in YAML: queries of graphs of operators, which servers share. Forbidden here: I/O."""

from __future__ import annotations

from pydantic import Field, model_validator

from edgewise.model.values import BytesOrZero, Count, Name, NotNegative, Positive, Spec


class OperatorSpec(Spec):
    """An operator: what a query makes it compute."""

    name: Name = Field(description="Unique in its graph.")
    work_ops: NotNegative = Field(description="Operations of a query.")


class TensorSpec(Spec):
    """Data of a query from one operator to another."""

    source: Name = Field(description="Name of the operator that makes it.")
    target: Name = Field(description="Name of the operator that needs it.")
    size_bytes: BytesOrZero = Field(description="Its size in bytes.")
    tensor: str = Field(
        default="", description="Its name; a server needs data of one name from one operator only once."
    )


class GraphSpec(Spec):
    """Queries of one network: read from an ONNX file, or written out as operators and tensors."""

    name: Name = Field(description="Unique among the graphs.")
    rate_qps: Positive = Field(description="Queries per second, a Poisson process.")
    network: str | None = Field(
        default=None,
        min_length=1,
        description="An ONNX file, relative to the scenario's folder, or gpt2, resnet50, inception-v1, …",
    )
    shapes: dict[str, tuple[Count, ...]] = Field(
        default={}, description="Shapes of the network's inputs with free axes, as x: [1, 3, 224, 224]."
    )
    operators: tuple[OperatorSpec, ...] = Field(
        default=(), description="Instead of a network: its operators."
    )
    tensors: tuple[TensorSpec, ...] = Field(default=(), description="Data between operators.")
    branches: Count | None = Field(
        default=None, description="Contract further, to so many branches of a sub-graph."
    )

    @model_validator(mode="after")
    def _network_or_operators(self) -> GraphSpec:
        if (self.network is None) == (not self.operators):
            raise ValueError("needs either 'network' or 'operators'; give exactly one of them")
        return self
