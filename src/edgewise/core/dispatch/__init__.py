"""Dispatch: streams and requests → workers and replicas, in milliseconds; cores, views and contracts."""
