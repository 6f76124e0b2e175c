"""The OpenAPI 3.1 documents of worker and gateway: served at /openapi.json, printed by `main`."""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib.metadata import version
from typing import Any

from edgewise.runtime.protocol.tensors import DTYPES

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number", "minimum": 0, "maximum": 1e15}
FLAG: Schema = {"type": "boolean"}
REFUSED = {"error": TEXT, "stream": {"type": "integer"}, "reason": TEXT}
PHRASES = {
    200: "Done.", 201: "Opened.", 202: "Accepted; `location` says where to ask how far it is.",
    400: "A field is wrong; the error names it.",
    401: "No valid bearer token was shown.", 403: "Host or Origin is foreign, or administration is closed.",
    404: "No such path, model, task or stream.",
    405: "The method does not fit.", 409: "The stream is refused; the reason is the constraint that failed.",
    413: "Too large.", 415: "The content encoding is not supported.",
    429: "Full; try later.", 502: "The worker was lost.", 503: "Draining, or no worker is up.",
    504: "The deadline passed.",
}  # fmt: skip


def _object(properties: dict[str, Schema], *required: str, more: bool = True) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": more,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_WHEN: Schema = {"type": "number", "description": "Unix time, seconds"}
_STATE: Schema = {"type": "string", "enum": ["waiting", "compiling", "switching", "done", "failed"]}
_WHY: Schema = {"type": ["string", "null"]}
_AT_GATEWAY = _object({"gateway": TEXT, "state": TEXT, "since_s": _WHEN, "error": _WHY}, "gateway", "state")
OPERATION = _object(
    {
        "id": {"type": "integer"}, "what": TEXT, "policy": TEXT, "state": _STATE, "since_s": _WHEN,
        "accepted_s": _WHEN, "error": _WHY, "gateways": _list(_AT_GATEWAY),
    },
    "id", "what", "policy", "state", "since_s", "accepted_s", "error", "gateways",
)  # fmt: skip


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _path(name: str, what: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": TEXT, "description": what}


def _header(name: str, what: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": what}


def _operation(
    summary: str,
    good: dict[int, Schema],
    bad: tuple[int, ...],
    parameters: tuple[Schema, ...] = (),
    body: Schema | None = None,
) -> Schema:
    answers = {
        str(status): {"description": PHRASES[status], "content": {"application/json": {"schema": schema}}}
        for status, schema in {**good, **dict.fromkeys((*bad, 401, 403), _ref("Error"))}.items()
    }
    operation: Schema = {"summary": summary, "parameters": list(parameters), "responses": answers}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _binary(operation: Schema) -> Schema:
    """The same, also with raw tensors after the JSON."""
    raw = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    operation["requestBody"]["content"].update(raw)
    operation["responses"]["200"]["content"].update(raw)
    return operation


def _schemas() -> dict[str, Schema]:
    datatype = {"type": "string", "enum": list(DTYPES)}
    shape = _list({"type": "integer", "minimum": 0, "maximum": 1024})
    tensor = {"name": TEXT, "shape": shape, "datatype": datatype, "data": {"type": "array"},
              "parameters": {"type": "object"}}  # fmt: skip
    asked = _object({"name": TEXT, "parameters": {"type": "object"}}, "name")
    described = _object({"name": TEXT, "datatype": datatype, "shape": _list({"type": "integer"})})
    return {
        "Error": _object(REFUSED, "error"),
        "Tensor": _object(tensor, "name", "shape", "datatype"),
        "Query": _object(
            {"id": TEXT, "parameters": {"type": "object"}, "inputs": {**_list(_ref("Tensor")), "minItems": 1},
             "outputs": _list(asked)},
            "inputs",
        ),
        "Answer": _object(
            {"model_name": TEXT, "model_version": TEXT, "id": TEXT, "parameters": {"type": "object"},
             "outputs": _list(_ref("Tensor"))},
            "model_name", "outputs",
        ),
        "Server": _object({"name": TEXT, "version": TEXT, "extensions": _list(TEXT)}, "name", "extensions"),
        "Model": _object(
            {"name": TEXT, "versions": _list(TEXT), "platform": TEXT, "inputs": _list(described),
             "outputs": _list(described)},
            "name",
        ),
        "Ready": _object({"name": TEXT, "ready": FLAG}, "ready"),
    }  # fmt: skip


def _server_paths() -> dict[str, Schema]:
    return {
        "/v2": {"get": _operation("Server metadata", {200: _ref("Server")}, ())},
        "/v2/health/live": {
            "get": _operation("Is the server alive?", {200: _object({"live": FLAG}, "live")}, ())
        },
        "/v2/health/ready": {
            "get": _operation("Does the server take queries?", {200: _ref("Ready"), 503: _ref("Ready")}, ())
        },
        "/metrics": {
            "get": {
                "summary": "Prometheus metrics",
                "responses": {
                    "200": {"description": "Text format.", "content": {"text/plain": {"schema": TEXT}}}
                },
            }
        },
    }


_STATS = _object({"model_stats": _list({"type": "object"})}, "model_stats")


def _model_paths(base: str, name: Schema, headers: tuple[Schema, ...], bad: tuple[int, ...]) -> Schema:
    infer = _operation(
        "Run a query", {200: _ref("Answer")}, (400, 404, 413, 415, 429, 503, 504, *bad), (name, *headers),
        _ref("Query"),
    )  # fmt: skip
    tree: Schema = {"type": "object"}
    asked = _object({"ready": FLAG})
    config = _operation("Triton's model configuration", {200: tree}, (404, 503), (name,))
    return {
        base: {"get": _operation("Model metadata", {200: _ref("Model")}, (404, 503), (name,))},
        f"{base}/ready": {
            "get": _operation(
                "Does it take queries?", {200: _ref("Ready"), 503: _ref("Ready")}, (404,), (name,)
            )
        },
        f"{base}/infer": {"post": _binary(infer)},
        f"{base}/config": {"get": config},
        f"{base}/stats": {"get": _operation("Triton's statistics", {200: _STATS}, (404,), (name,))},
        "/v2/models/stats": {"get": _operation("Statistics of all models", {200: _STATS}, ())},
        "/v2/repository/index": {
            "post": _operation("Triton's index of models", {200: _list(tree)}, (400, 413), (), asked)
        },
    }


def _document(title: str, paths: Schema, token: str, needed: bool = False) -> Schema:
    """A document. /v1/admin needs the operator's token, all else `token`: always, or where one was set."""
    schemes = {token: {"type": "http", "scheme": "bearer"}}
    for path, operations in paths.items():
        for operation in operations.values():
            if path.startswith("/v1/admin"):
                operation["security"] = [{"operator": []}]
                schemes["operator"] = schemes[token]
            elif path.startswith("/v2/health"):
                operation["security"] = []
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("edgewise")},
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": schemes,
        },
        "security": [{token: []}] if needed else [{}, {token: []}],
    }


