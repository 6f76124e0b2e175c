"""The health services that a picker shows."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from picker_conformance.suite import HEALTH, PROTOCOL, Bench, Failed, Level, case, require

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
EXPOSE = "The EPP MUST expose health check endpoints following the gRPC Health Checking Protocol. … "


async def check(bench: Bench, service: str) -> grpc.StatusCode | int:
    """The status of a service, or the code with which the question was refused."""
    stub = health_pb2_grpc.HealthStub(bench.health)
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=bench.patience_s)
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return int(answer.status)


async def serving(bench: Bench, service: str) -> None:
    """Fail unless the service is said to be serving."""
    status = await check(bench, service)
    if isinstance(status, grpc.StatusCode):
        raise Failed(f"the question about {service!r} was refused: {status.name}")
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    require(status == health_pb2.HealthCheckResponse.SERVING, f"{service!r} is {name}")


@case(
    "health.liveness",
    Level.MUST,
    PROTOCOL,
    EXPOSE
    + "Liveness Check (`liveness`): Determines if the EPP process is alive and responsive. Returns `SERVING` if the EPP process can respond to gRPC requests.",
)
async def liveness(bench: Bench) -> None:
    """The process answers."""
    await serving(bench, "liveness")


@case(
    "health.readiness",
    Level.MUST,
    PROTOCOL,
    EXPOSE
    + "Readiness Check (`readiness`): Determines if the EPP is ready to accept and process inference requests.",
)
async def readiness(bench: Bench) -> None:
    """It picks, so it must say that it is ready."""
    await serving(bench, "readiness")


@case(
    "health.service",
    Level.MUST,
    PROTOCOL,
    EXPOSE
    + f"External Processor Service Check (`{SERVICE}`): Verifies the main ext_proc service is healthy. Returns `SERVING` if the EPP is ready to process ext_proc requests",
)
async def service(bench: Bench) -> None:
    """The external processing service by its name."""
    await serving(bench, SERVICE)


@case(
    "health.unknown",
    Level.SHOULD,
    HEALTH,
    "If the service name is not registered, the server returns a `NOT_FOUND` GRPC status.",
)
async def unknown(bench: Bench) -> None:
    """A service that nobody has."""
    status = await check(bench, "no.such.Service")
    require(status is grpc.StatusCode.NOT_FOUND, f"{status}")
