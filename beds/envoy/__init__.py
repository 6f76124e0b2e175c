"""Envoy with an endpoint picker and inference servers, on loopback and without a cluster."""

from beds.envoy.bed import Bed
from beds.envoy.settings import Body, Settings

__all__ = ["Bed", "Body", "Settings"]
