"""A worker: an Open Inference Protocol server in front of ONNX Runtime."""
