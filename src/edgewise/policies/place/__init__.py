"""Placement policies: tasks of streaming jobs to nodes, flows to paths and bandwidth."""