@cache
def worker_document() -> Schema:
    """The worker's document."""
    remaining = _header(
        "edgewise-remaining-s", "time left; a query that expires is not run", {"type": "number"}
    )
    priority = _header("edgewise-priority", "larger goes first", {"type": "integer"})
    model = _path("model", "name of the model")
    paths = _model_paths("/v2/models/{model}", model, (remaining, priority), ())
    return _document("edgewise worker", {**_server_paths(), **paths}, "parts")


@cache
def gateway_document() -> Schema:
    """The gateway's document."""
    headers = (
        _header("edgewise-stream", "the query's stream", {"type": "integer", "minimum": 0}),
        _header("edgewise-rate-qps", "needs, where no stream is named", NUMBER),
        _header("edgewise-deadline-s", "tolerated delay of a query, seconds", NUMBER),
        _header("edgewise-size-bytes", "payload of a query; this one's by default", NUMBER),
        _header("edgewise-min-accuracy", "least accuracy of the model", NUMBER),
        _header("edgewise-application", "who asks", TEXT),
        _header("edgewise-site", "access site; the first by default", TEXT),
        _header("edgewise-priority", "larger is more important", {"type": "integer"}),
        _header("edgewise-remaining-s", "time left for this query, seconds", {"type": "number"}),
    )
    task = _path("task", "task that is needed, the variant is chosen by the gateway; or a service")
    paths = _model_paths("/v2/models/{task}", task, headers, (409, 502))
    paths = {**_server_paths(), **paths, **_stream_paths(), **_admin_paths()}
    return _document("edgewise gateway", paths, "client")


