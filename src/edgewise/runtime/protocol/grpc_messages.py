"""The protocol's gRPC messages, built from a table: field numbers are the wire format's.

A line reads "number name type"; "*" marks a repeated field, "type map" a map from strings, and
fields of one group "a | b" exclude each other; an enumeration is its number.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

PACKAGE = "inference"
SERVICE = "inference.GRPCInferenceService"
_TABLE = """
ServerLiveRequest
ServerLiveResponse: 1 live bool
ServerReadyRequest
ServerReadyResponse: 1 ready bool
ModelReadyRequest: 1 name string, 2 version string
ModelReadyResponse: 1 ready bool
ServerMetadataRequest
ServerMetadataResponse: 1 name string, 2 version string, 3 extensions string*
ModelMetadataRequest: 1 name string, 2 version string
ModelMetadataResponse.TensorMetadata: 1 name string, 2 datatype string, 3 shape int64*
ModelMetadataResponse: 1 name string, 2 versions string*, 3 platform string, \
    4 inputs ModelMetadataResponse.TensorMetadata*, 5 outputs ModelMetadataResponse.TensorMetadata*
InferParameter: 1 bool_param bool|, 2 int64_param int64|, 3 string_param string|, 4 double_param double|, \
    5 uint64_param uint64|
InferTensorContents: 1 bool_contents bool*, 2 int_contents int32*, 3 int64_contents int64*, \
    4 uint_contents uint32*, 5 uint64_contents uint64*, 6 fp32_contents float*, 7 fp64_contents double*, \
    8 bytes_contents bytes*
ModelInferRequest.InferInputTensor: 1 name string, 2 datatype string, 3 shape int64*, \
    4 parameters InferParameter map, 5 contents InferTensorContents
ModelInferRequest.InferRequestedOutputTensor: 1 name string, 2 parameters InferParameter map
ModelInferRequest: 1 model_name string, 2 model_version string, 3 id string, \
    4 parameters InferParameter map, 5 inputs ModelInferRequest.InferInputTensor*, \
    6 outputs ModelInferRequest.InferRequestedOutputTensor*, 7 raw_input_contents bytes*
ModelInferResponse.InferOutputTensor: 1 name string, 2 datatype string, 3 shape int64*, \
    4 parameters InferParameter map, 5 contents InferTensorContents
ModelInferResponse: 1 model_name string, 2 model_version string, 3 id string, \
    4 parameters InferParameter map, 5 outputs ModelInferResponse.InferOutputTensor*, \
    6 raw_output_contents bytes*
ModelStreamInferResponse: 1 error_message string, 2 infer_response ModelInferResponse
ModelInput: 1 name string, 2 data_type enum, 4 dims int64*
ModelOutput: 1 name string, 2 data_type enum, 3 dims int64*
ModelDynamicBatching: 2 max_queue_delay_microseconds uint64
ModelConfig: 1 name string, 2 platform string, 17 backend string, 4 max_batch_size int32, \
    5 input ModelInput*, 6 output ModelOutput*, 11 dynamic_batching ModelDynamicBatching
ModelConfigRequest: 1 name string, 2 version string
ModelConfigResponse: 1 config ModelConfig
StatisticDuration: 1 count uint64, 2 ns uint64
InferStatistics: 1 success StatisticDuration, 2 fail StatisticDuration, 3 queue StatisticDuration, \
    4 compute_input StatisticDuration, 5 compute_infer StatisticDuration, \
    6 compute_output StatisticDuration, 7 cache_hit StatisticDuration, 8 cache_miss StatisticDuration
InferBatchStatistics: 1 batch_size uint64, 2 compute_input StatisticDuration, \
    3 compute_infer StatisticDuration, 4 compute_output StatisticDuration
ModelStatistics: 1 name string, 2 version string, 3 last_inference uint64, 4 inference_count uint64, \
    5 execution_count uint64, 6 inference_stats InferStatistics, 7 batch_stats InferBatchStatistics*
ModelStatisticsRequest: 1 name string, 2 version string
ModelStatisticsResponse: 1 model_stats ModelStatistics*
RepositoryIndexRequest: 1 repository_name string, 2 ready bool
RepositoryIndexResponse.ModelIndex: 1 name string, 2 version string, 3 state string, 4 reason string
RepositoryIndexResponse: 1 models RepositoryIndexResponse.ModelIndex*
"""
_Field = descriptor_pb2.FieldDescriptorProto
METHODS = (
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig",
    "ModelStatistics", "RepositoryIndex",
)  # fmt: skip


def _build() -> dict[str, Any]:
    """Message name → class, in a pool of their own: other libraries register the same names."""
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    described: dict[str, Any] = {}
    for line in _TABLE.strip().splitlines():
        name, _, fields = line.partition(":")
        outer, _, inner = name.rpartition(".")
        if outer and outer not in described:
            described[outer] = file.message_type.add(name=outer)
        if name not in described:
            described[name] = (described[outer].nested_type if outer else file.message_type).add(name=inner)
        for field in filter(None, (part.strip() for part in fields.split(","))):
            _add_field(described[name], name, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in described
    }


def _add_field(message: Any, owner: str, number: str, name: str, kind: str, is_map: str = "") -> None:
    repeated = kind.endswith("*") or bool(is_map)
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    field = message.field.add(name=name, number=int(number), label=label)
    if kind.endswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    kind = kind.rstrip("*|").replace("enum", "int32")  # the same on the wire
    if is_map:
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, f"{owner}.{entry_name}", "1", "key", "string")
        _add_field(entry, f"{owner}.{entry_name}", "2", "value", kind)
        kind = f"{owner}.{entry_name}"
    if kind[0].isupper():
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")


MESSAGES = _build()
