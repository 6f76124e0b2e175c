"""Measure variants on this machine; build network graphs; count what a graph's operators cost.

Everything here but `fit` and `queueing` needs the extra `live` (onnx, onnxruntime).
"""
