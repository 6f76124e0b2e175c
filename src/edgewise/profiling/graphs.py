"""The reference detectors as ONNX graphs, layer by layer from their publications.

Weights of detectors are random: a network's delay depends on the shapes of its tensors, not on the values in
them. Boxes are therefore meaningless; do not use these graphs to detect anything. Batch
normalisation is folded into the convolutions, as inference runtimes do. Decoding of boxes and
non-maximum suppression are left out, so a profile covers the network alone.

Batch and picture size are free axes of every detector: all three are fully convolutional.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgewise.errors import ProfileError

IR_VERSION = 9
COCO_CLASSES = 80
SSD_CLASSES = 91  # ids of COCO run to 90; 0 is the background
YOLO_ANCHORS_PER_SCALE = 3
YOLO2_ANCHORS = 5


@dataclass(frozen=True, slots=True)
class Published:
    """What a publication says about a network, to check a graph against.

    Attributes:
        side: pixels along one side of the picture.
        gmacs: 1e9 multiply-accumulates of one picture.
        parameters: trained parameters.
        ap50: COCO AP at IoU 0.5, in %.
        source: where the figures are from.
    """

    side: int
    gmacs: float
    parameters: float
    ap50: float
    source: str


class GraphBuilder:
    """Collects operators and constants; each method adds a layer and returns its output's name."""

    def __init__(self, name: str, seeded: np.random.Generator | None = None) -> None:
        self._name, self._rng = name, seeded or np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._channels = {"picture": 3}

    def add(
        self, kind: str, inputs: Sequence[str], channels: int = 0, name: str = "", **attributes: Any
    ) -> str:
        """One operator; `channels` of its output, where it is a picture."""
        name = name or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self._channels[name] = channels
        return name

    def constant(self, name: str, values: object, numbered: bool = True) -> str:
        """A tensor stored in the file."""
        name = f"{name}_{len(self._constants)}" if numbered else name
        self._constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def conv(
        self, x: str, channels: int, side: int, stride: int = 1, depthwise: bool = False, act: str = "leaky"
    ) -> str:
        """Convolution with bias that keeps the size (or divides it by `stride`), and its activation."""
        taken = 1 if depthwise else self._channels[x]
        spread = np.sqrt(2.0 / (taken * side * side))  # keeps the values' spread from layer to layer
        weights = self._rng.standard_normal((channels, taken, side, side), dtype=np.float32)
        y = self.add(
            "Conv",
            [
                x,
                self.constant("weights", weights * np.float32(spread)),
                self.constant("bias", np.zeros(channels, np.float32)),
            ],
            channels,
            kernel_shape=[side, side],
            strides=[stride, stride],
            group=channels if depthwise else 1,
            auto_pad="SAME_UPPER",
        )
        if act == "leaky":
            return self.add("LeakyRelu", [y], channels, alpha=0.1)
        if act == "relu6":
            ends = [self.constant("end", np.array(end, np.float32)) for end in (0, 6)]
            return self.add("Clip", [y, *ends], channels)
        return y

    def pool(self, x: str, stride: int = 2) -> str:
        """2 x 2 max pooling."""
        sides: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [stride, stride]}
        return self.add("MaxPool", [x], self._channels[x], auto_pad="SAME_UPPER", **sides)

    def plus(self, a: str, b: str) -> str:
        """Element by element sum."""
        return self.add("Add", [a, b], self._channels[a])

    def beside(self, a: str, b: str) -> str:
        """Concatenation of channels."""
        return self.add("Concat", [a, b], self._channels[a] + self._channels[b], axis=1)

    def doubled(self, x: str) -> str:
        """Twice the size, nearest neighbour."""
        scales = self.constant("scales", np.array([1, 1, 2, 2], np.float32))
        attributes = {
            "mode": "nearest",
            "nearest_mode": "floor",
            "coordinate_transformation_mode": "asymmetric",
        }
        return self.add("Resize", [x, "", scales], self._channels[x], **attributes)

    def rows(self, x: str, width: int) -> str:
        """(n, k * width, h, w) as (n, h * w * k, width)."""
        last = self.add("Transpose", [x], width, perm=[0, 2, 3, 1])
        shape = self.constant("shape", np.array([0, -1, width], np.int64))
        return self.add("Reshape", [last, shape], width)

    def finish(
        self, given: onnx.ValueInfoProto, outputs: Sequence[onnx.ValueInfoProto], opset: int
    ) -> onnx.ModelProto:
        """The model, checked."""
        graph = helper.make_graph(self._nodes, self._name, [given], outputs, self._constants)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="edgewise"
        )
        onnx.checker.check_model(model)
        return model

    def detector(self, outputs: dict[str, str], shape: list[str | int]) -> onnx.ModelProto:
        """The model on a picture; `outputs` maps a public name to a layer's output."""
        for public, inner in outputs.items():
            self.add("Identity", [inner], name=public)
        picture = helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["n", 3, "height", "width"])
        found = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs]
        return self.finish(picture, found, opset=17)


