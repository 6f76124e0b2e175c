"""gRPC of the protocol in front of any of our HTTP handlers: one translation, no second server.

A call becomes the REST request that means the same, with its metadata as headers, and the answer
becomes a message. So worker and gateway speak gRPC alike, with the same checks and limits. Service and
messages are those of `open_inference.proto`, as `protoc` has compiled them.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import grpc  # type: ignore[import-untyped]
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

from edgewise.errors import ProtocolError, ScenarioError
from edgewise.runtime import clock, http
from edgewise.runtime.http.messages import address_of
from edgewise.runtime.protocol.messages import (
    DTYPES,
    REMAINING,
    InferResponse,
    decode_response,
    join,
)
from edgewise.runtime.protocol.tensors import datatype_of, from_json, to_binary

CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents",
    "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
COMPILED = Path(__file__).with_name("open_inference.binpb")  # of the .proto beside it: `make protocol`
CLIENT: ContextVar[str] = ContextVar("client", default="")  # of the call that this task answers
TRAILING = ("retry-after",)  # headers of a refusal that are passed on as trailing metadata
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND, 409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 415: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED, 502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE, 504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


async def serve_grpc(
    handler: http.Handler,
    host: str = http.LOCALHOST,
    port: int = 0,
    max_body_bytes: int = http.MAX_BODY_BYTES,
    tls: tuple[Path, Path] | None = None,
    bodies: http.Bodies | None = None,
    shared: bool = False,
) -> "GrpcServer":
    """Listen; port 0 takes a free one.

    Args:
        handler: the worker's or gateway's handler, guarded as it is for HTTP.
        host, port: where.
        max_body_bytes: largest message.
        tls: PEM files of certificate and key.
        bodies: messages under way count as bodies do, beside those of HTTP; None: by themselves.
        shared: see `http.serve`.
    Raises:
        ScenarioError: the address or a TLS file cannot be used.
    """
    most = max_body_bytes + 2**16
    sizes = [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", most)]
    server = grpc.aio.server(options=[*sizes, ("grpc.so_reuseport", int(shared))])
    server.add_generic_rpc_handlers((_Calls(handler, bodies or http.Bodies(http.BODIES_BYTES)).rpcs(),))
    try:
        if tls is None:
            bound = server.add_insecure_port(f"{host}:{port}")
        else:
            pair = (tls[1].read_bytes(), tls[0].read_bytes())
            bound = server.add_secure_port(f"{host}:{port}", grpc.ssl_server_credentials([pair]))
    except (OSError, RuntimeError) as error:
        raise ScenarioError(f"gRPC on {host}:{port}: {error}") from error
    await server.start()
    return GrpcServer(server, host, bound)


class GrpcServer:
    """A running gRPC server.

    Attributes:
        host, port: where it listens.
    """

    def __init__(self, server: Any, host: str, port: int) -> None:
        self._server, self.host, self.port = server, host, port

    async def close(self, grace_s: float = 5.0) -> None:
        """Stop listening; calls under way have `grace_s` to end."""
        await self._server.stop(grace_s)


class _Refused(Exception):
    """The handler's answer was an error."""

    def __init__(self, answer: http.Response, message: str) -> None:
        super().__init__(message)
        self.status, self.headers = answer.status, answer.headers
        self.after_s = answer.after_s


