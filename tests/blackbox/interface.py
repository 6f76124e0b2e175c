"""What an interface says of itself at /openapi.json, as requests that would change something."""

import re
from dataclasses import dataclass

from outside import ask

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
# One body for all: whatever is let in finds what it needs, and does something that is seen.
BODY = {
    "policy": "least-impedance", "up": False, "wanted": False, "url": "http://127.0.0.1:9", "model": "none",
    "key": "stolen", "command": ["true"], "folder": "/", "cores": 1, "memory_bytes": 0, "duration_s": 60,
    "earliest_s": 0, "latest_s": 4e9, "priority": 0, "when_evicted": "pause", "live": {},
    "task": "detection", "rate_qps": 1, "size_bytes": 1000, "deadline_s": 5,
}  # fmt: skip
# To everyone, as docs/access.md says; "/" is a page without any data.
OPEN = {"/", "/v2/health/live", "/v2/health/ready", "/openapi.json"}


@dataclass(frozen=True)
class Door:
    method: str
    template: str
    path: str

    @property
    def reads(self):
        return self.method == "GET"

    def __str__(self):
        return f"{self.method} {self.template}"


def doors(url, **names):
    """Every method and path that is served there and needs a token; `names` fill in what stands in braces."""
    found = []
    for template, methods in ask(url, "GET", "/openapi.json").json()["paths"].items():
        missing = set(re.findall(r"{(\w+)}", template)) - set(names)
        assert not missing, f"{template}: the tests need to know one that is there: {missing}"
        if template not in OPEN:
            path = template.format(**names)
            found += [Door(method.upper(), template, path) for method in methods if method in METHODS]
    assert found
    return found
