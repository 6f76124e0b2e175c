"""Resource vectors: what a node has and what an owner reserves."""

from __future__ import annotations

from dataclasses import dataclass, fields

KINDS = ("cpu_cores", "memory_bytes", "accelerator_memory_bytes", "storage_bytes")


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of each resource kind, all >= 0.

    Attributes:
        cpu_cores: processor cores, fractions allowed.
        memory_bytes: main memory.
        accelerator_memory_bytes: memory of GPUs or TPUs.
        storage_bytes: disk.
    """

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0
    accelerator_memory_bytes: float = 0.0
    storage_bytes: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) >= 0:
                raise ValueError(f"{field.name} must be >= 0, got {getattr(self, field.name)!r}")

    def as_tuple(self) -> tuple[float, ...]:
        """Amounts in the order of `KINDS`."""
        return (self.cpu_cores, self.memory_bytes, self.accelerator_memory_bytes, self.storage_bytes)
