"""Who asks a live system: clients of its streams and services, and what records and plays their traffic."""
