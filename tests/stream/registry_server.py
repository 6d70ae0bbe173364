"""A schema registry's HTTP interface, as far as streams use it."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from types import MappingProxyType
from typing import Any

import fastavro

USER = "streamer:s3cret"


class Registry:
    """Subjects, and the ids of their schemas. With `guarded` it wants its user."""

    def __init__(self) -> None:
        self.schemas: list[Any] = []
        self.more: dict[int, dict[str, Any]] = {}  # what else is stated about a schema, by its id
        self.subjects: dict[str, int] = {}
        self.guarded = False
        self.asked: list[str] = []
        self.url = ""

    def add(self, subject: str, schema: Any, kind: str = "", **more: Any) -> int:
        """The id of a new schema, now the newest of the subject; one with a `kind` is a text."""
        self.schemas.append(schema)
        number = self.subjects[subject] = len(self.schemas)
        if kind:
            self.more[number] = {"schemaType": kind, **more}
        return number

    def add_file(self, subject: str, file: Any, imports: Mapping[str, str] = MappingProxyType({})) -> int:
        """A file of Protobuf, and the subjects of those that it imports."""
        text = base64.b64encode(file.SerializeToString()).decode()
        references = [{"name": name, "subject": each, "version": 1} for name, each in imports.items()]
        return self.add(subject, text, "PROTOBUF", references=references)

    def message(self, number: int, record: Any) -> bytes:
        """A record in Confluent's form."""
        return struct.pack(">bI", 0, number) + plain(self.schemas[number - 1], record)

    def latest(self, subject: str, user: str = "") -> str:
        """The address of the newest schema."""
        scheme, _, host = self.url.partition("://")
        return f"{scheme}://{user + '@' if user else ''}{host}/subjects/{subject}/versions/latest"

    def respond(self, path: str) -> tuple[int, Any]:
        """Status and body."""
        match path.partition("?")[0].strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) <= len(self.schemas):
                return 200, self._stated(int(number))
            case ["subjects", "broken", *_]:
                return 500, {"error_code": 50001}
            case ["subjects", subject, "versions", "latest" | "1"] if subject in self.subjects:
                found = self.subjects[subject]
                return 200, {"subject": subject, "version": 1, "id": found, **self._stated(found)}
        return 404, {"error_code": 40403}

    def _stated(self, number: int) -> dict[str, Any]:
        schema = self.schemas[number - 1]
        if number in self.more:
            return {"schema": schema, **self.more[number]}
        return {"schema": json.dumps(schema)}


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
