"""edgewise: schedule inference and batch work over edge and cloud."""

__version__ = "0.1.0"
