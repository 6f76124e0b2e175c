"""Dispatch policies; importing this package registers them."""

from edgewise.policies.dispatch import balanced, static

__all__ = ["balanced", "static"]
