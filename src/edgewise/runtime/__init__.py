"""Live: the Open Inference Protocol, workers, gateways. The core decides; this carries out."""
