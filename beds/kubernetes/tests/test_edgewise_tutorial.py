"""The tutorial's commands, as they stand there, on a cluster that has nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from beds.go import built
from beds.kubernetes import Cluster
from beds.kubernetes.build import programs as kubernetes_programs
from beds.kubernetes.images import PYTHON
from beds.kubernetes.tests.released import image, told_why  # noqa: F401
from beds.processes import REPOSITORY

PAGE = REPOSITORY / "docs/tutorials/kubernetes.md"
BLOCKS = re.compile(r"^```(sh|yaml)\n(?:# ([\w.-]+\.yaml)\n)?(.*?)^```$", re.DOTALL | re.MULTILINE)
IMAGE = "registry.example/edgewise:1"


@pytest.fixture
def tools(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """What the reader has: edgewise, kubectl and helm, and who they speak to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    helm = built("helm.sh/helm/v3", "v3.22.0", "cmd/helm")
    for name, program in (("helm", helm), ("kubectl", kubernetes_programs() / "kubectl")):
        (folder / name).symlink_to(program)
    path = os.pathsep.join((str(folder), str(Path(sys.executable).parent), os.environ["PATH"]))
    folders = {f"HELM_{each}_HOME": str(tmp_path / each) for each in ("CACHE", "CONFIG", "DATA")}
    return os.environ | folders | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}


def test_from_an_empty_cluster_to_a_first_answer_and_back(cluster, image, tools, tmp_path):  # noqa: F811
    cluster.load(image)
    (tmp_path / "charts").symlink_to(REPOSITORY / "charts")
    tools["IMAGE"] = image.name  # `export` of a block ends with the block
    ran, said = 0, ""
    for language, title, text in BLOCKS.findall(PAGE.read_text()):
        text = text.replace(IMAGE, image.name).replace("[python,", f"[{PYTHON},")  # as the bed's image has it
        if language == "yaml":
            (tmp_path / title).write_text(text)
            continue
        done = subprocess.run(
            ["bash", "-e", "-x", "-c", text], cwd=tmp_path, env=tools, capture_output=True, text=True,
            timeout=900,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        if done.returncode:
            told_why(cluster, lambda: False, 0.0, text)
        assert done.returncode == 0, text
        ran, said = ran + 1, said + done.stdout
    assert ran >= 9
    assert "Phase:          Succeeded" in said and "all is well" in said
    assert "Deferred" in said and "Started" in said
    cluster.wait(lambda: cluster.find("namespace", "edgewise") is None, 60, "nothing to be left")
