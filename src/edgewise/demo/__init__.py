"""The live part of `edgewise demo`: real pictures, a real network, streams that are bound or refused."""

from edgewise.demo.live import run

__all__ = ["run"]
