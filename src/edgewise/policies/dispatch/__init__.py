"""Dispatch policies; importing this package registers them."""

from edgewise.policies.dispatch import balanced, bandit, meta, static

__all__ = ["balanced", "bandit", "meta", "static"]
