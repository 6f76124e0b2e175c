"""A network cut into sub-models, one for each task of a contracted graph.

A sub-model computes the operators of its task and whatever reads only weights. Its inputs are the tensors
that come from other tasks, its outputs those that others need or that the network answers with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
from onnx import helper

from edgewise.errors import ProfileError
from edgewise.profiling.operators import costs


class Piece(NamedTuple):
    """A sub-model.

    Attributes:
        task: the task that it carries out.
        model: its network; None where the task has no operator (where a query arrives or is answered).
        inputs, outputs: its tensors.
    """

    task: str
    model: onnx.ModelProto | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def cut(
    model: onnx.ModelProto,
    members: Mapping[str, Sequence[str]],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> list[Piece]:
    """Sub-models, in an order in which they can run.

    Args:
        model: the network.
        members: task → its operators (`Contraction.members`); names that are no operators are left out.
        shapes: input → shape, as for `task_graph`.
    Raises:
        ProfileError: an operator is no member of any task, or a tensor has no known type.
    """
    found = costs(model, shapes)
    names = [operator.name for operator in found.operators]
    task_of = {operator: task for task, listed in members.items() for operator in listed}
    types = _types(model, found.shapes)
    given = {value.name for value in model.graph.input} - {w.name for w in model.graph.initializer}
    maker = {out: i for i, node in enumerate(model.graph.node) for out in node.output if out}
    fixed = _fixed(model, given)
    own: dict[str, list[int]] = {task: [] for task in members}
    for i, name in enumerate(names):
        if i not in fixed and name in task_of:
            own[task_of[name]].append(i)
    placed = {i for listed in own.values() for i in listed}
    needed = {value.name for value in model.graph.output}
    pieces = []
    for task, mine in own.items():
        inputs = _reads(model, mine, fixed, maker, given)
        missing = [name for name in inputs if name in maker and maker[name] not in placed]
        if missing:
            raise ProfileError(f"operator that computes {missing[0]!r} is in no task; pass every operator")
        elsewhere = {name for i in placed - set(mine) for name in model.graph.node[i].input} | needed
        outputs = [out for i in mine for out in model.graph.node[i].output if out in elsewhere]
        built = _extract(model, mine, fixed, maker, inputs, outputs, types) if outputs else None
        pieces.append(Piece(task, built, tuple(inputs), tuple(outputs)))
    return pieces


def _types(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> dict[str, onnx.ValueInfoProto]:
    """Tensor → its type and number of axes; their lengths stay free, for they may depend on the input."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type.elem_type
        if kind and value.name in shapes:
            axes = [None] * len(shapes[value.name])
            found[value.name] = helper.make_tensor_value_info(value.name, kind, axes)
    return found


def _fixed(model: onnx.ModelProto, given: set[str]) -> set[int]:
    """Operators that depend on no input."""
    depends, fixed = set(given), set()
    for i, node in enumerate(model.graph.node):
        if depends & _all_inputs(node):
            depends.update(node.output)
        else:
            fixed.add(i)
    return fixed


def _all_inputs(node: onnx.NodeProto) -> set[str]:
    """Tensors that an operator reads, also inside its branches or loop."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            made = {out for inner in graph.node for out in inner.output}
            found |= {name for inner in graph.node for name in _all_inputs(inner)} - made
    return found


def _reads(
    model: onnx.ModelProto, mine: Sequence[int], fixed: set[int], maker: Mapping[str, int], given: set[str]
) -> list[str]:
    """Tensors that come from outside: the network's inputs and what other tasks compute."""
    inside, found = set(mine), dict[str, None]()
    for i in mine:
        for name in sorted(_all_inputs(model.graph.node[i])):
            if name in given or (name in maker and maker[name] not in inside | fixed):
                found[name] = None
    return list(found)


def _extract(
    model: onnx.ModelProto,
    mine: Sequence[int],
    fixed: set[int],
    maker: Mapping[str, int],
    inputs: Sequence[str],
    outputs: Sequence[str],
    types: Mapping[str, onnx.ValueInfoProto],
) -> onnx.ModelProto:
    wanted, waiting = set(mine), list(mine)
    while waiting:  # what reads only weights comes along
        for name in _all_inputs(model.graph.node[waiting.pop()]):
            if maker.get(name) in fixed - wanted:
                wanted.add(maker[name])
                waiting.append(maker[name])
    nodes = [model.graph.node[i] for i in sorted(wanted)]
    read = {name for node in nodes for name in _all_inputs(node)}
    unknown = [name for name in (*inputs, *outputs) if name not in types]
    if unknown:
        raise ProfileError(
            f"type or shape of {unknown[0]!r} cannot be inferred; export with fixed input shapes"
        )
    graph = helper.make_graph(
        nodes,
        model.graph.name or "piece",
        [types[name] for name in inputs],
        [types[name] for name in outputs],
        [tensor for tensor in model.graph.initializer if tensor.name in read],
    )
    return helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )
