"""Measure variants on this machine; build network graphs; count what a graph's operators cost.

Everything here but `law` needs the extra `live` (onnx, onnxruntime).
"""
