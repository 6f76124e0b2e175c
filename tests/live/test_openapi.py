"""The OpenAPI document against the running system: whatever is sent, no 500, and only documented answers."""

import json
from pathlib import Path

import pytest
from live_system import Running

from edgewise.runtime.openapi import gateway_document, worker_document

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")
pytestmark = pytest.mark.live

SHOWN = Path(__file__).parents[2] / "docs" / "reference"
UNTOUCHED = ("drain", "admin/workers/")  # they would end what the other tests need
FEW = hypothesis.settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
MODES = list(schemathesis.GenerationMode)


def operations(document):
    found = schemathesis.openapi.from_dict(document).get_all_operations()
    every = (operation.ok() for operation in found)
    return [operation for operation in every if not any(part in operation.path for part in UNTOUCHED)]


def takes_input(operation):
    """Whether there is anything that could be wrong in a request."""
    return bool(operation.headers or operation.query or operation.body)


CASES = [
    pytest.param(server, operation, mode, id=f"{server}-{operation.label}-{mode.value}")
    for server, document in (("score", gateway_document()), ("dense", worker_document()))
    for operation in operations(document)
    for mode in MODES
    if mode == MODES[0] or takes_input(operation)
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("models"))
    yield running
    running.close()


@pytest.mark.parametrize(("server", "operation", "mode"), CASES)
def test_every_answer_is_documented_and_none_is_500(running, server, operation, mode):
    url = f"http://127.0.0.1:{running.http[server]}"

    @FEW
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def answered_as_documented(case):
        for name in {"task", "model"} & set(case.path_parameters or {}):
            if mode == MODES[0]:
                case.path_parameters[name] = server  # beyond 404, where there is more to break
        answer = case.call(base_url=url)
        assert answer.status_code != 500, answer.text
        documented = operation.definition.raw["responses"]
        assert str(answer.status_code) in {*documented, "405"}, (answer.status_code, answer.text)
        if answer.status_code >= 400 and "ready" not in case.path:
            assert isinstance(answer.json()["error"], str)

    answered_as_documented()


def test_a_fuzzed_gateway_still_serves(running):
    http_client = pytest.importorskip("tritonclient.http")
    client = http_client.InferenceServerClient(f"127.0.0.1:{running.http['score']}")
    assert client.is_server_ready() and client.is_model_ready("score")
    client.close()


@pytest.mark.parametrize(("name", "document"), [("gateway", gateway_document), ("worker", worker_document)])
def test_committed_documents_are_up_to_date(name, document):
    shown = json.loads((SHOWN / f"openapi-{name}.json").read_text())
    assert shown == document(), (
        f"python -m edgewise.runtime.openapi {name} > docs/reference/openapi-{name}.json"
    )
