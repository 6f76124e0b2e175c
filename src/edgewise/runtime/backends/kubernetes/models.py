"""What pods ask the controller for, who shows the token of the system's parts: models by their SHA-256.

Gateways that are pods get what they read of the store, and hand in what they write; see `AboutGateways`.
"""

import hmac
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes.gateways import OF_GATEWAYS, AboutGateways
from edgewise.runtime.backends.kubernetes.manifest import sha256_of

WAIT_S = 60.0  # for who asks and does not take what comes
ALL_READY = "/ready"  # where the kubelet asks
MOST_HANDED_BYTES = 64 * 2**20  # that a gateway hands in at once


class ModelServer:
    """Serves files that it was told of.

    Args:
        host: address of this machine; `port` 0 takes a free one.
        token: that pods show.
        gateways: answers those that are pods; None: there are none.
    Raises:
        RunError: nothing can listen there.
    """

    def __init__(self, host: str, port: int, token: str, gateways: AboutGateways | None = None) -> None:
        self._files: dict[str, Path] = {}
        self._over = threading.Event()
        self._known: dict[tuple[str, int, int], str] = {}
        try:
            self._server = ThreadingHTTPServer(
                (host, port), _handler(self._files, f"Bearer {token}", self._over, gateways)
            )
        except OSError as error:
            raise RunError(
                f"--address {host}: nothing can listen at port {port} there ({error}); give an address of "
                "this machine that pods reach"
            ) from error
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="models", daemon=True).start()

    def add(self, file: Path) -> str:
        """Give a file from now on; its SHA-256.

        Raises:
            OSError: it cannot be read.
        """
        seen = file.stat()
        what = str(file), seen.st_size, seen.st_mtime_ns
        if what not in self._known:
            self._known[what] = sha256_of(file)
        self._files[self._known[what]] = file
        return self._known[what]

    def close(self) -> None:
        """Give nothing any more, to those who are connected either."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()


def _handler(
    files: dict[str, Path], shown: str, over: threading.Event, gateways: AboutGateways | None
) -> type[BaseHTTPRequestHandler]:
    class Gives(BaseHTTPRequestHandler):
        timeout = WAIT_S
        protocol_version = "HTTP/1.1"  # gateways ask again and again

        def parse_request(self) -> bool:
            """Leave a question that comes after the end unanswered."""
            self.close_connection = over.is_set()
            return not over.is_set() and super().parse_request()

        def do_GET(self) -> None:
            """Answer with a file, 401 without the token, 404 where there is none of that digest."""
            if gateways is not None and self.path == ALL_READY:
                return self._say(200 if gateways.ready() else 503, b"")
            if not self._shows():
                return self.send_error(401)
            if gateways is not None and self.path.startswith(OF_GATEWAYS):
                status, content, tag = gateways.said(self.path, self.headers.get("If-None-Match", ""))
                return self._say(status, content, tag)
            file = files.get(self.path.removeprefix("/"))
            if file is None or not file.is_file():
                return self.send_error(404)
            with file.open("rb") as model:
                self.send_response(200)
                self.send_header("Content-Length", str(file.stat().st_size))
                self.end_headers()
                shutil.copyfileobj(model, self.wfile)

        def do_POST(self) -> None:
            """Take in what a gateway hands in."""
            size = self.headers.get("Content-Length", "")
            if not self._shows():
                return self.send_error(401)
            if gateways is None or not self.path.startswith(OF_GATEWAYS):
                return self.send_error(404)
            if not size.isdecimal() or int(size) > MOST_HANDED_BYTES:
                return self.send_error(413)
            self._say(gateways.taken_in(self.path, self.rfile.read(int(size))), b"")

        def _shows(self) -> bool:
            return hmac.compare_digest(self.headers.get("Authorization", "").encode(), shown.encode())

        def _say(self, status: int, content: bytes, tag: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is said of what is given."""

    return Gives
