"""Learning: environments over the simulators, trainers, export to ONNX. Only here is torch imported."""
