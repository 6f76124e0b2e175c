"""A server of the Open Inference Protocol that is not ours, of the standard library: it returns its input.

    python open_inference_server.py PORT MODEL [HOST]

It takes no binary tensors and keeps no connections. `GET /seen` says how many queries it has had, and how
many requests showed it a token.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TAKES_S = 0.003


class Server(ThreadingHTTPServer):
    """Serves one model.

    Args:
        host, port: 0 takes a free port.
        model: its name.
    """

    daemon_threads = True

    def __init__(self, host, port, model):
        super().__init__((host, port), Handler)
        self.model, self.counts = model, {"queries": 0, "tokens": 0}
        self.lock = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if "authorization" in self.headers:
            self.count("tokens")
        model = f"/v2/models/{self.server.model}"
        known = {
            "/v2": {"name": "plain", "version": "0", "extensions": []},
            "/v2/health/live": {"live": True},
            "/v2/health/ready": {"ready": True},
            model: {"name": self.server.model, "inputs": [], "outputs": []},
            f"{model}/ready": {"name": self.server.model, "ready": True},
            "/seen": self.server.counts,
        }
        self.answer(200 if self.path in known else 404, known.get(self.path, {"error": "no such path"}))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "authorization" in self.headers:
            self.count("tokens")
        if self.path != f"/v2/models/{self.server.model}/infer":
            return self.answer(404, {"error": "no such model"})
        self.count("queries")
        time.sleep(TAKES_S)
        kept = ("name", "shape", "datatype", "data")
        outputs = [{key: tensor[key] for key in kept} for tensor in asked["inputs"]]
        return self.answer(
            200, {"model_name": self.server.model, "id": asked.get("id", "-"), "outputs": outputs}
        )

    def count(self, what):
        with self.server.lock:
            self.server.counts[what] += 1

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    port, model, *host = sys.argv[1:]
    Server(host[0] if host else "127.0.0.1", int(port), model).serve_forever()
