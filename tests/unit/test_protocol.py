"""Open Inference Protocol v2 framing: what goes in comes out, and garbage is only ever refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgewise.errors import ProtocolError
from edgewise.runtime import protocol
from edgewise.runtime.protocol import InferRequest, InferResponse

NUMERIC = [dtype for name, dtype in protocol.DTYPES.items() if name != "BYTES"]
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
numbers = st.sampled_from(NUMERIC).flatmap(lambda dtype: hnp.arrays(dtype, shapes))


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
            np.testing.assert_array_equal(a[name], b[name])
            assert a[name].dtype == b[name].dtype


@given(tensors, st.text(max_size=9), st.booleans())
def test_binary_request_round_trip(inputs, identifier, binary):
    request = InferRequest(inputs, tuple(inputs), identifier, binary)
    back = protocol.decode_request(*protocol.encode_request(request))
    same(inputs, back.inputs)
    assert (back.id, back.outputs, back.binary) == (identifier, tuple(inputs), binary)


@given(st.dictionaries(st.text(max_size=8), numbers, min_size=1, max_size=3))
def test_json_response_round_trip(outputs):
    finite = {
        name: np.nan_to_num(array) if array.dtype.kind == "f" else array for name, array in outputs.items()
    }
    headers, body = protocol.encode_response(InferResponse("m", finite), binary=False)
    assert protocol.JSON_LENGTH not in headers
    same(finite, protocol.decode_response(headers, body).outputs)


@given(texts(st.text(st.characters(exclude_categories=["Cs"]), max_size=6).map(str.encode)))
def test_json_bytes_round_trip(array):
    headers, body = protocol.encode_response(InferResponse("m", {"t": array}), binary=False)
    same({"t": array}, protocol.decode_response(headers, body).outputs)


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


def test_too_many_elements_is_413():
    body = b'{"inputs": [{"name": "x", "shape": [99999, 99999], "datatype": "INT8", "data": []}]}'
    with pytest.raises(ProtocolError) as caught:
        protocol.decode_request({}, body)
    assert caught.value.status == 413
