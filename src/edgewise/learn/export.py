"""A trained network becomes an ONNX file and a JSON card that says how it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from edgewise.errors import RunError
from edgewise.learn.dqn import DqnTrainer
from edgewise.learn.networks import Normalised, PaperNetwork, PooledNetwork, ValueHead
from edgewise.policies.dispatch.golden import features_hash, fingerprint, golden_states

GOLDEN_WORKERS = 8
MOST_BYTES = 5_000_000


def export(
    trainer: DqnTrainer,
    folder: Path,
    name: str,
    command: str,
    scores: Mapping[str, Any],
    validation: Sequence[int],
) -> Path:
    """Write NAME.onnx and NAME.json; returns the card's path.

    Args:
        command: that trained it.
        scores: success on the validation seeds, by policy.
        validation: those seeds.
    Raises:
        RunError: the file would be larger than 5 MB, or cannot be written.
    """
    config, world = trainer.config, trainer.env.world
    workers = world.workers if config.state == "history" else 0
    network = trainer.network.eval()
    golden = golden_states(config.state, workers or GOLDEN_WORKERS)
    with torch.no_grad():
        decisions = network(torch.from_numpy(golden)).argmax(1).tolist()
    model = graph_of(network, golden.shape[1:], len(config.actions))
    data = model.SerializeToString()
    if len(data) > MOST_BYTES:
        raise RunError(f"{name}.onnx: would have {len(data)} bytes, at most {MOST_BYTES} ship")
    card = {
        "name": name,
        "state": config.state,
        "workers": workers,
        "actions": list(config.actions),
        "topology": fingerprint(world),
        "features": features_hash(config.state),
        "golden": decisions,
        "command": command,
        "edgewise": version("edgewise"),
        "config": asdict(config),
        "seeds": {
            "training": [config.seed, config.seed + trainer.episode],
            "validation": list(validation),
        },
        "scores": dict(scores),
        "curve": [round(success, 5) for success in trainer.curve],
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.onnx").write_bytes(data)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write the policy to {folder}: {error}") from error
    return path


def graph_of(network: PaperNetwork | PooledNetwork, shape: tuple[int, ...], actions: int) -> onnx.ModelProto:
    """The network as ONNX operators, written out: few, so no tracing is needed.

    Args:
        shape: of one state, (W, …); W is free in a pooled network.
    """
    build = _Graph()
    sizes: tuple[str | int, ...]
    if isinstance(network, PooledNetwork):
        result, sizes = build.pooled(network), ("B", "W", shape[-1])
    else:
        result, sizes = build.paper(network), ("B", *shape)
    build.add("Identity", [result], "values")
    graph = helper.make_graph(
        build.nodes,
        "aset",
        [helper.make_tensor_value_info("state", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, ("B", actions))],
        build.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return model


class _Graph:
    """Nodes and constants of an ONNX graph as it grows."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, inputs: list[str], name: str = "", **attributes: Any) -> str:
        """One operator; returns the name of its output."""
        name = name or f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: torch.Tensor) -> str:
        """A constant; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value.detach().numpy().copy(), name))
        return name

    def linear(self, x: str, layer: torch.nn.Linear) -> str:
        """x Wᵀ + b over the last dimension."""
        product = self.add("MatMul", [x, self.constant(layer.weight.T)])
        return self.add("Add", [product, self.constant(layer.bias)])

    def normalised(self, x: str, scale: Normalised) -> str:
        """As `Normalised`."""
        shifted = self.add("Sub", [x, self.constant(scale.mean)])
        divided = self.add("Div", [shifted, self.constant(scale.deviation)])
        ends = [self.constant(torch.tensor(-10.0)), self.constant(torch.tensor(10.0))]
        return self.add("Clip", [divided, *ends])

    def head(self, x: str, head: ValueHead) -> str:
        """As `ValueHead`."""
        advantage = self.linear(x, head.advantage)
        if head.value is None:
            return advantage
        mean = self.add("ReduceMean", [advantage], axes=[1], keepdims=1)
        centred = self.add("Sub", [advantage, mean])
        return self.add("Add", [self.linear(x, head.value), centred])

    def layers(self, x: str, stages: torch.nn.Sequential) -> str:
        """A sequence of the layers that our networks have."""
        for layer in stages:
            if isinstance(layer, torch.nn.Linear):
                x = self.linear(x, layer)
            elif isinstance(layer, torch.nn.ReLU):
                x = self.add("Relu", [x])
            elif isinstance(layer, torch.nn.Flatten):
                x = self.add("Flatten", [x])
            elif isinstance(layer, torch.nn.MaxPool2d):
                x = self.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
            elif isinstance(layer, torch.nn.Conv2d):
                assert layer.bias is not None
                weights = [self.constant(layer.weight), self.constant(layer.bias)]
                x = self.add("Conv", [x, *weights], kernel_shape=[4, 4], pads=[1, 1, 2, 2])
            elif not isinstance(layer, torch.nn.ZeroPad2d):  # a part of Conv here
                raise TypeError(f"no ONNX operator for {type(layer).__name__}")
        return x

    def pooled(self, network: PooledNetwork) -> str:
        """As `PooledNetwork`."""
        each = self.layers(self.normalised("state", network.scale), network.encoder)
        mean = self.add("ReduceMean", [each], axes=[1], keepdims=0)
        most = self.add("ReduceMax", [each], axes=[1], keepdims=0)
        both = self.add("Concat", [mean, most], axis=1)
        return self.head(self.layers(both, network.body), network.head)

    def paper(self, network: PaperNetwork) -> str:
        """As `PaperNetwork`."""
        return self.head(self.layers(self.normalised("state", network.scale), network.body), network.head)