def _stream_paths() -> Schema:
    stated = {
        "task": TEXT, "application": TEXT, "site": TEXT, "priority": {"type": "integer"}, "rate_qps": NUMBER,
        "size_bytes": NUMBER, "deadline_s": NUMBER, "min_accuracy": NUMBER,
    }  # fmt: skip
    stated["rate_qps"] = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e15}
    needs = _object(stated, "task", "rate_qps", "size_bytes", "deadline_s", more=False)
    lease = {"stream": {"type": "integer"}, "lease_s": NUMBER}
    opened = _object({**lease, "worker": TEXT, "variant": TEXT, "cluster": TEXT}, "stream", "lease_s")
    closed = _object({"stream": {"type": "integer"}, "closed": FLAG}, "closed")
    stream = _path("stream", "number of the stream")
    record: Schema = {"type": "object"}
    return {
        "/v1/streams": {
            "post": _operation("Open a stream", {201: opened}, (400, 409, 413, 429, 503), (), needs),
            "get": _operation("Records of all streams", {200: _list(record)}, ()),
        },
        "/v1/streams/{stream}": {
            "get": _operation("Record of a stream", {200: record}, (404,), (stream,)),
            "put": _operation(
                "Renew its lease", {200: _object(lease, "stream", "lease_s")}, (404,), (stream,)
            ),
            "delete": _operation("Close a stream", {200: closed}, (404,), (stream,)),
        },
    }


def _admin_paths() -> Schema:
    policy = _object({"policy": TEXT, "available": _list(TEXT)}, "policy", "available")
    place = _object({"url": TEXT, "model": TEXT, "token": TEXT}, "url", "model")
    worker = _object(
        {"worker": TEXT, "url": TEXT, "model": TEXT, "up": FLAG, "refuses_token": FLAG}, "worker", "url", "up"
    )
    name = _path("worker", "name of the worker")
    return {
        "/v1/admin/policy": {
            "get": _operation("Policy in use", {200: policy}, ()),
            "put": _switch("Switch the policy"),
        },
        "/v1/admin/shadow": {
            "get": _operation("What a second policy would have done", {200: {"type": "object"}}, ()),
            "put": _switch("Let a second policy watch; an empty name ends it"),
        },
        **_operation_paths("/v1/admin/operations"),
        "/v1/admin/workers": {"get": _operation("Workers", {200: _list(worker)}, ())},
        "/v1/admin/workers/{worker}": {
            "put": _operation("Say where a worker is", {200: worker}, (400, 404, 413), (name,), place)
        },
        "/v1/admin/replicas": {
            "get": _operation("Totals of services, and their replicas", {200: {"type": "object"}}, (404,))
        },
        "/v1/admin/request-policy": _policy_paths("requests of services", policy),
        "/v1/admin/drain": {
            "post": _operation(
                "Take no more streams and queries", {200: _object({"draining": FLAG}, "draining")}, ()
            )
        },
    }


def _switch(summary: str, *bad: int) -> Schema:
    """Begin to switch a policy."""
    return _operation(
        summary, {202: OPERATION}, (400, *bad, 413, 429), (), _object({"policy": TEXT}, "policy")
    )


def _operation_paths(base: str) -> Schema:
    """Ask how far the switches of policies are."""
    number = _path("operation", "number of the operation")
    return {
        base: {"get": _operation("The last switches of policies", {200: _list(OPERATION)}, ())},
        f"{base}/{{operation}}": {
            "get": _operation("How far a switch is", {200: OPERATION}, (404,), (number,))
        },
    }


