"""What clients ask for: generated streams and recorded ones."""

from edgewise.workloads.generate import generate_streams, read_streams_csv

__all__ = ["generate_streams", "read_streams_csv"]
