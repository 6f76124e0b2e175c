"""The ONNX file of a variant's workers: the user's, the scenario's, or a stand-in.

A stand-in returns its input; that of a service whose answers have a size, so many bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgewise.errors import ScenarioError
from edgewise.model.services import Services
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


def answering(
    kinds: Mapping[str, dict[str, Any]], services: Services, folder: Path
) -> dict[str, dict[str, Any]]:
    """What replicas of each service need to run, by its name: stand-ins answer as many bytes as it says."""
    found = {name: kinds[name] for name in services.names}
    for name, size_bytes in zip(services.names, services.simulated_answer_bytes.tolist(), strict=True):
        if Path(found[name]["file"]).name == STAND_IN and size_bytes:
            file = folder / f"{size_bytes:.0f}-bytes-{STAND_IN}"
            write_stand_in(file, size_bytes)
            found[name] = found[name] | {"file": str(file.resolve())}
    return found


def write_stand_in(file: Path, answer_bytes: float | None = None) -> None:
    """A network that returns its input, or as many bytes as are said: x FP32 [n, size] → y."""
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "size"]) for name in "xy")
    nodes, constants = [helper.make_node("Identity", ["x"], ["y"])], []
    if answer_bytes is not None:
        width = max(round(answer_bytes / 4), 1)
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", width])
        constants = [
            helper.make_tensor("second", TensorProto.INT64, [1], [1]),
            helper.make_tensor("shape", TensorProto.INT64, [2], [1, width]),
        ]
        nodes = [
            helper.make_node("ReduceSum", ["x", "second"], ["sum"]),
            helper.make_node("Expand", ["sum", "shape"], ["y"]),
        ]
    graph = helper.make_graph(nodes, "stand-in", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    disk.write_whole(file, model.SerializeToString())
