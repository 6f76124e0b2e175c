"""The Open Inference Protocol, free of any transport and over gRPC; what clients of Triton ask beyond it."""
