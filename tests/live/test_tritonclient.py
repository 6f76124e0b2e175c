"""Unmodified clients of the protocol, over HTTP and gRPC, against a worker and a gateway."""

import numpy as np
import pytest
from live_system import ECHO, client_of

pytest.importorskip("grpc")
http_client = pytest.importorskip("tritonclient.http")
grpc_client = pytest.importorskip("tritonclient.grpc")
service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")

model_config_pb2 = pytest.importorskip("tritonclient.grpc.model_config_pb2")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException

pytestmark = pytest.mark.live
NEEDS = {"edgewise-rate-qps": "5", "edgewise-deadline-s": "10"}


def expected(running, x):
    import onnxruntime

    return onnxruntime.InferenceSession(str(running.folder / "dense.onnx")).run(["y"], {"x": x})[0]


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize("model", ["dense", "score"])
def test_health_metadata_and_inference(running, kind, model):
    library, client = client_of(kind, running, model)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    server, described = client.get_server_metadata(), client.get_model_metadata(model)
    name = server["name"] if kind == "http" else server.name
    assert name == ("edgewise-gateway" if model == "score" else "edgewise-worker")
    inputs = described["inputs"] if kind == "http" else described.inputs
    tensor = inputs[0] if kind == "http" else {"name": inputs[0].name, "shape": list(inputs[0].shape)}
    assert tensor["name"] == "x" and [int(n) for n in tensor["shape"]] == [-1, 8]
    x = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)
    given = library.InferInput("x", [3, 8], "FP32")
    given.set_data_from_numpy(x)
    asked = library.InferRequestedOutput("y")
    answer = client.infer(model, [given], outputs=[asked], request_id="q7", headers=dict(NEEDS))
    np.testing.assert_array_equal(answer.as_numpy("y"), expected(running, x))
    response = answer.get_response()
    assert (response["id"] if kind == "http" else response.id) == "q7"
    if model == "score":
        parameters = response["parameters"] if kind == "http" else response.parameters
        variant = parameters["edgewise_variant"]
        assert (variant if kind == "http" else variant.string_param) == "dense-cpu"
    client.close()


@pytest.mark.parametrize(("binary_in", "binary_out"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("model", ["dense", "score"])
def test_http_json_and_binary_in_each_direction(running, model, binary_in, binary_out):
    library, client = client_of("http", running, model)
    x = np.arange(16, dtype=np.float32).reshape(2, 8) / 8
    given = library.InferInput("x", [2, 8], "FP32")
    given.set_data_from_numpy(x, binary_data=binary_in)
    asked = library.InferRequestedOutput("y", binary_data=binary_out)
    answer = client.infer(model, [given], outputs=[asked], headers=dict(NEEDS))
    np.testing.assert_allclose(answer.as_numpy("y"), expected(running, x), rtol=1e-6)
    client.close()


@pytest.mark.parametrize("kind", ["http", "grpc"])
@pytest.mark.parametrize(
    "datatype",
    ["BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP16", "FP32", "FP64",
     "BYTES"],
)  # fmt: skip
def test_every_datatype_comes_back_as_it_went(running, kind, datatype):
    from tritonclient.utils import triton_to_np_dtype

    library, client = client_of(kind, running, "echo")
    inputs = []
    sent = {}
    for name in ECHO:
        dtype = triton_to_np_dtype(name)
        values = np.array([b"", b"a", "ü".encode()]) if name == "BYTES" else np.array([0, 1, 1])
        array = values.astype(object if name == "BYTES" else dtype)
        sent[name] = array
        tensor = library.InferInput(name, [3], name)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    answer = client.infer("echo", inputs, outputs=[library.InferRequestedOutput(f"{datatype}_out")])
    got = answer.as_numpy(f"{datatype}_out")
    assert got.tolist() == sent[datatype].tolist()
    client.close()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_errors_reach_the_client_with_their_reason(running, kind):
    library, client = client_of(kind, running, "score")
    given = library.InferInput("x", [1, 7], "FP32")
    given.set_data_from_numpy(np.zeros((1, 7), np.float32))
    with pytest.raises(InferenceServerException, match=r"inputs\.x: has shape"):
        client.infer("score", [given], headers=dict(NEEDS))
    with pytest.raises(InferenceServerException, match="no open stream"):
        client.infer("score", [given])
    with pytest.raises(InferenceServerException, match="no worker implements"):
        client.infer("fly", [given], headers=dict(NEEDS))
    with pytest.raises(InferenceServerException, match="accurate"):
        client.infer("score", [given], headers={**NEEDS, "edgewise-min-accuracy": "99"})
    client.close()


def test_grpc_typed_contents_and_streaming(running):
    import grpc

    channel = grpc.insecure_channel(f"127.0.0.1:{running.grpc['dense']}")
    from tritonclient.grpc import service_pb2_grpc

    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    request = service_pb2.ModelInferRequest(model_name="dense", id="t")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 8])
    tensor.contents.fp32_contents.extend(x.ravel().tolist())
    answer = stub.ModelInfer(request)
    np.testing.assert_array_equal(
        np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(1, 4), expected(running, x)
    )
    bad = service_pb2.ModelInferRequest(model_name="dense")
    answers = list(stub.ModelStreamInfer(iter([request, bad, request])))
    assert [bool(a.error_message) for a in answers] == [False, True, False]
    assert answers[2].infer_response.id == "t"
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(bad)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    channel.close()


def test_our_messages_have_the_numbers_that_others_use():
    from edgewise.runtime.protocol.grpc_server import MESSAGES

    known = {
        **model_config_pb2.DESCRIPTOR.message_types_by_name, **service_pb2.DESCRIPTOR.message_types_by_name
    }  # fmt: skip
    for name, ours in MESSAGES.items():
        theirs = known[name.split(".")[0]]
        for part in name.split(".")[1:]:
            theirs = theirs.nested_types_by_name[part]
        for field in ours.DESCRIPTOR.fields:
            other = theirs.fields_by_name[field.name]
            assert (field.number, field.type) == (other.number, other.type), field.full_name
            assert field.is_repeated == other.is_repeated, field.full_name
            if field.enum_type is not None:
                mine, yours = ({v.name: v.number for v in each.enum_type.values} for each in (field, other))
                assert mine == yours
