"""What clients and servers say in JSON, field by field: handlers read and write these types.

The OpenAPI documents take their schemas from them, see `openapi`. Fields beyond these are passed over, except
in `Needs`. What a type cannot say, as how long a text may be, is checked where it is used.
"""

import json
import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from edgewise.errors import ProtocolError

T = TypeVar("T")
NAMES = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false",
         "array": "a list", "object": "an object"}  # fmt: skip
DATATYPES = ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16",
             "FP32", "FP64", "BYTES")  # fmt: skip
# Said of a field, and checked by whoever reads tensors, whose errors say more.
Shape = Annotated[
    list[int], Meta(extra_json_schema={"items": {"type": "integer", "minimum": 0, "maximum": 1024}})
]
Datatype = Annotated[str, Meta(extra_json_schema={"enum": list(DATATYPES)})]
Amount = Annotated[float, Meta(ge=0.0, le=1e15)]
UnixTime = Annotated[float, Meta(description="Unix time, seconds")]


class Size(Struct):
    """Of a tensor whose data follow the JSON."""

    binary_data_size: int | None = None


class Tensor(Struct):
    """A tensor, or what is said of one whose data follow the JSON."""

    name: str
    shape: Shape
    datatype: Datatype
    parameters: Size | None = None
    data: Annotated[Any, Meta(extra_json_schema={"type": "array"})] = None


class Form(Struct):
    """How an output is wanted."""

    binary_data: bool | UnsetType = UNSET


class Output(Struct):
    """An output that is asked for."""

    name: str
    parameters: Form | None = None


class ModelQuery(Struct):
    """Tensors for a model."""

    inputs: Annotated[list[Tensor], Meta(extra_json_schema={"minItems": 1})]
    outputs: list[Output] | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


class ModelAnswer(Struct):
    """A model's answer."""

    outputs: list[Tensor]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


class ServerMetadata(Struct):
    """Metadata of a server."""

    name: str
    version: str
    extensions: list[str]


class Alive(Struct):
    """Whether a server is alive."""

    live: bool


class Ready(Struct):
    """Whether a server, or a model of it, takes queries."""

    ready: bool
    name: str | UnsetType = UNSET


class TensorKind(Struct):
    """Name, datatype and shape of a model's tensor; -1 where a dimension is free."""

    name: str
    datatype: Datatype
    shape: list[int]


class ModelMetadata(Struct):
    """Metadata of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorKind]
    outputs: list[TensorKind]


class Statistics(Struct):
    """Triton's statistics of models."""

    model_stats: list[dict[str, Any]]


class IndexWanted(Struct):
    """Which models an index is to have: those that are ready, or all."""

    ready: bool = False


class Needs(Struct, forbid_unknown_fields=True):
    """What a client needs of a stream."""

    task: str
    rate_qps: Annotated[float, Meta(gt=0.0, le=1e15)]
    size_bytes: Amount
    deadline_s: Amount
    min_accuracy: Amount | UnsetType = UNSET
    application: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    site: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET


class RenewedStream(Struct):
    """A stream, and for how long it stays without being used."""

    stream: int
    lease_s: Amount


class OpenedStream(RenewedStream):
    """A stream that was opened, and who serves it."""

    worker: str
    variant: str
    cluster: str


class ClosedStream(Struct):
    """A stream that was closed."""

    stream: int
    closed: bool


class PolicyNamed(Struct):
    """A policy that is to decide, or to watch."""

    policy: str


class Policy(Struct):
    """Who decides, and who could."""

    policy: str
    available: list[str]
    budget_s: float
    faults: dict[str, int]


class VariantPolicy(Struct):
    """Who splits the queries of a variant."""

    variant: str
    policy: str


class SwitchStep(Struct):
    """How far a gateway is with a switch."""

    gateway: str
    state: Literal["waiting", "compiling", "switching", "done", "failed"]
    since_s: UnixTime
    error: str | None


class Switch(Struct):
    """How far the switch of a policy is."""

    id: int
    what: Literal["policies", "shadows"]
    decision: str
    policy: str
    state: Literal["waiting", "compiling", "switching", "done", "failed"]
    since_s: UnixTime
    accepted_s: UnixTime
    error: str | None
    gateways: list[SwitchStep]


class WorkerPlace(Struct):
    """Where a worker is, its model's name there, and the token that it wants to see."""

    url: str
    model: str
    token: str | UnsetType = UNSET


class WorkerSeen(Struct):
    """A worker as its gateway has it."""

    worker: str
    variant: str
    url: str
    model: str
    up: bool
    refuses_token: bool
    streams: int
    load_qps: float
    capacity_qps: float
    held: float | UnsetType = UNSET
    requests_qps: float | UnsetType = UNSET


class Draining(Struct):
    """Whether no more streams and queries are taken."""

    draining: bool


class Error(Struct):
    """Why a request is refused."""

    error: str
    stream: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    retry_after_s: float | UnsetType = UNSET
    others_qps: float | UnsetType = UNSET
    final: bool | UnsetType = UNSET


SAID = (
    Error,
    ModelQuery,
    ModelAnswer,
    ServerMetadata,
    Alive,
    Ready,
    ModelMetadata,
    Statistics,
    IndexWanted,
    Needs,
    OpenedStream,
    RenewedStream,
    ClosedStream,
    PolicyNamed,
    Policy,
    VariantPolicy,
    Switch,
    WorkerPlace,
    WorkerSeen,
    Draining,
)
"""All that a document may name, beside what these are made of."""


def read(body: bytes, of: type[T]) -> T:
    """What a body says; texts may hold halves of characters, which JSON can write.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("body: JSON is needed") from None
    try:
        return msgspec.convert(found, of)
    except msgspec.ValidationError as error:
        raise ProtocolError(_said(error, found, of)) from None


def decode(decoder: msgspec.json.Decoder[T], body: bytes | memoryview) -> T:
    """The same at full speed, of queries and their answers; texts are whole.

    Raises:
        ProtocolError: names the field that is wrong.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise _wrong(error) from None
    except (ValueError, RecursionError):
        raise ProtocolError("body: the JSON part cannot be read") from None


def _wrong(error: Exception) -> ProtocolError:
    what, _, where = str(error).partition(" - at `$.")
    return ProtocolError(f"{where.rstrip('`') or 'body'}: {what}")


def _said(error: msgspec.ValidationError, found: Any, of: type[Any]) -> str:
    """What is wrong with a body that was read: the field, what it holds, and what is needed there."""
    what, _, where = str(error).partition(" - at `$")
    where = where.strip("`.")
    if not where and not isinstance(found, dict):
        return f"body: {str(found)[:80]!r}; an object with {', '.join(of.__struct_fields__)} is needed"
    if lacking := re.search(r"missing required field `(\w+)`", what):
        return f"{where}.{lacking[1]}: is missing".lstrip(".")
    if strange := re.search(r"unknown field `(.*)`", what):
        from edgewise.model.problems import nearest  # slow to import, and the command line reads answers

        return f"{where}.{strange[1]}: is not known; {nearest(strange[1], of.__struct_fields__)}".lstrip(".")
    needed = re.match(r"Expected `(\w+)(?: \| \w+)*`(.*?)(?:, got `\w+`)?$", what)
    if not where or needed is None:
        return f"{where or 'body'}: {what}"
    for key in re.findall(r"[^.\[\]]+", where):
        found = found[int(key) if isinstance(found, list) else key]
    return f"{where}: {json.dumps(found)[:80]}; {NAMES.get(needed[1], needed[1])}{needed[2]} is needed"
