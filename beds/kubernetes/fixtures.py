"""Fixtures for tests on a cluster: pytest_plugins = ["beds.kubernetes.fixtures"]."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beds.kubernetes.build import check_machine, programs
from beds.kubernetes.cluster import Cluster
from beds.processes import BedError


@pytest.fixture(scope="session")
def kubernetes() -> None:
    """Skip, with the reason, where a cluster cannot be had."""
    try:
        check_machine()
        programs()
    except BedError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cluster(kubernetes: None) -> Iterator[Cluster]:
    """Three nodes at two sites, and two users without rights; shared by the tests of a module."""
    with Cluster(sites={"west": 2, "east": 1}, users={"alice": [], "bob": []}) as made:
        yield made
