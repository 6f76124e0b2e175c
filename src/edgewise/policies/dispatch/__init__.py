"""Dispatch policies; importing this package registers those of streams, `requests` those of requests."""

from edgewise.policies.dispatch import aset, balanced, bandit, meta, static

__all__ = ["aset", "balanced", "bandit", "meta", "static"]
