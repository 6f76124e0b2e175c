"""What a bed consists of, and Envoy's configuration for it.

The filter chain is the one of the Gateway API Inference Extension: the external processing filter asks
the picker, the cluster goes where the picker said (override host, fall-backs in order), and what served
the request is told to the picker on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

DESTINATION = "x-gateway-destination-endpoint"
TYPE = "type.googleapis.com/envoy.extensions."
LB = "envoy.lb"


class Body(StrEnum):
    """How bodies travel to the picker."""

    NONE = "NONE"
    BUFFERED = "BUFFERED"
    STREAMED = "STREAMED"
    FULL_DUPLEX = "FULL_DUPLEX_STREAMED"


@dataclass(frozen=True)
class Settings:
    """What is tried.

    Attributes:
        backends: how many fake inference servers are started; or `servers`, those that run already.
        servers: addresses `ip:port` to use in place of fake ones.
        picker: "plain" for ours of fifty lines, an address, or None: Envoy alone balances.
        body: how bodies travel to the picker.
        balance: of Envoy alone, and where the picker has not said: ROUND_ROBIN or LEAST_REQUEST.
        fail_open: requests go on without a picker that fails; otherwise they get an error.
        picker_timeout_s: most that one answer of the picker may take.
        retries: how many further endpoints are tried after one that fails.
        upstream_http2: Envoy speaks HTTP/2 to the servers. Clients may speak either version.
        metrics_lag_s: age that the metrics of fake servers reach before they are made anew.
    """

    backends: int = 3
    servers: tuple[str, ...] = ()
    picker: str | None = "plain"
    body: Body = Body.NONE
    balance: str = "ROUND_ROBIN"
    fail_open: bool = False
    picker_timeout_s: float = 1.0
    retries: int = 1
    upstream_http2: bool = False
    metrics_lag_s: float = 0.0


def address(of: str) -> dict[str, Any]:
    """An address as Envoy writes it."""
    host, _, port = of.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def typed(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    """An extension with its typed configuration."""
    return {"name": name, "typed_config": {"@type": TYPE + kind, **fields}}


def envoy_config(
    settings: Settings, servers: Sequence[str], picker: str | None, port: int, admin: int
) -> Any:
    """Envoy's static configuration.

    Args:
        servers: addresses of the inference servers.
        picker: address of the endpoint picker; None leaves its filter out.
        port, admin: where Envoy listens, for clients and for questions.
    """
    clusters = [_servers(settings, servers, picker is not None)]
    if picker is not None:
        clusters.append(_cluster("picker", [picker], http2=True))
    return {
        "admin": {"address": address(f"127.0.0.1:{admin}")},
        "static_resources": {
            "listeners": [_listener(settings, picker is not None, port)],
            "clusters": clusters,
        },
    }


def _listener(settings: Settings, picked: bool, port: int) -> dict[str, Any]:
    filters = [_picker(settings), _served()] if picked else []
    route = {
        "cluster": "servers",
        "timeout": "60s",
        "retry_policy": {
            "retry_on": "connect-failure,reset,refused-stream,gateway-error",
            "num_retries": settings.retries,
        },
    }
    manager = typed(
        "envoy.filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="bed",
        codec_type="AUTO",  # HTTP/1, and HTTP/2 by prior knowledge
        route_config={
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": route}],
                    "response_headers_to_add": [
                        {"header": {"key": "x-served", "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
                    ],
                }
            ]
        },
        http_filters=[*filters, typed("envoy.filters.http.router", "filters.http.router.v3.Router")],
    )
    return {"address": address(f"127.0.0.1:{port}"), "filter_chains": [{"filters": [manager]}]}


def _picker(settings: Settings) -> dict[str, Any]:
    streamed = "SEND" if settings.body is Body.FULL_DUPLEX else "SKIP"  # full duplex ends bodies by trailers
    return typed(
        "envoy.filters.http.ext_proc",
        "filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "picker"}},
        failure_mode_allow=settings.fail_open,
        message_timeout=f"{settings.picker_timeout_s}s",
        processing_mode={
            "request_header_mode": "SEND",
            "response_header_mode": "SEND",
            "request_body_mode": settings.body.value,
            "response_body_mode": settings.body.value,
            "request_trailer_mode": streamed,
            "response_trailer_mode": streamed,
        },
        metadata_options={
            "forwarding_namespaces": {"untyped": [LB, "envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": [LB]},
        },
    )


def _served() -> dict[str, Any]:
    """Which server answered, as metadata; on the way back it runs before the picker's filter."""
    rule = {
        "header": "x-served",
        "on_header_present": {"metadata_namespace": LB, "key": f"{DESTINATION}-served", "type": "STRING"},
    }
    return typed(
        "envoy.filters.http.header_to_metadata",
        "filters.http.header_to_metadata.v3.Config",
        response_rules=[rule],
    )


def _servers(settings: Settings, servers: Sequence[str], picked: bool) -> dict[str, Any]:
    made = _cluster("servers", servers, settings.upstream_http2)
    if not picked:
        return made | {"lb_policy": settings.balance}
    kind = {"ROUND_ROBIN": "round_robin.v3.RoundRobin", "LEAST_REQUEST": "least_request.v3.LeastRequest"}
    name = settings.balance.lower()
    otherwise = typed(
        f"envoy.load_balancing_policies.{name}", f"load_balancing_policies.{kind[settings.balance]}"
    )
    override = typed(
        "envoy.load_balancing_policies.override_host",
        "load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[
            {"header": DESTINATION},
            {"metadata": {"key": LB, "path": [{"key": DESTINATION}]}},
        ],
        fallback_policy={"policies": [{"typed_extension_config": otherwise}]},
    )
    return made | {"load_balancing_policy": {"policies": [{"typed_extension_config": override}]}}


def _cluster(name: str, of: Sequence[str], http2: bool) -> dict[str, Any]:
    version = {"http2_protocol_options": {}} if http2 else {"http_protocol_options": {}}
    options = {
        "@type": TYPE + "upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": version,
    }
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(each)}} for each in of]}],
        },
        # More than any test sends: the default of 1,024 would shed what is to be measured.
        "circuit_breakers": {
            "thresholds": [{"max_connections": 16384, "max_pending_requests": 16384, "max_requests": 16384}]
        },
    }
