"""GPT-2 as an ONNX graph, with one branch for each attention head.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; the small model: 12 layers of 12
heads, width 768. Exports compute all heads of a layer in one operator; here each head has operators of its
own, so that heads can run on different servers. Its weights are constants: costs and sizes depend on shapes
alone.
"""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgewise.profiling.graphs import GraphBuilder

VOCABULARY = 50_257


class TransformerBuilder(GraphBuilder):
    """Adds what layers of a transformer consist of."""

    def weight(self, name: str, *shape: int) -> str:
        """A weight that takes no room in the file."""
        value = numpy_helper.from_array(np.array([0.01], np.float32))
        shapes = [self.constant(f"{name}.shape", np.array(shape), numbered=False)]
        return self.add("ConstantOfShape", shapes, name=name, value=value)

    def linear(self, name: str, x: str, width: int, out: int) -> str:
        """A dense layer with bias."""
        product = self.add("MatMul", [x, self.weight(f"{name}.weight", width, out)], name=f"{name}.product")
        return self.add("Add", [product, self.weight(f"{name}.bias", out)], name=name)

    def norm(self, name: str, x: str, width: int) -> str:
        """Layer normalisation."""
        scales = [self.weight(f"{name}.{part}", width) for part in ("scale", "shift")]
        return self.add("LayerNormalization", [x, *scales], name=name)


def gpt2(tokens: int = 128, layers: int = 12, heads: int = 12, width: int = 768) -> onnx.ModelProto:
    """The network that reads `tokens` tokens and gives the scores of the next one.

    Raises:
        ValueError: the heads do not divide the width.
    """
    if width % heads:
        raise ValueError(f"width {width} is not a multiple of {heads} heads")
    net = TransformerBuilder("gpt2")
    net.constant("future", np.triu(np.full((tokens, tokens), -1e9, np.float32), 1), numbered=False)
    net.constant("scale", np.float32(1 / math.sqrt(width // heads)), numbered=False)
    words = net.add("Gather", [net.weight("words.table", VOCABULARY, width), "ids"], name="words")
    x = net.add("Add", [words, net.weight("positions", tokens, width)], name="embedding")
    for layer in range(layers):
        name = f"layer{layer}"
        seen = net.norm(f"{name}.norm1", x, width)
        parts = [_head(net, f"{name}.head{h}", seen, width, width // heads) for h in range(heads)]
        joined = net.add("Concat", parts, name=f"{name}.concat", axis=-1)
        x = net.add("Add", [x, net.linear(f"{name}.mix", joined, width, width)], name=f"{name}.attended")
        wide = net.linear(f"{name}.wide", net.norm(f"{name}.norm2", x, width), width, 4 * width)
        narrow = net.linear(f"{name}.narrow", net.add("Gelu", [wide], name=f"{name}.gelu"), 4 * width, width)
        x = net.add("Add", [x, narrow], name=name)
    places = [net.norm("norm", x, width), net.constant("place", tokens - 1, numbered=False)]
    last = net.add("Gather", places, name="last", axis=0)
    net.add("MatMul", [last, net.weight("scores.weight", width, VOCABULARY)], name="scores")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [tokens])
    return net.finish(ids, [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [VOCABULARY])], 20)


def _head(net: TransformerBuilder, name: str, x: str, width: int, size: int) -> str:
    query, key, value = (net.linear(f"{name}.{part}", x, width, size) for part in ("query", "key", "value"))
    match = net.add(
        "MatMul", [query, net.add("Transpose", [key], name=f"{name}.turned")], name=f"{name}.match"
    )
    scaled = net.add("Mul", [match, "scale"], name=f"{name}.scaled")
    share = net.add(
        "Softmax", [net.add("Add", [scaled, "future"], name=f"{name}.masked")], name=f"{name}.share"
    )
    return net.add("MatMul", [share, value], name=name)
