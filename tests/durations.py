"""How long tests take, as it was measured once: what begins first, what fits into a minute, what is long.

`python tests/durations.py REPORT.xml` brings `durations.json` up to date after `pytest --junit-xml …`.
"""

import json
import sys
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

FILE = Path(__file__).with_name("durations.json")
SHORT_S = 0.3  # tests that take less are not listed
LONG_S = 2.0  # those that take as much wait for `make test-long`


@cache
def known():
    return json.loads(FILE.read_text())


def seconds(item):
    """How long a test will take; one that is not listed takes next to nothing."""
    return known().get(item.nodeid, 0.03)


def write(report):
    """What the report has of a file takes the place of all that was known of it."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tests = found.setdefault(f"{case.get('classname').replace('.', '/')}.py", {})
        tests[case.get("name")] = round(float(case.get("time", 0)), 1)
    kept = {test: took_s for test, took_s in known().items() if test.split("::")[0] not in found}
    for file, tests in found.items():
        kept |= {f"{file}::{name}": took_s for name, took_s in tests.items() if took_s >= SHORT_S}
    FILE.write_text(json.dumps(kept, indent=0, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
