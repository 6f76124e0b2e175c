"""Streams on workers with queues: the compiled loop, its tables, and policies rolled forward on it."""
