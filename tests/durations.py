"""How long tests take, as it was measured once: what is begun first, and what fits into a minute.

`python tests/durations.py REPORT.xml` writes `durations.json` anew from a run with `--junit-xml REPORT.xml`.
"""

import json
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

FILE = Path(__file__).with_name("durations.json")
SHORT_S = 0.3  # tests that take less are not listed


@cache
def known():
    return json.loads(FILE.read_text())


def seconds(item):
    """How long a test will take; one that is not listed takes next to nothing."""
    return known().get(item.nodeid, 0.03)


def write(report):
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        if (took_s := float(case.get("time", 0))) >= SHORT_S:
            found[f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"] = round(took_s, 1)
    FILE.write_text(json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
