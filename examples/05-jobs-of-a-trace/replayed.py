"""Jobs of a log as jobs of a scenario, and three policies side by side on them."""

import csv
from pathlib import Path

import yaml

import edgewise as ew

PATIENCE_S = 3600  # the log does not say how long a job could have waited

with Path("jobs.csv").open(newline="") as log:
    rows = list(csv.DictReader(log))

scenario = yaml.safe_load(Path("nodes.yaml").read_text())
scenario["jobs"] = {
    "slot_s": 60,
    "submitted": [
        {
            "name": f"job-{number}",
            "cores": int(row["cores"]),
            "memory_bytes": f"{row['memory_gb']}GB",
            "duration_s": int(row["runtime_s"]),
            "submitted_s": int(row["submitted_s"]),
            "earliest_s": int(row["submitted_s"]),
            "latest_s": int(row["submitted_s"]) + PATIENCE_S,
        }
        for number, row in enumerate(rows)
    ],
}
Path("replayed.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))

print(ew.compare("replayed.yaml", {"defer": ["fifo", "sjf", "tetris"]}, seeds=[0]))
