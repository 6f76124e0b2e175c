"""From a scenario to runs to tables and results: a file for each kind of work, and what they share."""
