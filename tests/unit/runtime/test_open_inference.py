"""What protoc has compiled is what the .proto beside it says."""

import re

import pytest

grpc_server = pytest.importorskip("edgewise.runtime.protocol.grpc_server")
PROTO = grpc_server.COMPILED.with_suffix(".proto")
SCALARS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
}
WORD = re.compile(r"\w+|[<>{};=(),]")


def written():
    """(message, field, kind, number, repeated) of each line of the .proto, and its calls."""
    text = re.sub(r"//.*", "", PROTO.read_text(encoding="utf-8"))
    fields, calls, inside = set(), set(), []
    for line in text.replace("{}", "{\n}").splitlines():
        words = WORD.findall(line)
        if words[-1:] == ["{"]:
            inside.append(words[1] if words[0] == "message" else "")
        elif words == ["}"]:
            inside.pop()
        elif words[:1] == ["rpc"]:
            name, *kinds = (word for word in words[1:-1] if word.isalpha() and word != "returns")
            calls.add((name, *kinds))
        elif any(inside) and words[-1:] == [";"]:
            *kind, name, _, number, _ = words
            repeated = kind[0] in ("repeated", "map")
            fields.add(
                (
                    ".".join(filter(None, inside)),
                    name,
                    kind[-2 if kind[0] == "map" else -1],
                    int(number),
                    repeated,
                )
            )
    return fields, calls


def test_the_compiled_messages_are_those_of_the_file():
    fields, calls = written()
    found = set()
    for message, kind in grpc_server.MESSAGES.items():
        for field in kind.DESCRIPTOR.fields:
            of = field.message_type
            if of is not None and of.GetOptions().map_entry:
                of = of.fields_by_name["value"].message_type
            named = of or field.enum_type
            found.add(
                (
                    message,
                    field.name,
                    named.name if named else SCALARS[field.type],
                    field.number,
                    field.is_repeated,
                )
            )
    assert found == fields and len(found) > 80
    stream = ("ModelStreamInfer", "stream", "ModelInferRequest", "stream", "ModelStreamInferResponse")
    assert calls == {stream, *((name, f"{name}Request", f"{name}Response") for name in grpc_server.METHODS)}


def test_kinds_of_data_are_those_that_configurations_name():
    kinds = grpc_server.MESSAGES["ModelInput"].DESCRIPTOR.fields_by_name["data_type"].enum_type.values
    assert [kind.number for kind in kinds] == list(range(len(kinds)))
    assert {
        "TYPE_INVALID",
        "TYPE_STRING",
        *(f"TYPE_{name}" for name in grpc_server.DTYPES if name != "BYTES"),
    } == {kind.name for kind in kinds}
