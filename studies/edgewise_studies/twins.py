"""Shipped scenarios as the papers have them, by names of their own; what ships is as live.

KaiS: one gateway sees all and sends one request per site and slot. OSDEC: jobs have all nodes as one pool.
"""

from collections.abc import Mapping
from typing import Any

KAIS = {"services.gateways": "one"}
OSDEC = {"jobs.room": "pooled"}
PUBLISHED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "kais-demo-published": ("kais-demo", KAIS),
    "edge-cloud-published": ("edge-cloud", KAIS),
    "edge-cloud-complex-published": ("edge-cloud-complex", KAIS),
    "scarce-published": ("scarce", KAIS),
    "scarce-complex-published": ("scarce-complex", KAIS),
    "deferrable-published": ("deferrable", OSDEC),
}
