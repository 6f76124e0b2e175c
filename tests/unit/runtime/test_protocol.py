"""Open Inference Protocol v2 framing: what goes in comes out, and garbage is only ever refused."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from edgewise.errors import ProtocolError
from edgewise.runtime.protocol import messages as protocol
from edgewise.runtime.protocol.messages import InferRequest, InferResponse

NUMERIC = [dtype for name, dtype in protocol.DTYPES.items() if name not in ("BYTES", "BF16")]
BF16 = protocol.DTYPES["BF16"]
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
halves = hnp.arrays(np.dtype("<u2"), shapes).map(lambda bits: bits.view(BF16))
numbers = halves | st.sampled_from(NUMERIC).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


@st.composite
def texts(draw, elements):
    shape = draw(hnp.array_shapes(max_dims=2, max_side=4))
    array = np.empty(int(np.prod(shape)), dtype=object)
    array[:] = [draw(elements) for _ in range(array.size)]
    return array.reshape(shape)


tensors = st.dictionaries(st.text(max_size=8), numbers | texts(st.binary(max_size=9)), min_size=1, max_size=4)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].shape == b[name].shape
        if a[name].dtype == object:
            assert a[name].tolist() == b[name].tolist()
        else:
            assert a[name].dtype == b[name].dtype
            left, right = (x.astype(np.float32) if x.dtype == BF16 else x for x in (a[name], b[name]))
            np.testing.assert_array_equal(left, right)


@given(tensors, st.text(max_size=9), st.booleans())
def test_binary_request_round_trip(inputs, identifier, binary):
    request = InferRequest(inputs, tuple(inputs), identifier, binary)
    back = protocol.decode_request(*protocol.encode_request(request))
    same(inputs, back.inputs)
    assert (back.id, back.outputs, back.binary) == (identifier, tuple(inputs), binary)


def without_nan(array):
    if array.dtype.kind in "biu":
        return array
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 1.0).astype(array.dtype)


@given(st.dictionaries(st.text(max_size=8), numbers, min_size=1, max_size=3))
def test_json_response_round_trip(outputs):
    finite = {name: without_nan(array) for name, array in outputs.items()}
    headers, body = protocol.encode_response(InferResponse("m", finite), binary=False)
    assert protocol.JSON_LENGTH not in headers
    same(finite, protocol.decode_response(headers, body).outputs)


@given(texts(st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(str.encode)))
def test_json_bytes_round_trip(array):
    headers, body = protocol.encode_response(InferResponse("m", {"t": array}), binary=False)
    same({"t": array}, protocol.decode_response(headers, body).outputs)


@given(tensors, st.data())
def test_json_and_binary_tensors_mix_in_both_directions(arrays, data):
    plain = {
        name: array
        for name, array in arrays.items()
        if array.dtype.kind in "biu" or (array.dtype.kind == "f" and np.isfinite(array).all())
    }
    chosen = data.draw(st.sets(st.sampled_from(sorted(plain)))) if plain else set()
    request = InferRequest(arrays, tuple(arrays), binary_outputs={name: False for name in chosen})
    back = protocol.decode_request(*protocol.encode_request(request, json_inputs=chosen))
    same(arrays, back.inputs)
    assert {name for name, binary in back.binary_outputs.items() if not binary} == chosen
    headers, body = protocol.encode_response(InferResponse("m", arrays), back.binary, back.binary_outputs)
    same(arrays, protocol.decode_response(headers, body).outputs)
    head = json.loads(body[: int(headers.get(protocol.JSON_LENGTH, len(body)))])
    assert {tensor["name"] for tensor in head["outputs"] if "data" in tensor} == chosen


def refused_or_read(headers, body):
    try:
        protocol.decode_request(headers, body)
    except ProtocolError as error:
        assert str(error) and error.status in (400, 413)


@given(st.binary(max_size=200), st.none() | st.text(max_size=5))
def test_garbage_is_only_ever_refused(body, length):
    refused_or_read({} if length is None else {protocol.JSON_LENGTH: length}, body)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(list(protocol.DTYPES)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    ["name", "shape", "datatype", "data", "parameters", "id", "inputs", "outputs", "binary_data_size"]
)
tensor_like = st.fixed_dictionaries(
    {"name": st.text(max_size=3), "shape": st.lists(st.integers(-1, 4), max_size=3),
     "datatype": st.sampled_from(list(protocol.DTYPES))},
    optional={"data": json_values,
              "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-1, 60)})},
)  # fmt: skip


@given(
    st.lists(tensor_like | json_values, max_size=3),
    st.dictionaries(keys, json_values),
    st.binary(max_size=60),
)
def test_wrong_fields_are_only_ever_refused(inputs, more, tail):
    text = json.dumps({**more, "inputs": inputs}).encode()
    refused_or_read({protocol.JSON_LENGTH: str(len(text))}, text + tail)


@given(tensors, st.data())
def test_truncated_or_flipped_bodies_are_only_ever_refused(inputs, data):
    headers, body = protocol.encode_request(InferRequest(inputs))
    cut = data.draw(st.integers(0, len(body)))
    refused_or_read(headers, body[:cut])
    at = data.draw(st.integers(0, len(body) - 1))
    refused_or_read(headers, body[:at] + bytes([body[at] ^ data.draw(st.integers(1, 255))]) + body[at + 1 :])


CASES = [
    ({}, b"[]", "object"),
    ({}, b"{}", "inputs"),
    ({}, b'{"inputs": []}', "at least one"),
    ({}, b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP31", "data": [1]}]}', "FP31"),
    ({}, b'{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1]}]}', r"inputs\[0\].data"),
    (
        {},
        b'{"inputs": [{"name": "x", "shape": [-2], "datatype": "FP32", "data": [1]}]}',
        r"inputs\[0\].shape",
    ),
    ({protocol.JSON_LENGTH: "99"}, b"{}", "inference-header-content-length"),
    ({protocol.JSON_LENGTH: "2"}, b"{}xx", "inputs"),
]


@pytest.mark.parametrize(("headers", "body", "message"), CASES)
def test_errors_name_the_field(headers, body, message):
    with pytest.raises(ProtocolError, match=message):
        protocol.decode_request(headers, body)


def one(datatype, data, shape=None):
    tensor = {"name": "x", "shape": shape or [len(data)], "datatype": datatype, "data": data}
    return protocol.decode_request({}, json.dumps({"inputs": [tensor]}).encode()).inputs["x"]


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT8", [300]), ("INT8", [-129]), ("UINT8", [-1]), ("INT32", [1.5]), ("INT32", [1e30]),
        ("INT64", [2**63]), ("UINT64", [-1, 2**64 - 1]),
        ("INT64", ["1"]), ("FP32", ["1.5"]), ("FP32", [None]), ("FP32", [{}]), ("FP32", [[1, 2], [3]]),
        ("FP16", [1e10]), ("FP32", [1e39]), ("FP64", [10**400]), ("BOOL", [2]), ("BYTES", [1]),
        ("BYTES", ["a", None]), ("FP32", [1, "a"]), ("INT8", [2**70]),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(datatype, data):
    with pytest.raises(ProtocolError, match=r"inputs\[0\]\.data"):
        one(datatype, data)


def test_values_that_fit_stay_exact():
    assert one("INT64", [-(2**63), 2**63 - 1]).tolist() == [-(2**63), 2**63 - 1]
    assert one("UINT64", [0, 2**64 - 1]).tolist() == [0, 2**64 - 1]
    assert one("INT32", [1.0, 2, True]).tolist() == [1, 2, 1]
    assert one("BOOL", [True, 0, 1]).tolist() == [True, False, True]
    assert one("FP32", [[1, 2], [3, 4.5]], [2, 2]).tolist() == [[1, 2], [3, 4.5]]
    assert one("BF16", [1.5, -2]).astype(float).tolist() == [1.5, -2.0]
    assert one("FP64", [10**30]).tolist() == [1e30]
    assert one("FP32", [1e-46]).tolist() == [0.0]
    assert one("BYTES", ["a", "ü"]).tolist() == [b"a", "ü".encode()]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_json_is_refused(value):
    with pytest.raises(ProtocolError, match="body: JSON is malformed"):
        one("FP32", [value])


def test_nan_has_no_json_form():
    with pytest.raises(ProtocolError, match="binary outputs"):
        protocol.encode_response(InferResponse("m", {"y": np.array([np.nan])}), binary=False)


@pytest.mark.parametrize("size", [-1, 3, 5, 2**70, 1.5, "4", True, None, []])
def test_wrong_binary_sizes_are_400(size):
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(ProtocolError, match=r"inputs\[0\]|body") as caught:
        protocol.decode_request({protocol.JSON_LENGTH: str(len(text))}, text + b"\0" * 4)
    assert caught.value.status == 400


def test_null_fields_read_as_absent():
    text = b"""{"model_name": "m", "id": null, "parameters": null, "outputs":
        [{"name": "y", "shape": [1], "datatype": "INT8", "parameters": null, "data": [1]}]}"""
    assert protocol.decode_response({}, text).outputs["y"].tolist() == [1]


def test_too_many_elements_is_413():
    body = b'{"inputs": [{"name": "x", "shape": [99999, 99999], "datatype": "INT8", "data": []}]}'
    with pytest.raises(ProtocolError) as caught:
        protocol.decode_request({}, body)
    assert caught.value.status == 413
