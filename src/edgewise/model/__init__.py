"""What exists: resources, topology, catalog, work, scenario. Frozen data and equations; no I/O."""
