"""`edgewise demo`: three tiers live on this machine under three policies, beside their simulation."""

from edgewise.demo.live import run

__all__ = ["run"]
