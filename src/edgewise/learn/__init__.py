"""Learning: environments over the simulators, trainers, and export to ONNX. The only place that imports torch."""
