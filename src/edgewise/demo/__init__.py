"""`edgewise demo`: three tiers live on this machine under three policies, beside their simulation."""

from edgewise.demo.live import run
from edgewise.demo.outcome import as_json

__all__ = ["as_json", "run"]
