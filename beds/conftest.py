"""Fixtures of the beds, for their own tests."""

pytest_plugins = ["beds.kubernetes.fixtures"]
