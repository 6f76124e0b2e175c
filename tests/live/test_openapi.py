"""The OpenAPI documents against the running system: whatever is sent, no 500, and answers as documented.

Statuses, media types, headers and bodies are checked against the document; what breaks it must be refused.
"""

import copy
import json
import re
from pathlib import Path

import msgspec
import pytest

from edgewise.errors import ProtocolError
from edgewise.runtime.http.messages import HttpRequest
from edgewise.runtime.protocol import bodies, controller_bodies, shown_bodies
from edgewise.runtime.protocol.openapi import NAMES, document, unanswered

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")
jsonschema = pytest.importorskip("jsonschema_rs")
pytestmark = pytest.mark.live

SHOWN = Path(__file__).parents[2] / "docs" / "reference"
UNTOUCHED = ("drain", "admin/workers/")  # they would end what the other tests need
CHECKS = [
    getattr(pytest.importorskip("schemathesis.specs.openapi.checks"), name)
    for name in (
        "status_code_conformance", "content_type_conformance", "response_headers_conformance",
        "response_schema_conformance", "negative_data_rejection",
    )
]  # fmt: skip
FITTING = {"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0.5] * 8}  # what the network takes
MODES = list(schemathesis.GenerationMode)


def operations(document):
    """What a document offers to whoever may ask; the servers here are behind no guard."""
    document = copy.deepcopy(document)
    for part in (document, *(each for path in document["paths"].values() for each in path.values())):
        part.pop("security", None)
    found = schemathesis.openapi.from_dict(document).get_all_operations()
    every = (operation.ok() for operation in found)
    return [operation for operation in every if not any(part in operation.path for part in UNTOUCHED)]


def takes_input(operation):
    """Whether there is anything that could be wrong in a request."""
    return bool(operation.headers or operation.query or operation.body)


CASES = [
    pytest.param(server, operation, mode, id=f"{server}-{operation.label}-{mode.value}")
    for server, name in (("score", "gateway"), ("dense", "worker"), ("controller", "controller"))
    for operation in operations(document(name))
    for mode in MODES
    if mode == MODES[0] or takes_input(operation)
]


@pytest.mark.parametrize(("server", "operation", "mode"), CASES)
def test_every_answer_is_documented_and_none_is_500(running, server, operation, mode):
    url = f"http://127.0.0.1:{running.http[server]}"
    seen = set()

    @hypothesis.settings(
        max_examples=50 if takes_input(operation) else 5, deadline=None, derandomize=True, database=None,
        phases=[hypothesis.Phase.generate],  # shrinking takes minutes
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(operation.as_strategy(generation_mode=mode), hypothesis.strategies.integers(0, 2))
    def answered_as_documented(case, deep):
        for name in {"task", "model"} & set(case.path_parameters or {}):
            if mode == MODES[0]:
                case.path_parameters[name] = server  # beyond 404, where there is more to break
        if deep and mode == MODES[0] and case.path.endswith("/infer") and isinstance(case.body, dict):
            fitting = {"inputs": [FITTING]}  # runs: nothing else that was drawn comes with it
            drawn = case.body | {"inputs": [{**FITTING, "data": case.body["inputs"]}]}
            case.body = fitting if deep == 1 else drawn
            kept = {} if deep == 1 else dict(case.headers or {})
            case.headers = kept | {"edgewise-rate-qps": "1", "edgewise-deadline-s": "5"}
        answer = case.call(base_url=url)
        seen.add(answer.status_code)
        assert answer.status_code != 500, answer.text
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400 and "ready" not in case.path:
            assert isinstance(answer.json()["error"], str)

    answered_as_documented()
    if mode == MODES[0] and operation.path.endswith("/infer"):
        assert {200, 400} <= seen, seen  # both a network that ran and one that was not asked


def test_the_checks_notice_an_answer_that_is_not_as_documented(running):
    wrong = copy.deepcopy(document("worker"))
    wrong["components"]["schemas"]["ServerMetadata"]["required"].append("nonsense")
    (operation,) = (o for o in operations(wrong) if o.path == "/v2")
    case = operation.Case()
    answer = case.call(base_url=f"http://127.0.0.1:{running.http['dense']}")
    with pytest.raises(BaseExceptionGroup, match="schema"):
        case.validate_response(answer, checks=CHECKS)


def test_a_fuzzed_gateway_still_serves(running):
    http_client = pytest.importorskip("tritonclient.http")
    client = http_client.InferenceServerClient(f"127.0.0.1:{running.http['score']}")
    assert client.is_server_ready() and client.is_model_ready("score")
    client.close()


@pytest.mark.parametrize("name", NAMES)
def test_committed_documents_are_up_to_date(name):
    shown = json.loads((SHOWN / f"openapi-{name}.json").read_text())
    assert shown == document(name), f"edgewise dev openapi {name} > docs/reference/openapi-{name}.json"


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_those_of_the_types_that_handlers_read_and_write(name):
    found = document(name)
    schemas = found["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found))) == set(schemas)
    modules = bodies, controller_bodies, shown_bodies
    types = {each.__name__: each for of in modules for each in vars(of).values() if isinstance(each, type)}
    for each, schema in schemas.items():
        jsonschema.meta.validate(schema)
        fields = msgspec.structs.fields(types[each])
        assert schema["properties"].keys() == {field.encode_name for field in fields}
        assert set(schema["required"]) == {field.encode_name for field in fields if field.required}


@pytest.mark.parametrize(
    ("said", "where"),
    [({"policy": 3}, "policy: "), ({}, "policy: "), ([], "body: "), ({"policy": None}, "policy: ")],
)
def test_a_body_that_is_not_as_its_type_says_names_the_field(said, where):
    with pytest.raises(ProtocolError, match=f"^{where}"):
        bodies.read(json.dumps(said).encode(), bodies.PolicyNamed)
    assert not jsonschema.is_valid(document("gateway")["components"]["schemas"]["PolicyNamed"], said)


@pytest.mark.parametrize("name", NAMES)
def test_every_refusal_of_a_guard_is_documented(name):
    for path, operations_of in document(name)["paths"].items():
        for method, operation in operations_of.items():
            refusals = {"403"} if operation.get("security") == [] else {"401", "403"}
            assert refusals <= operation["responses"].keys(), f"{method} {path}"


def test_a_path_that_takes_other_methods_says_which():
    for method, path, name, allowed in (
        ("POST", "/v1/admin/workers", "gateway", "GET"), ("GET", "/v1/admin/workers/a", "gateway", "PUT"),
        ("GET", "/v1/admin/drain", "gateway", "POST"), ("DELETE", "/v1/streams/1", "controller", None),
        ("PATCH", "/v1/streams/1", "gateway", "GET, PUT, DELETE"), ("PUT", "/openapi.json", "worker", "GET"),
        ("GET", "/v2/models/a/versions/1/infer", "worker", "POST"), ("POST", "/v1/nowhere", "worker", None),
        ("DELETE", "/v1/admin/jobs", "controller", "GET, POST"), ("GET", "/v1/down", "controller", "POST"),
    ):  # fmt: skip
        answer = unanswered(HttpRequest(method, path, {}, b""), name)
        assert answer.status == (405 if allowed else 404)
        assert answer.headers.get("allow") == allowed


FREE = {
    ("/openapi.json", "get"): "the document",
    ("/v2/models/{task}/config", "get"): "Triton's",
    ("/v2/models/{model}/config", "get"): "Triton's",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_body_has_a_type_of_its_own(name):
    """But for what others have written down."""
    for path, operations_of in document(name)["paths"].items():
        for method, operation in operations_of.items():
            said = [operation.get("requestBody", {}), *operation["responses"].values()]
            shapes = json.dumps([each["schema"] for one in said for each in one.get("content", {}).values()])
            free = "properties" in shapes or '"object"' in shapes
            assert free == ((path, method) in FREE), f"{method} {path}"
