"""Fixtures of the bed's tests that are about edgewise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beds.kubernetes.images import PYTHON, Image, of_edgewise

FOUND = {"PATH": f"{Path(PYTHON).parent}:/bin:/usr/bin"}  # `python` is found, as in images that people use


@pytest.fixture(scope="session")
def edgewise_image(kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """This repository's wheel as an image, made once for all modules; `Cluster.load` gives it to nodes."""
    pytest.importorskip("numba", reason="the image is made of this environment's wheel: pip install -e .")
    made = of_edgewise(tmp_path_factory.mktemp("image"))
    return replace(made, environment={**made.environment, **FOUND})
