"""Fixtures of live tests."""

import pytest


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Small models behind workers, a gateway and a controller, all in this process."""
    from live_system import Running  # needs gRPC, which other tests do without

    made = Running(tmp_path_factory.mktemp("models"))
    yield made
    made.close()
