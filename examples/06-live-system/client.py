"""A camera: opens a stream at the gateway, asks ten times, closes it. `python client.py [ADDRESS]`"""

import json
import sys
import time
import urllib.request

GATEWAY = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"


def ask(path, body=None, method="POST", **headers):
    """The answer to one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
    return json.loads(text) if text else None


needs = {"task": "persons", "rate_qps": 5, "size_bytes": 30_000, "deadline_s": 0.2, "min_accuracy": 40}
stream = ask("/v1/streams", needs)["stream"]
tensor = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1.0, 2.0, 3.0]}
for _ in range(10):
    began = time.monotonic()
    answer = ask("/v2/models/persons/infer", {"inputs": [tensor]}, **{"edgewise-stream": str(stream)})
    took_ms = 1000 * (time.monotonic() - began)
    print(f"{answer['parameters']['edgewise_worker']} answered after {took_ms:.0f} ms")
    time.sleep(0.2)
ask(f"/v1/streams/{stream}", method="DELETE")