def _policy_paths(what: str, shown: Schema) -> Schema:
    """Ask for a policy of services, or switch it; 404 where the scenario has none."""
    return {
        "get": _operation(f"Policy of {what}", {200: shown}, (404,)),
        "put": _switch(f"Switch the policy of {what}", 404),
    }


@cache
def controller_document() -> Schema:
    """The controller's document."""
    record: Schema = {"type": "object"}
    policy = _object({"policy": TEXT, "available": _list(TEXT)}, "policy", "available")
    asked = _object({"policy": TEXT}, "policy")
    wanted = _object({"worker": TEXT, "wanted": FLAG}, "worker", "wanted")
    paths = {
        "/v2/health/live": _server_paths()["/v2/health/live"],
        "/v1/status": {"get": _operation("Policy, processes and streams at a glance", {200: record}, ())},
        "/v1/workers": {"get": _operation("Worker processes", {200: _list(record)}, ())},
        "/v1/gateways": {"get": _operation("Gateway processes", {200: _list(record)}, ())},
        "/v1/workers/{worker}": {
            "put": _operation(
                "Drain and end a worker, or start it", {200: wanted}, (400, 404, 413),
                (_path("worker", "name of the worker"),), _object({"wanted": FLAG}, "wanted"),
            )
        },
        "/v1/streams": {"get": _operation("Every stream, with its gateway", {200: _list(record)}, ())},
        "/v1/policy": {
            "get": _operation("Policy of all gateways", {200: policy}, ()),
            "put": _switch("Switch the policy"),
        },
        "/v1/shadow": {
            "get": _operation("What a second policy would have done", {200: _list(record)}, ()),
            "put": _switch("Let a second policy watch; an empty name ends it"),
        },
        "/v1/request-policy": _policy_paths("requests of services", policy),
        "/v1/replica-policy": _policy_paths("replicas of services", policy),
        **_operation_paths("/v1/operations"),
        "/v1/down": {
            "post": _operation("End everything", {200: _object({"ending": FLAG}, "ending")}, ())
        },
    }  # fmt: skip
    return _document("edgewise controller", paths | _job_paths(policy, asked), "operator", needed=True)


def _job_paths(policy: Schema, asked: Schema) -> Schema:
    """Deferrable jobs."""
    number: Schema = {"type": "number"}
    wish = _object(
        {
            "key": TEXT, "command": _list(TEXT), "folder": {**TEXT, "pattern": "^/"},
            "cores": number, "memory_bytes": number,
            "duration_s": number, "earliest_s": number, "latest_s": number, "priority": number,
            "when_evicted": {"type": "string", "enum": ["pause", "restart"]},
        },
        "key", "command", "folder", "duration_s",
    )  # fmt: skip
    job = _object({"id": {"type": "integer"}, "state": TEXT}, "id", "state")
    output = _object({"id": {"type": "integer"}, "state": TEXT, "output": TEXT}, "id", "state", "output")
    which = (_path("job", "number of the job"),)
    return {
        "/v1/admin/jobs": {
            "get": _operation("Deferrable jobs, oldest first", {200: _list(job)}, ()),
            "post": _operation(
                "Keep a job; the same key is the same job", {200: job}, (400, 409, 413), (), wish
            ),
        },
        "/v1/admin/jobs/{job}": {
            "get": _operation("One job", {200: job}, (404,), which),
            "delete": _operation("End a job, or never start it", {200: job}, (404, 405), which),
        },
        "/v1/admin/jobs/{job}/output": {
            "get": _operation("The last of what it wrote", {200: output}, (404,), which)
        },
        "/v1/admin/job-policy": {
            "get": _operation("Which policy decides when jobs start", {200: policy}, ()),
            "put": _operation("Switch it", {200: policy}, (400, 413), (), asked),
        },
    }


def main(arguments: list[str]) -> None:
    """Print one of the documents: `python -m edgewise.runtime.protocol.openapi gateway|worker|controller`."""
    documents = {"gateway": gateway_document, "worker": worker_document, "controller": controller_document}
    print(json.dumps(documents[arguments[0] if arguments else "gateway"](), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
