"""What pages of the documentation take for granted that their reader has: files beside their commands."""

import gzip
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from docs_commands import ROOT

MINE = '''
from edgewise.policies.{family} import {base}


class {name}({base}):
    """A policy of the reader's own."""
'''


def own_policies(folder: Path) -> None:
    """A policy for streams, and one for jobs, in one file."""
    near = MINE.format(family="dispatch.static", base="Closest", name="Mine")
    patient = MINE.format(family="defer.rules", base="Fifo", name="Patient")
    (folder / "mine.py").write_text(near + patient)


def access_log(folder: Path) -> None:
    """One that nginx wrote, packed as it is kept."""
    written = (ROOT / "tests/unit/workloads/foreign/nginx.log").read_bytes()
    (folder / "access.log.gz").write_bytes(gzip.compress(written))


def network(folder: Path) -> None:
    """One of one layer, for pictures of any size, as many as one likes."""
    weights = onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "w")
    made = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], strides=[4, 4])],
        "one layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "side", "side"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(made, opset_imports=[opset], ir_version=9), folder / "my-model.onnx")


def town(folder: Path) -> None:
    """The network in RayCloudSim's format, where the page has it."""
    file = "tests/studies/raycloudsim/town.json"
    (folder / file).parent.mkdir(parents=True)
    shutil.copy(ROOT / file, folder / file)


def cameras(folder: Path) -> None:
    """What the page itself shows."""
    page = (ROOT / "docs/tutorials/kubernetes.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"^```yaml\n# ([\w.-]+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        (folder / name).write_text(text)


FILES: dict[str, Callable[[Path], None]] = {
    "benchmark.md": own_policies,
    "howto/traffic.md": access_log,
    "pipelines.md": town,
    "tutorials/kubernetes.md": cameras,
    "profiling.md": network,
}
"""By page, what lays them into the folder in which its commands run."""
