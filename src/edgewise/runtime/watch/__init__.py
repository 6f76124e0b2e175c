"""What is seen of a live system: metrics, traces, logs, faults of its policies."""