class _Calls:
    """The service's methods, in terms of a handler."""

    def __init__(self, handler: http.Handler, bodies: http.Bodies) -> None:
        self._handler, self._bodies = handler, bodies

    def rpcs(self) -> Any:
        """Method handlers for grpc."""
        table = {name: self._unary(name) for name in METHODS}
        table["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
            self._stream,
            request_deserializer=MESSAGES["ModelInferRequest"].FromString,
            response_serializer=MESSAGES["ModelStreamInferResponse"].SerializeToString,
        )
        return grpc.method_handlers_generic_handler(SERVICE, table)

    def _unary(self, name: str) -> Any:
        async def answer(message: Any, context: Any) -> Any:
            try:
                return await self._answer(name, message, _headers(context))
            except (_Refused, ProtocolError) as error:
                await clock.sleep(getattr(error, "after_s", 0.0))
                code = CODES.get(error.status, grpc.StatusCode.INTERNAL)
                said = getattr(error, "headers", {})
                trailing = tuple((name, said[name]) for name in TRAILING if name in said)
                await context.abort(code, str(error), trailing)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=MESSAGES[f"{name}Request"].FromString,
            response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
        )

    async def _stream(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        headers = _headers(context)
        async for message in messages:
            try:
                answer = await self._infer(message, headers)
                yield MESSAGES["ModelStreamInferResponse"](infer_response=answer)
            except (_Refused, ProtocolError) as error:
                await clock.sleep(getattr(error, "after_s", 0.0))
                yield MESSAGES["ModelStreamInferResponse"](error_message=str(error))

    async def _answer(self, name: str, message: Any, headers: dict[str, str]) -> Any:
        """The reply to a call; what JSON has beyond the reply's fields is passed over."""
        reply = MESSAGES[f"{name}Response"]
        match name:
            case "ServerLive":
                return reply(live=await self._ok("/v2/health/live", headers))
            case "ServerReady":
                return reply(ready=await self._ok("/v2/health/ready", headers))
            case "ModelReady":
                return reply(ready=await self._ok(f"{_path(message.name, message.version)}/ready", headers))
            case "ModelInfer":
                return await self._infer(message, headers)
            case "ServerMetadata":
                found = await self._json("/v2", headers)
            case "ModelMetadata":
                found = await self._json(_path(message.name, message.version), headers)
            case "ModelConfig":
                found = {
                    "config": await self._json(f"{_path(message.name, message.version)}/config", headers)
                }
            case "ModelStatistics":
                base = _path(message.name, message.version) if message.name else "/v2/models"
                found = await self._json(f"{base}/stats", headers)
            case "RepositoryIndex":
                body = json.dumps({"ready": message.ready}).encode()
                answer = await self._call("POST", "/v2/repository/index", headers, body)
                found = {"models": json.loads(answer.body)}
        return ParseDict(found, reply(), ignore_unknown_fields=True)

    async def _infer(self, message: Any, headers: dict[str, str]) -> Any:
        self._bodies.take(size := message.ByteSize())
        try:
            more, body = _to_body(message)
            path = f"{_path(message.model_name, message.model_version)}/infer"
            answer = await self._call("POST", path, {**headers, **more}, body)
        finally:
            self._bodies.give_back(size)
        return _to_message(decode_response(answer.headers, answer.body))

    async def _ok(self, path: str, headers: dict[str, str]) -> bool:
        try:
            await self._call("GET", path, headers)
        except _Refused as error:
            if error.status == 503:
                return False
            raise
        return True

    async def _json(self, path: str, headers: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self._call("GET", path, headers)).body)
        return found

    async def _call(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> http.Response:
        request = http.HttpRequest(method, path, headers, body, client=CLIENT.get())
        answer = await self._handler(request)
        if answer.status >= 300:
            try:
                message = json.loads(answer.body)["error"]
            except (ValueError, TypeError, KeyError):
                message = f"status {answer.status}"
            raise _Refused(answer, str(message))
        return answer


def _headers(context: Any) -> dict[str, str]:
    """Metadata as headers, and the call's own deadline as the query's remaining time; notes who asks."""
    peer = unquote(context.peer()).partition(":")[2]  # after "ipv4:" or "ipv6:"
    CLIENT.set(address_of(peer.rpartition(":")[0].strip("[]")))
    headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    left_s = context.time_remaining()
    if left_s is not None and REMAINING not in headers:
        headers[REMAINING] = f"{left_s:.6f}"
    return headers


def _path(model: str, version: str) -> str:
    base = f"/v2/models/{quote(model, safe='')}"
    return f"{base}/versions/{quote(version, safe='')}" if version else base


def _to_body(message: Any) -> tuple[dict[str, str], bytes]:
    """Headers and body of the REST request that means the same; whoever answers it checks the tensors."""
    raw, described, blobs = list(message.raw_input_contents), [], []
    if raw and len(raw) != len(message.inputs):
        raise ProtocolError(f"raw_input_contents: {len(raw)} of them for {len(message.inputs)} inputs")
    for i, tensor in enumerate(message.inputs):
        if raw and tensor.HasField("contents"):
            raise ProtocolError(f"inputs[{i}].contents: must be empty beside raw_input_contents")
        blob = raw[i] if raw else _from_contents(tensor, f"inputs[{i}]")
        described.append(
            {
                "name": tensor.name, "shape": list(tensor.shape), "datatype": tensor.datatype,
                "parameters": {"binary_data_size": len(blob)},
            }
        )  # fmt: skip
        blobs.append(blob)
    parameters = {key: _value(parameter) for key, parameter in message.parameters.items()}
    head = {
        "inputs": described, "outputs": [{"name": output.name} for output in message.outputs],
        "id": message.id, "parameters": {**parameters, "binary_data_output": True},
    }  # fmt: skip
    return join(head, blobs)


def _from_contents(tensor: Any, here: str) -> bytes:
    """The bytes of values that are written out; none where the datatype is unknown."""
    if tensor.datatype in DTYPES and tensor.datatype not in CONTENTS:
        raise ProtocolError(f"{here}: {tensor.datatype} needs raw_input_contents")
    values = list(getattr(tensor.contents, CONTENTS.get(tensor.datatype, "bytes_contents")))
    if tensor.datatype not in DTYPES or tensor.datatype == "BYTES":
        return b"".join(len(value).to_bytes(4, "little") + value for value in values)
    return to_binary(from_json(values, tensor.datatype, (len(values),), here), tensor.datatype)


def _to_message(response: InferResponse) -> Any:
    message = MESSAGES["ModelInferResponse"](
        model_name=response.model, model_version=response.version, id=response.id
    )
    for name, array in response.outputs.items():
        datatype = datatype_of(name, array)
        message.outputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_output_contents.append(to_binary(array, datatype))
    for key, value in response.parameters.items():
        if isinstance(value, bool | int | float | str):
            setattr(message.parameters[key], _choice(value), value)
    return message


def _value(parameter: Any) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, choice) if choice else None


def _choice(value: bool | int | float | str) -> str:
    if type(value) is int:
        return "int64_param" if -(2**63) <= value < 2**63 else "uint64_param"
    return {bool: "bool_param", float: "double_param", str: "string_param"}[type(value)]


def _load() -> tuple[Any, dict[str, Any]]:
    """The service and its messages by name, in a pool of their own: others register the same names."""
    pool, compiled = descriptor_pool.DescriptorPool(), descriptor_pb2.FileDescriptorSet()
    compiled.ParseFromString(COMPILED.read_bytes())
    (file,) = compiled.file
    pool.Add(file)
    service = pool.FindServiceByName(f"{file.package}.GRPCInferenceService")
    top = pool.FindFileByName(file.name).message_types_by_name.values()
    return service, {name: kind for each in top for name, kind in _classes(each, each.name)}


def _classes(descriptor: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Names and classes of a message and of those in it."""
    yield name, message_factory.GetMessageClass(descriptor)
    for each in descriptor.nested_types:
        if not each.GetOptions().map_entry:
            yield from _classes(each, f"{name}.{each.name}")


_SERVICE, MESSAGES = _load()
SERVICE = str(_SERVICE.full_name)
METHODS = tuple(each.name for each in _SERVICE.methods if not each.client_streaming)
