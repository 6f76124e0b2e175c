"""Fixtures of the bed's tests that are about edgewise."""

from __future__ import annotations

import pytest

from beds.kubernetes.images import Image, of_edgewise


@pytest.fixture(scope="session")
def edgewise_image(kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """This repository's wheel as an image, made once for all modules; `Cluster.load` gives it to nodes."""
    pytest.importorskip("numba", reason="the image is made of this environment's wheel: pip install -e .")
    return of_edgewise(tmp_path_factory.mktemp("image"))
