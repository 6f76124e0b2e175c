"""Gives pods their models, by SHA-256, to who shows the token of the system's parts."""

import hmac
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from edgewise.errors import RunError
from edgewise.runtime.backends.kubernetes.manifest import sha256_of

WAIT_S = 60.0  # for who asks and does not take what comes


class ModelServer:
    """Serves files that it was told of.

    Args:
        host: address of this machine; `port` 0 takes a free one.
        token: that pods show.
    Raises:
        RunError: nothing can listen there.
    """

    def __init__(self, host: str, port: int, token: str) -> None:
        self._files: dict[str, Path] = {}
        self._known: dict[tuple[str, int, int], str] = {}
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(self._files, f"Bearer {token}"))
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
        """Give nothing any more."""
        self._server.shutdown()
        self._server.server_close()


def _handler(files: dict[str, Path], shown: str) -> type[BaseHTTPRequestHandler]:
    class Gives(BaseHTTPRequestHandler):
        timeout = WAIT_S

        def do_GET(self) -> None:
            """Answer with a file, 401 without the token, 404 where there is none of that digest."""
            if not hmac.compare_digest(self.headers.get("Authorization", "").encode(), shown.encode()):
                return self.send_error(401)
            file = files.get(self.path.removeprefix("/"))
            if file is None or not file.is_file():
                return self.send_error(404)
            with file.open("rb") as content:
                self.send_response(200)
                self.send_header("Content-Length", str(file.stat().st_size))
                self.end_headers()
                shutil.copyfileobj(content, self.wfile)

        def log_message(self, *_: object) -> None:
            """Nothing is said of what is given."""

    return Gives
