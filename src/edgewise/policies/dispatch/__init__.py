"""Dispatch policies; importing this package registers those of streams, `requests` those of requests."""

from edgewise.policies.dispatch import (
    aset as aset,
    meta as meta,
    static as static,
)
