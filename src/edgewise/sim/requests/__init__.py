"""Requests of services in one run, event by event: sites with a core each, replicas, and what is told."""
