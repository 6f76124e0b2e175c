"""The ONNX file of a variant's workers: the user's, the scenario's, or a stand-in that returns its input."""

from pathlib import Path

from edgewise.errors import ScenarioError
from edgewise.model.topology import Variant
from edgewise.runtime import disk
from edgewise.runtime.controller.graphs import FOLDER as GRAPHS
from edgewise.runtime.worker.pieces import SUFFIX, WHOLE

STAND_IN = "stand-in.onnx"


def model_file(variant: Variant, models: Path | None, folder: Path) -> Path:
    """The ONNX file of a variant: from `models`, its own, or a stand-in."""
    for name in (f"{variant.name}{SUFFIX}/{WHOLE}", f"{variant.name}.onnx", f"{variant.model}.onnx"):
        for place in (models, folder / GRAPHS):
            if place is not None and (place / name).is_file():
                return (place / name).resolve()
    if variant.file is not None:
        if not Path(variant.file).is_file():
            raise ScenarioError(f"variants.{variant.name}.file: no file {variant.file}; correct it")
        return Path(variant.file).resolve()
    file = folder / STAND_IN
    if not file.is_file():
        write_stand_in(file)
    return file.resolve()


def write_stand_in(file: Path) -> None:
    """A network that returns its input: x FP32 [n, size] → y."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "size"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "stand-in", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    disk.write_whole(file, model.SerializeToString())
