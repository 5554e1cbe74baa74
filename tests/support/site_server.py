"""Serves the built site on the loopback interface, compressed as web hosts do, and counts what is transferred."""

import gzip
from collections import Counter
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

TYPES = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
         ".json": "application/json", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".zip": "application/zip",
         ".whl": "application/octet-stream", ".txt": "text/plain",
         ".webmanifest": "application/manifest+json"}  # fmt: skip


@cache
def compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), 6)


class SiteServer:
    """A context manager.

    `sent` has the compressed bytes and `answered` the answers by path; `missing` names files that are not served.
    Another `site` is a new version; `policy` is a Content-Security-Policy that the host adds.
    """

    def __init__(self, site: Path) -> None:
        self.site = site
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.down = False
        self.policy = ""
        self.missing: set[str] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.partition("?")[0].strip("/") or "index.html"
                path = server.site / name
                if server.down or name in server.missing or not path.is_file():
                    return self.send_error(503 if server.down else 404)
                data = compressed(path)
                server.sent[name] += len(data)
                server.answered[name] += 1
                self.send_response(200)
                self.send_header("Content-Type", TYPES[path.suffix])
                self.send_header("Content-Encoding", "gzip")
                self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
                self.send_header("Content-Length", str(len(data)))
                if server.policy:
                    self.send_header("Content-Security-Policy", server.policy)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *given: object) -> None:
                """Nothing is logged."""

        for path in site.rglob("*"):
            if path.is_file() and path.suffix in TYPES:
                compressed(path)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
