"""All kinds of work of a scenario on the same nodes, on one clock."""
