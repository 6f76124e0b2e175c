"""What each operator of an ONNX graph costs: multiply-accumulates, operations, bytes in and out.

Counts come from the shapes of the tensors alone; nothing is run. Conventions:

- A multiply-accumulate is two operations (FLOPs), as in most publications; a few call it one.
- Element-by-element operators, activations and reductions: one operation per element they read or
  write, whichever is more. Batch normalisation: 2; layer, group and instance normalisation and
  softmax: 5. Pooling: one per element of each window.
- Moving data (reshape, concatenate, gather, …) costs no operation; the bytes say what it costs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper, shape_inference

from edgewise.errors import ProfileError

Shape = tuple[int, ...]
STRING_BYTES = 1.0  # strings have no fixed width
SMALL = 1024  # elements of a tensor whose values may be a shape

MOVES = frozenset(
    """
    Cast Concat Constant ConstantOfShape DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND
    Identity Pad Reshape Resize Shape Size Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze Upsample
    """.split()  # noqa: SIM905
)
SUBGRAPHS = frozenset(["If", "Loop", "Scan"])
PER_ELEMENT = {
    "BatchNormalization": 2.0,
    "GroupNormalization": 5.0,
    "InstanceNormalization": 5.0,
    "LayerNormalization": 5.0,
    "LogSoftmax": 5.0,
    "SimplifiedLayerNormalization": 5.0,
    "SkipLayerNormalization": 5.0,
    "Softmax": 5.0,
}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a graph.

    Attributes:
        name: its name, or that of its first output when it has none.
        kind: ONNX operator.
        inputs, outputs: names of tensors that are computed or given; weights are left out.
        macs: multiply-accumulates.
        flops: operations; twice `macs` and what is not a multiply-accumulate.
        input_bytes, output_bytes: of `inputs` and `outputs`.
        parameter_bytes: of its weights.
        known: False when a shape it needs could not be inferred; its counts are then too low.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    macs: float
    flops: float
    input_bytes: float
    output_bytes: float
    parameter_bytes: float
    known: bool


@dataclass(frozen=True, slots=True)
class Costs:
    """All operators of a graph in their order, and every tensor's size.

    Attributes:
        operators: in the order of the file, which is a valid order to run them in.
        tensor_bytes: name → bytes, of inputs and computed tensors whose shape is known.
        shapes: name → shape, of the same tensors.
        parameters: trained numbers; a scalar such as the bound of a clip counts too.
    """

    operators: tuple[Operator, ...]
    tensor_bytes: Mapping[str, float]
    shapes: Mapping[str, Shape]
    parameters: int

    @property
    def macs(self) -> float:
        """Multiply-accumulates of one run."""
        return sum(operator.macs for operator in self.operators)

    @property
    def flops(self) -> float:
        """Operations of one run."""
        return sum(operator.flops for operator in self.operators)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of operators whose counts are too low."""
        return tuple(operator.name for operator in self.operators if not operator.known)


def read(file: Path) -> onnx.ModelProto:
    """The graph of an ONNX file; weights kept outside the file are not needed and not read.

    Raises:
        ProfileError: the file is missing or no ONNX model.
    """
    try:
        model = onnx.load(file, load_external_data=False)
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # protobuf's errors have no common base with onnx's
        raise ProfileError(f"{file}: is no ONNX model: {error}; export the network to ONNX first") from None
    if not model.graph.node:
        raise ProfileError(
            f"{file}: is no ONNX model: it holds no operators; export the network to ONNX first"
        )
    return model


def costs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> Costs:
    """What every operator costs when the inputs have these shapes.

    Args:
        model: any ONNX graph; it is not changed. Bodies of If, Loop and Scan are not counted (their
            operators are `unknown`).
        shapes: input → shape, needed for inputs with free axes.
    Raises:
        ProfileError: a free axis is not given, a shape contradicts the graph, or inference fails.
    """
    fixed = _with_shapes(model, dict(shapes or {}))
    try:
        inferred = shape_inference.infer_shapes(fixed, data_prop=True, strict_mode=False)
    except Exception as error:  # onnx raises plain RuntimeErrors and its own
        raise ProfileError(f"shapes of the graph cannot be inferred: {error}") from None
    graph = inferred.graph
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    known: dict[str, Shape] = {name: tuple(tensor.dims) for name, tensor in weights.items()}
    widths = {name: _width(tensor.data_type) for name, tensor in weights.items()}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        tensor_type = value.type.tensor_type
        shape = tuple(_size(axis) for axis in tensor_type.shape.dim)
        if tensor_type.HasField("shape") and None not in shape:
            known[value.name] = shape  # type: ignore[assignment]
            widths[value.name] = _width(tensor_type.elem_type)
    sizes = {name: math.prod(shape) * widths[name] for name, shape in known.items()}
    constants = {output for node in graph.node if node.op_type == "Constant" for output in node.output}
    fixed_names = set(weights) | constants
    operators = tuple(_operator(node, known, sizes, fixed_names) for node in graph.node)
    computed = {name: size for name, size in sizes.items() if name not in fixed_names}
    parameters = sum(math.prod(tensor.dims) for tensor in weights.values())
    return Costs(operators, computed, {name: known[name] for name in computed}, parameters)


