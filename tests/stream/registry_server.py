"""A schema registry's HTTP interface, as far as streams use it."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro

USER = "streamer:s3cret"


class Registry:
    """Subjects, and the ids of their schemas. With `guarded` it wants its user."""

    def __init__(self) -> None:
        self.schemas: list[Any] = []
        self.subjects: dict[str, int] = {}
        self.guarded = False
        self.asked: list[str] = []
        self.url = ""

    def add(self, subject: str, schema: Any) -> int:
        """The id of a new schema, now the newest of the subject."""
        self.schemas.append(schema)
        self.subjects[subject] = len(self.schemas)
        return len(self.schemas)

    def message(self, number: int, record: Any) -> bytes:
        """A record in Confluent's form."""
        return struct.pack(">bI", 0, number) + plain(self.schemas[number - 1], record)

    def latest(self, subject: str, user: str = "") -> str:
        """The address of the newest schema."""
        scheme, _, host = self.url.partition("://")
        return f"{scheme}://{user + '@' if user else ''}{host}/subjects/{subject}/versions/latest"

    def respond(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, {"schema": json.dumps(self.schemas[int(number) - 1])}
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                number = self.subjects[subject]
                found = {"subject": subject, "version": 1, "id": number}
                return 200, {**found, "schema": json.dumps(self.schemas[number - 1])}
            case ["subjects", "broken", *_]:
                return 500, {"error_code": 50001}
        return 404, {"error_code": 40403}


def plain(schema: Any, record: Any) -> bytes:
    """A record of Avro without a header."""
    written = BytesIO()
    fastavro.schemaless_writer(written, schema, record)
    return written.getvalue()


@contextmanager
def registry() -> Iterator[Registry]:
    """One on a free port of this machine."""
    state = Registry()
    wanted = "Basic " + base64.b64encode(USER.encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            allowed = not state.guarded or self.headers.get("Authorization") == wanted
            status, body = state.respond(self.path) if allowed else (401, {"error_code": 401})
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_words: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
