"""An S3 server for benchmarks: moto in a process of its own, behind a proxy that delays and counts each request."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from typing_extensions import Self

KINDS = ("GET", "LIST", "HEAD", "PUT", "COPY", "POST", "DELETE")
_START_SECONDS = 30
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


def kind_of(method: str, target: str, headers: dict[str, str]) -> str:
    """The kind of an S3 request: one of KINDS. A LIST is a GET of a bucket, a COPY a PUT that names its source."""
    path, _, query = target.partition("?")
    if method == "GET" and ("list-type=" in query or not path.strip("/").partition("/")[2]):
        return "LIST"
    return "COPY" if method == "PUT" and "x-amz-copy-source" in headers else method


class ObjectStore:
    """The server and its proxy, while entered. `requests` counts what passed, by kind; each waits `delay` seconds."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.delay = 0.0
        self._lock = threading.Lock()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                break
            if self._server.poll() is not None or time.monotonic() > until:
                self._server.kill()
                raise RuntimeError("moto's S3 server did not start")
            time.sleep(0.1)
        handler = type("Handler", (_Handler,), {"store": self, "upstream": self._port})
        self._proxy = _Proxy(("127.0.0.1", 0), handler)
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()
        self._server.kill()
        self._server.wait()

    @property
    def options(self) -> dict[str, str]:
        """How to reach the proxy, by Hadoop's names."""
        return {
            "fs.s3a.endpoint": f"http://127.0.0.1:{self._proxy.server_address[1]}",
            "fs.s3a.access.key": "key",
            "fs.s3a.secret.key": "secret",
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
        }

    def make_bucket(self, name: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("PUT", f"/{urllib.parse.quote(name)}")
        answer = connection.getresponse()
        connection.close()
        if answer.status != 200:
            raise RuntimeError(f"bucket {name} could not be made: {answer.status} {answer.reason}")

    def take_requests(self) -> dict[str, int]:
        """The requests since the last call, by kind."""
        with self._lock:
            found, self.requests = self.requests, Counter()
        return {kind: found[kind] for kind in KINDS if found[kind]}

    def passes(self, kind: str) -> None:
        with self._lock:
            self.requests[kind] += 1
        if self.delay:
            time.sleep(self.delay)


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients close connections when they please."""


class _Handler(BaseHTTPRequestHandler):
    """One client connection and its own connection to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    store: ObjectStore
    upstream: int

    def setup(self) -> None:
        super().setup()
        self._server = http.client.HTTPConnection("127.0.0.1", self.upstream)

    def finish(self) -> None:
        self._server.close()
        super().finish()

    def _pass_on(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.store.passes(kind_of(self.command, self.path, headers))
        body = self._body(headers)
        sent = {name: value for name, value in headers.items() if name not in _HOP_BY_HOP}
        self._server.request(self.command, self.path, body, {**sent, "content-length": str(len(body))})
        answer = self._server.getresponse()
        content = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        length = answer.getheader("content-length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on
