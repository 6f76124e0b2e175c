"""Many worlds in step, slot by slot: deferrable jobs, and requests and replicas of services."""