def mobilenet_ssd(rng: np.random.Generator) -> onnx.ModelProto:
    """MobileNet v1 SSD: 13 separable blocks, 4 extra stages, 6 scales of boxes.

    Backbone: Howard et al., "MobileNets", 2017, table 1; boxes: Liu et al., "SSD", 2016, with 1 x 1
    predictors, 3 boxes per cell at the first scale and 6 at the others.
    """
    graph = GraphBuilder("mobilenet-ssd", rng)
    x = graph.conv("picture", 32, 3, 2, act="relu6")
    width, scales = 32, []
    wide = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for block, (channels, stride) in enumerate(wide, start=1):
        x = graph.conv(x, width, 3, stride, depthwise=True, act="relu6")
        x = graph.conv(x, channels, 1, act="relu6")
        width = channels
        if block in (11, 13):
            scales.append(x)
    for squeezed, channels in ((256, 512), (128, 256), (128, 256), (64, 128)):
        x = graph.conv(graph.conv(x, squeezed, 1, act="relu6"), channels, 3, 2, act="relu6")
        scales.append(x)
    boxes, scores = [], []
    for k, scale in enumerate(scales):
        anchors = 3 if k == 0 else 6
        boxes.append(graph.rows(graph.conv(scale, anchors * 4, 1, act=""), 4))
        scores.append(graph.rows(graph.conv(scale, anchors * SSD_CLASSES, 1, act=""), SSD_CLASSES))
    all_scores = graph.add("Sigmoid", [graph.add("Concat", scores, SSD_CLASSES, axis=1)], SSD_CLASSES)
    outputs = {"boxes": graph.add("Concat", boxes, 4, axis=1), "scores": all_scores}
    return graph.detector(outputs, ["n", "boxes", "values"])


def tiny_yolov2(rng: np.random.Generator) -> onnx.ModelProto:
    """Tiny YOLOv2 for COCO: nine convolutions, six poolings (Redmon and Farhadi, "YOLO9000", 2017)."""
    graph = GraphBuilder("tiny-yolov2", rng)
    x = "picture"
    for channels in (16, 32, 64, 128, 256):
        x = graph.pool(graph.conv(x, channels, 3))
    x = graph.pool(graph.conv(x, 512, 3), stride=1)
    x = graph.conv(graph.conv(x, 1024, 3), 512, 3)
    x = graph.conv(x, YOLO2_ANCHORS * (COCO_CLASSES + 5), 1, act="")
    return graph.detector({"grid": x}, ["n", "values", "rows", "columns"])


def yolov3(rng: np.random.Generator) -> onnx.ModelProto:
    """YOLOv3: Darknet-53 and three scales of boxes (Redmon and Farhadi, "YOLOv3", 2018)."""
    graph = GraphBuilder("yolov3", rng)
    x = graph.conv("picture", 32, 3)
    stages = []
    for channels, blocks in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        x = graph.conv(x, channels, 3, 2)
        for _ in range(blocks):
            x = graph.plus(x, graph.conv(graph.conv(x, channels // 2, 1), channels, 3))
        stages.append(x)
    outputs = {}
    for name, channels, stage in (
        ("large", 512, None),
        ("medium", 256, stages[3]),
        ("small", 128, stages[2]),
    ):
        if stage is not None:
            x = graph.beside(graph.doubled(graph.conv(x, channels, 1)), stage)
        for _ in range(2):
            x = graph.conv(graph.conv(x, channels, 1), channels * 2, 3)
        x = graph.conv(x, channels, 1)
        values = YOLO_ANCHORS_PER_SCALE * (COCO_CLASSES + 5)
        outputs[name] = graph.conv(graph.conv(x, channels * 2, 3), values, 1, act="")
    return graph.detector(outputs, ["n", "values", "rows", "columns"])


BUILDERS: dict[str, Callable[[np.random.Generator], onnx.ModelProto]] = {
    "mobilenet-ssd-300": mobilenet_ssd,
    "tiny-yolov2-416": tiny_yolov2,
    "yolov3-416": yolov3,
}

PUBLISHED = {
    "mobilenet-ssd-300": Published(
        side=300,
        gmacs=1.2,
        parameters=6.8e6,
        ap50=34.3,
        source="Howard et al., MobileNets, 2017, table 13 (AP 19.3); AP50 by 41.2/23.2 of SSD300",
    ),
    "tiny-yolov2-416": Published(
        side=416,
        gmacs=5.41 / 2,
        parameters=11.2e6,
        ap50=23.7,
        source="Redmon and Farhadi, YOLO9000, 2017, and the table published with its code",
    ),
    "yolov3-416": Published(
        side=416,
        gmacs=65.86 / 2,
        parameters=61.9e6,
        ap50=55.3,
        source="Redmon and Farhadi, YOLOv3, 2018, and the table published with its code",
    ),
}


def write(name: str, folder: Path, seed: int = 0) -> Path:
    """Build the graph called `name` (a key of `BUILDERS`) into `folder`, once; returns the file.

    Raises:
        ProfileError: the file cannot be written.
    """
    file = folder / f"{name}-seed{seed}.onnx"
    if file.exists():
        return file
    part = file.with_suffix(f".{os.getpid()}")  # another process may build it too
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(BUILDERS[name](np.random.default_rng(seed)).SerializeToString())
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        reason = error.strerror or error
        raise ProfileError(
            f"{file}: cannot be written: {reason}; set EDGEWISE_CACHE to a folder with room"
        ) from None
    return file
