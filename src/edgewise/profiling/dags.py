"""Networks as task graphs, one task per operator with tensors on the edges; and cut into sub-models.

Costs are operations counted from shapes (`operators`), or times measured by the profiler of ONNX
Runtime. Operators that read only weights are not tasks: they can be computed once, when the model is
loaded. Every graph begins with a task "input" and ends with a task "output", both without work: where a
query arrives and where its answer is put together.

A sub-model computes the operators of its task of a contracted graph, and whatever reads only weights. Its
inputs are the tensors that come from other tasks, its outputs those that others need or that the network
answers with.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from edgewise.errors import ProfileError
from edgewise.model.work import Edge, Task, TaskGraph
from edgewise.profiling.operators import Costs, costs, read

INPUT, OUTPUT = "input", "output"
Shapes = Mapping[str, Sequence[int]]

LIGHT = ("alexnet", "densenet121", "inception-v1", "inception-v2", "resnet50", "vgg19")
_FILES = {"alexnet": "bvlc_alexnet", "inception-v1": "inception_v1", "inception-v2": "inception_v2"}


def light_file(name: str) -> Path:
    """The file of a network in the test data of the package onnx: real graph, weights left out.

    Raises:
        ProfileError: no such network, or this version of onnx does not ship it.
    """
    if name not in LIGHT:
        raise ProfileError(f"no network {name!r}; known: {', '.join(LIGHT)}")
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    file = folder / f"light_{_FILES.get(name, name)}.onnx"
    if not file.exists():
        raise ProfileError(f"onnx {onnx.__version__} ships no {file.name}; give the path of an ONNX file")
    return file


def task_graph(
    model: onnx.ModelProto | Path,
    name: str = "",
    shapes: Shapes | None = None,
    seconds: Mapping[str, float] | None = None,
    power_ops: float = 1e9,
) -> TaskGraph:
    """The operators of a network as a task graph.

    Args:
        model: the network or its file.
        name: of the graph; default the file's or the network's.
        shapes: input → shape, needed for inputs with free axes.
        seconds: measured time of each operator (`measure`); its work is then seconds * power_ops.
        power_ops: operations per second of the machine that was measured.
    Raises:
        ProfileError: the file is no ONNX model, or a shape cannot be inferred.
    """
    if isinstance(model, Path):
        name = name or model.stem
        model = read(model)
    found = costs(model, shapes)
    sizes = _sizes(found)
    maker = dict.fromkeys(_inputs(model), INPUT)
    tasks, edges = [Task(INPUT, 0.0)], []
    for number in _live(model, found):
        operator = found.operators[number]
        task = operator.name
        if seconds is not None and task not in seconds:
            raise ProfileError(f"operator {task!r} was not measured; measure the same file and shapes")
        work = operator.flops if seconds is None else seconds[task] * power_ops
        tasks.append(Task(task, work, operator.parameter_bytes))
        for tensor in dict.fromkeys(operator.inputs):
            if tensor in maker:
                edges.append(_edge(maker[tensor], task, tensor, sizes))
        maker.update(dict.fromkeys(operator.outputs, task))
    tasks.append(Task(OUTPUT, 0.0))
    edges += [_edge(maker[o.name], OUTPUT, o.name, sizes) for o in model.graph.output if o.name in maker]
    return TaskGraph(name or model.graph.name or "network", tuple(tasks), tuple(edges))


def compose(name: str, stages: Sequence[Sequence[TaskGraph]]) -> TaskGraph:
    """Several networks as one query: the networks of a stage run beside each other, stage after stage.

    One stage is an ensemble; a detector followed by classifiers is a cascade. Each network receives as
    many bytes as its own input has.
    """
    tasks, edges = [Task(INPUT, 0.0)], []
    ends = [(INPUT, 0.0)]
    for number, stage in enumerate(stages):
        following = []
        for place, graph in enumerate(stage):
            prefix = f"{number}.{place}.{graph.name}/"
            tasks += [Task(prefix + task.name, task.work_ops, task.memory_bytes) for task in graph.tasks]
            edges += [Edge(prefix + e.source, prefix + e.target, e.size_bytes, e.tensor) for e in graph.edges]
            needs = _distinct_bytes(edge for edge in graph.edges if edge.source == INPUT)
            # What a network needs is shared evenly among those that it waits for.
            edges += [Edge(end, prefix + INPUT, needs / len(ends)) for end, _ in ends]
            answer = _distinct_bytes(edge for edge in graph.edges if edge.target == OUTPUT)
            following.append((prefix + OUTPUT, answer))
        ends = following
    tasks.append(Task(OUTPUT, 0.0))
    edges += [Edge(end, OUTPUT, size) for end, size in ends]
    return TaskGraph(name, tuple(tasks), tuple(edges))


def measure(model: onnx.ModelProto | Path, shapes: Shapes | None = None, runs: int = 5) -> dict[str, float]:
    """Median seconds of each operator on one core of this machine, by the profiler of ONNX Runtime.

    Operators are not fused, so the names are those of `task_graph`. Inputs are zeros.

    Raises:
        ProfileError: the model cannot be run.
    """
    named = onnx.ModelProto()
    named.CopyFrom(read(model) if isinstance(model, Path) else model)
    for node, operator in zip(named.graph.node, costs(named, shapes).operators, strict=True):
        node.name = operator.name
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        try:
            session = onnxruntime.InferenceSession(
                named.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            for _ in range(runs + 1):
                session.run(None, _zeros(named, shapes or {}))
        except Exception as error:  # onnxruntime's errors have no common base
            raise ProfileError(f"the model cannot be run: {error}") from None
        events = json.loads(Path(session.end_profiling()).read_text())
    times: dict[str, list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            times.setdefault(event["name"].removesuffix("_kernel_time"), []).append(event["dur"] / 1e6)
    return {name: median(seen[1:] or seen) for name, seen in times.items()}  # the first run warms up


def _inputs(model: onnx.ModelProto) -> list[str]:
    """Inputs that no weight fills."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in weights]


