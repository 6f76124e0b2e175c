"""Dispatch policies; importing this package registers those of streams, `requests` those of requests."""

from edgewise.policies.dispatch import balanced, bandit, meta, static

__all__ = ["balanced", "bandit", "meta", "static"]