def _with_shapes(model: onnx.ModelProto, shapes: dict[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy whose inputs have fixed shapes, without what was inferred for free axes."""
    fixed = _without_weights(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    for value in fixed.graph.input:
        if value.name in weights:
            continue
        axes = value.type.tensor_type.shape.dim
        given = shapes.pop(value.name, None)
        if given is None and any(_size(axis) is None for axis in axes):
            shown = [axis.dim_value or axis.dim_param or "?" for axis in axes]
            raise ProfileError(f"input {value.name!r} has free axes {shown}; give its shape")
        if given is None:
            continue
        if len(given) != len(axes) or any(
            _size(a) not in (None, n) for a, n in zip(axes, given, strict=True)
        ):
            shown = [axis.dim_value or axis.dim_param or "?" for axis in axes]
            raise ProfileError(f"input {value.name!r} is {shown}; the shape {list(given)} does not fit")
        for axis, size in zip(axes, given, strict=True):
            axis.dim_value = size
    if shapes:
        raise ProfileError(
            f"no input is called {next(iter(shapes))!r}; inputs: {[i.name for i in model.graph.input]}"
        )
    for value in fixed.graph.output:  # declared with free axes; inference fills them in anew
        for axis in value.type.tensor_type.shape.dim:
            if _size(axis) is None:
                axis.Clear()
    return fixed


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that keeps only small constants (shapes, scales); the other weights become inputs."""
    graph = model.graph
    kept, inputs = [], list(graph.input)
    named = {value.name for value in inputs}
    for tensor in graph.initializer:
        if math.prod(tensor.dims) <= SMALL and tensor.data_location != onnx.TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in named:
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return helper.make_model(
        helper.make_graph(graph.node, graph.name, inputs, graph.output, kept),
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=model.ir_version,
    )


def _size(axis: onnx.TensorShapeProto.Dimension) -> int | None:
    return int(axis.dim_value) if axis.HasField("dim_value") and axis.dim_value >= 0 else None  # -1: free


def _width(kind: int) -> float:
    """Bytes of one element."""
    if kind in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED):
        return STRING_BYTES
    return float(helper.tensor_dtype_to_np_dtype(kind).itemsize)


def _operator(
    node: onnx.NodeProto, shapes: Mapping[str, Shape], sizes: Mapping[str, float], fixed: set[str]
) -> Operator:
    inputs = [name for name in node.input if name]
    outputs = [name for name in node.output if name]
    # An optional output may be unknown; the first one and the inputs decide what an operator costs.
    needed = [*inputs, *outputs[:1]]
    known = node.op_type not in SUBGRAPHS and all(name in shapes for name in needed if name not in fixed)
    count, operations = _count(node, shapes) if known else (0.0, 0.0)
    given = [name for name in inputs if name not in fixed]
    return Operator(
        name=node.name or (outputs[0] if outputs else node.op_type),
        kind=node.op_type,
        inputs=tuple(given),
        outputs=tuple(outputs),
        macs=count,
        flops=operations,
        input_bytes=sum(sizes.get(name, 0.0) for name in given),
        output_bytes=sum(sizes.get(name, 0.0) for name in outputs),
        parameter_bytes=sum(sizes.get(name, 0.0) for name in inputs if name in fixed),
        known=known,
    )


def _count(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> tuple[float, float]:
    """(multiply-accumulates, operations)."""
    ins = [shapes.get(name, ()) for name in node.input]
    out = shapes.get(node.output[0], ()) if node.output else ()
    kind = node.op_type
    if kind in MOVES:
        return 0.0, 0.0
    if kind in COUNTERS:
        count = float(COUNTERS[kind](node, ins, out))
        bias = math.prod(out) if kind in WITH_BIAS and len(ins) > 2 and node.input[-1] else 0
        return count, 2.0 * count + bias
    if kind in ("MaxPool", "AveragePool", "LpPool"):
        return 0.0, float(math.prod(out) * math.prod(_attribute(node, "kernel_shape")))
    elements = max([math.prod(out), *(math.prod(shape) for shape in ins)])
    return 0.0, PER_ELEMENT.get(kind, 1.0) * elements


def _conv(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    """Each output is a sum over the weights of one filter: (M, C / group, k, …)."""
    return math.prod(out) * math.prod(ins[1][1:])


def _conv_transpose(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    """Each input meets every weight of its channel: (C, M / group, k, …)."""
    return math.prod(ins[0]) * math.prod(ins[1][1:])


def _quantised_conv(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    return math.prod(out) * math.prod(ins[3][1:])


def _gemm(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    shared = ins[0][0] if _attribute(node, "transA") else ins[0][1]
    return math.prod(out) * shared


def _matmul(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    return math.prod(out) * ins[0][-1]


def _recurrent(node: onnx.NodeProto, ins: Sequence[Shape], out: Shape) -> int:
    """Input (steps, batch, width); weights (directions, gates * hidden, width) and (…, hidden)."""
    rows = ins[0][0] * ins[0][1]
    return rows * (math.prod(ins[1]) + math.prod(ins[2]))


def _attribute(node: onnx.NodeProto, name: str) -> list[int]:
    """An attribute of integers; empty when it is not set, or set to 0."""
    for attribute in node.attribute:
        if attribute.name == name:
            value = helper.get_attribute_value(attribute)
            return [value] if isinstance(value, int) and value else list(value) if value else []
    return []


Counter = Callable[[onnx.NodeProto, Sequence[Shape], Shape], int]
COUNTERS: dict[str, Counter] = {
    "Conv": _conv,
    "FusedConv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "QLinearConv": _quantised_conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
WITH_BIAS = frozenset(["Conv", "FusedConv", "ConvTranspose", "Gemm"])