def _live(model: onnx.ModelProto, found: Costs) -> list[int]:
    """Operators that depend on an input and that an output depends on."""
    needed = {value.name for value in model.graph.output}
    live = []
    for number in reversed(_dependent(model)):
        operator = found.operators[number]
        if needed & set(operator.outputs):
            needed.update(operator.inputs)
            live.append(number)
    return live[::-1]


def _sizes(found: Costs) -> dict[str, float]:
    """Bytes of all tensors. Old files leave the shape after a dropout open: it is that of its input."""
    sizes = dict(found.tensor_bytes)
    for operator in found.operators:
        if operator.kind in ("Dropout", "Identity") and operator.inputs[0] in sizes:
            sizes.setdefault(operator.outputs[0], sizes[operator.inputs[0]])
    return sizes


def _edge(source: str, target: str, tensor: str, sizes: Mapping[str, float]) -> Edge:
    if tensor not in sizes:
        raise ProfileError(f"the shape of {tensor!r} cannot be inferred; export with fixed input shapes")
    return Edge(source, target, sizes[tensor], tensor)


def _distinct_bytes(edges: Iterable[Edge]) -> float:
    """Bytes of all tensors on the edges, each counted once."""
    return sum({edge.tensor: edge.size_bytes for edge in edges}.values())


def _zeros(model: onnx.ModelProto, shapes: Shapes) -> dict[str, NDArray[np.generic]]:
    feeds = {}
    for value in model.graph.input:
        if value.name in _inputs(model):
            tensor = value.type.tensor_type
            shape = shapes.get(value.name) or [axis.dim_value for axis in tensor.shape.dim]
            feeds[value.name] = np.zeros(shape, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


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
    given = set(_inputs(model))
    maker = {out: i for i, node in enumerate(model.graph.node) for out in node.output if out}
    fixed = set(range(len(names))) - set(_dependent(model))
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


def without_work(
    model: onnx.ModelProto, pieces: Sequence[Piece], shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[onnx.ModelProto, list[Piece]]:
    """A network and its sub-models with the same inputs and outputs, which are zeros.

    Raises:
        ProfileError: as `cut`.
    """
    sizes = costs(model, shapes).shapes
    empty = [piece._replace(model=piece.model and _idle(piece.model, sizes)) for piece in pieces]
    return _idle(model, sizes), empty


def _idle(model: onnx.ModelProto, sizes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Its inputs, and outputs of these sizes."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    nodes, outputs, constants = [], [], []
    for value in model.graph.output:
        kind, size = value.type.tensor_type.elem_type, list(sizes[value.name])
        zero = helper.make_tensor("zero", kind, [1], [0])
        constants.append(
            helper.make_tensor(f"size of {value.name}", onnx.TensorProto.INT64, [len(size)], size)
        )
        nodes.append(helper.make_node("ConstantOfShape", [constants[-1].name], [value.name], value=zero))
        outputs.append(helper.make_tensor_value_info(value.name, kind, size))
    graph = helper.make_graph(nodes, f"{model.graph.name} without work", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


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


def _dependent(model: onnx.ModelProto) -> list[int]:
    """Operators that depend on an input."""
    depends, found = set(_inputs(model)), []
    for i, node in enumerate(model.graph.node):
        if depends & _all_inputs(node):
            depends.update(node.output)
            found.append(i)
    return found


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
