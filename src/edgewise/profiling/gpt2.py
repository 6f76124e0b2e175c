"""GPT-2 with one branch per attention head, operator by operator from its publication.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (the small model: 12 layers of
12 heads, width 768). Exports usually compute all heads in one operator; here each head has operators of
its own, so that heads can run on different servers. Weights are constants: costs and sizes depend on
shapes alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IR_VERSION = 9
VOCABULARY = 50_257


class _Network:
    """Collects operators; each method returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: object) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A weight that takes no room in the file."""
        value = numpy_helper.from_array(np.array([0.01], np.float32))
        return self.add("ConstantOfShape", name, self.constant(f"{name}.shape", np.array(shape)), value=value)

    def linear(self, name: str, x: str, width: int, out: int) -> str:
        product = self.add("MatMul", f"{name}.product", x, self.weight(f"{name}.weight", width, out))
        return self.add("Add", name, product, self.weight(f"{name}.bias", out))

    def norm(self, name: str, x: str, width: int) -> str:
        scales = [self.weight(f"{name}.{part}", width) for part in ("scale", "shift")]
        return self.add("LayerNormalization", name, x, *scales)


def gpt2(tokens: int = 128, layers: int = 12, heads: int = 12, width: int = 768) -> onnx.ModelProto:
    """The network that reads `tokens` tokens and gives the scores of the next one.

    Raises:
        ValueError: the heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"width {width} is not a multiple of {heads} heads")
    net = _Network()
    net.constant("future", np.triu(np.full((tokens, tokens), -1e9, np.float32), 1))
    net.constant("scale", np.float32(1 / math.sqrt(width // heads)))
    words = net.add("Gather", "words", net.weight("words.table", VOCABULARY, width), "ids")
    x = net.add("Add", "embedding", words, net.weight("positions", tokens, width))
    for layer in range(layers):
        name = f"layer{layer}"
        seen = net.norm(f"{name}.norm1", x, width)
        parts = [_head(net, f"{name}.head{h}", seen, width, width // heads) for h in range(heads)]
        joined = net.add("Concat", f"{name}.concat", *parts, axis=-1)
        x = net.add("Add", f"{name}.attended", x, net.linear(f"{name}.mix", joined, width, width))
        wide = net.linear(f"{name}.wide", net.norm(f"{name}.norm2", x, width), width, 4 * width)
        narrow = net.linear(f"{name}.narrow", net.add("Gelu", f"{name}.gelu", wide), 4 * width, width)
        x = net.add("Add", name, x, narrow)
    last = net.add("Gather", "last", net.norm("norm", x, width), net.constant("place", tokens - 1), axis=0)
    net.add("MatMul", "scores", last, net.weight("scores.weight", width, VOCABULARY))
    graph = helper.make_graph(
        net.nodes,
        "gpt2",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [tokens])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [VOCABULARY])],
        net.constants,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="edgewise"
    )
    onnx.checker.check_model(model)
    return model


def _head(net: _Network, name: str, x: str, width: int, size: int) -> str:
    query, key, value = (net.linear(f"{name}.{part}", x, width, size) for part in ("query", "key", "value"))
    match = net.add("MatMul", f"{name}.match", query, net.add("Transpose", f"{name}.turned", key))
    scaled = net.add("Mul", f"{name}.scaled", match, "scale")
    share = net.add("Softmax", f"{name}.share", net.add("Add", f"{name}.masked", scaled, "future"))
    return net.add("MatMul", name, share, value)
