"""What can be run: tasks, models, variants and their measured profiles, and the resources that they take."""

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


@dataclass(frozen=True, slots=True)
class Profile:
    """Processing delay of a variant as measured, linear in payload and batch.

    D(size, batch) = (fixed_s + per_byte_s * size) * (1 + batch_slope * (batch - 1))

    Attributes:
        fixed_s: delay of an empty payload, batch of one.
        per_byte_s: growth with payload.
        batch_slope: growth per further item of a batch; 1 means batching gains nothing.
        deviation: standard deviation of the delay, as a fraction of its mean.
        distribution: law of the delay around its mean: "normal" (truncated at 0) with `deviation`,
            or "exponential", whose deviation is its mean.
        source: "measured on …" or the publication the figures are scaled from.
    """

    fixed_s: float
    per_byte_s: float = 0.0
    batch_slope: float = 1.0
    deviation: float = 0.0
    source: str = ""
    distribution: str = "normal"

    def delay_s(self, size_bytes: float, batch: int = 1) -> float:
        """Mean processing delay of a batch whose largest payload is `size_bytes`."""
        return (self.fixed_s + self.per_byte_s * size_bytes) * (1.0 + self.batch_slope * (batch - 1))


@dataclass(frozen=True, slots=True)
class Model:
    """A trained network for one task; accuracy in the task's own metric (mAP for detection)."""

    name: str
    task: str
    accuracy: float


@dataclass(frozen=True, slots=True)
class Variant:
    """A model made ready for a device (ASET's v): batch size, servers, resources, profile.

    Attributes:
        name: unique in the catalog.
        model: name of its model.
        resources: what one worker of it reserves on its node.
        profile: processing delay.
        capacity_qps: queries/s at its largest input (ASET's C_v).
        largest_bytes: the largest payload it takes; a query's cost relative to it is η.
        max_batch: most queries in one batch.
        batch_timeout_s: a free worker waits this long for a batch to fill; 0 starts at once.
        servers: batches processed at once.
        file: ONNX file of the network, for live workers.
    """

    name: str
    model: str
    resources: Resources
    profile: Profile
    capacity_qps: float
    largest_bytes: float
    max_batch: int = 1
    servers: int = 1
    file: str | None = None
    batch_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Catalog:
    """All models and variants of a scenario."""

    models: tuple[Model, ...]
    variants: tuple[Variant, ...]

    def model(self, name: str) -> Model:
        """The model called `name`; KeyError when there is none."""
        return {model.name: model for model in self.models}[name]

    def variant(self, name: str) -> Variant:
        """The variant called `name`; KeyError when there is none."""
        return {variant.name: variant for variant in self.variants}[name]
