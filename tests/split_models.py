"""Networks to split: one with real weights, one with initialised weights and parallel branches."""

import importlib.util
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper


def branching(branches=3, size=24, width=32):
    """Convolutions that fan out, twice; weights drawn from a seeded generator."""
    rng = np.random.default_rng(7)
    nodes, weights = [], []

    def conv(name, x, ins, outs, kernel):
        drawn = rng.normal(scale=(ins * kernel * kernel) ** -0.5, size=(outs, ins, kernel, kernel))
        weights.append(numpy_helper.from_array(drawn.astype(np.float32), f"{name}.w"))
        pads = [kernel // 2] * 4
        nodes.append(
            helper.make_node("Conv", [x, f"{name}.w"], [f"{name}.c"], name=f"{name}.conv", pads=pads)
        )
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [name], name=f"{name}.relu"))
        return name

    x = conv("stem", "x", 3, width, 3)
    for block in range(2):
        ins = width if block == 0 else branches * width
        ends = [conv(f"b{block}.{i}", x, ins, width, 3 + 2 * (i % 2)) for i in range(branches)]
        x = f"joined{block}"
        nodes.append(helper.make_node("Concat", ends, [x], name=x, axis=1))
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"], name="pool"))
    graph = helper.make_graph(
        nodes,
        "branching",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, branches * width, 1, 1])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def real_ensemble():
    """PaddleOCR's text detector, real weights, at two scales beside each other; None where not installed."""
    spec = importlib.util.find_spec("rapidocr_onnxruntime")
    if spec is None:
        return None
    (file,) = (Path(spec.submodule_search_locations[0]) / "models").glob("*det*.onnx")
    first, second = (compose.add_prefix(onnx.load(file), prefix) for prefix in ("large/", "small/"))
    graph = helper.make_graph(
        [*first.graph.node, *second.graph.node],
        "ensemble",
        [*first.graph.input, *second.graph.input],
        [*first.graph.output, *second.graph.output],
        [*first.graph.initializer, *second.graph.initializer],
    )
    return helper.make_model(graph, opset_imports=first.opset_import, ir_version=first.ir_version)
