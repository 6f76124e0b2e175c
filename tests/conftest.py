"""Fixtures shared by all tests, and the order in which parallel workers take them."""

import os
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from durations import LONG_S, seconds

for size in ("COLUMNS", "LINES"):  # parallel workers have those of no terminal, and consoles would keep them
    os.environ.pop(size, None)
settings.register_profile("edgewise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgewise")
LEARNING = Path(__file__).with_name("learn")
LIVE = {Path(__file__).with_name(folder) for folder in ("live", "blackbox")}  # tests of a file share a system
WITHOUT_TORCH = find_spec("torch") is None


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="Only tests near to the change at hand, for a minute."
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", f"long: takes {LONG_S:g} s or more, or a live system; `make test-long`"
    )
    if config.getoption("--quick"):
        import quick

        config.pluginmanager.register(quick)


def pytest_ignore_collect(collection_path):
    return True if WITHOUT_TORCH and LEARNING in collection_path.parents else None


def pytest_terminal_summary(terminalreporter):
    if WITHOUT_TORCH:
        terminalreporter.write_line(
            "left out: tests/learn, this environment has no torch; make test-learn runs it"
        )
    if "not long" in (terminalreporter.config.option.markexpr or ""):
        terminalreporter.write_line(
            f"left out: what takes {LONG_S:g} s or more, or a live system; make test-long runs it"
        )


def pytest_collection_modifyitems(config, items):
    """Mark what is long; workers take the longest files first, so that nobody waits for one in the end."""
    for item in items:
        if seconds(item) >= LONG_S or LIVE & set(item.path.parents):
            item.add_marker("long")
    if hasattr(config, "workerinput") and not config.getoption("--quick"):
        whole_s = Counter()
        for item in items:
            whole_s[item.path] += seconds(item)
        items.sort(key=lambda item: (-whole_s[item.path], item.path))


@pytest.fixture
def make_core():
    """Make cores whose invariants are checked when the test ends."""
    from edgewise.core.dispatch.streams import DispatchCore

    made = []

    def make(*args, **kwargs):
        made.append(DispatchCore(*args, **kwargs))
        return made[-1]

    yield make
    for core in made:
        core.validate()
