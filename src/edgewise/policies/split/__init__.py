"""Split DAG queries over servers with Nona: contraction, placements, certified optimum, schedulers."""
