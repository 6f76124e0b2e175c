"""Dispatch policies; importing this package registers them."""

from edgewise.policies.dispatch import static

__all__ = ["static"]
