"""Fixtures shared by all tests."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("edgewise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgewise")


@pytest.fixture
def make_core():
    """Make cores whose invariants are checked when the test ends."""
    from edgewise.core.dispatch import DispatchCore

    made = []

    def make(*args, **kwargs):
        made.append(DispatchCore(*args, **kwargs))
        return made[-1]

    yield make
    for core in made:
        core.validate()
