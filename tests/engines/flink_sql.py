"""A client of Flink's SQL gateway, as the DB API has it: connections, cursors, rows."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

CATALOG = "lake"


class FlinkRefused(Exception):
    """The gateway's error: its innermost cause."""


class FlinkConnection:
    """A session whose catalog `lake` has the metastore's tables. Statements return at the end of their job."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self._session = f"/v1/sessions/{self.call('/v1/sessions', {})['sessionHandle']}"
        self.run("set 'table.dml-sync'='true'")
        self.run(
            f"create catalog {CATALOG} with ('type'='hudi', 'mode'='hms', 'table.external'='true',"
            " 'default-database'='default')"
        )
        self.run(f"use catalog {CATALOG}")

    def cursor(self) -> FlinkCursor:
        return FlinkCursor(self)

    def close(self) -> None:
        self.call(self._session, method="DELETE")

    def run(self, statement: str) -> tuple[list[str], list[list[Any]]]:
        """The names of its columns, and its rows."""
        started = self.call(f"{self._session}/statements", {"statement": statement})
        page: str | None = f"{self._session}/operations/{started['operationHandle']}/result/0?rowFormat=JSON"
        names: list[str] = []
        rows: list[list[Any]] = []
        while page:
            found = self.call(page.replace("/v1/", "/v2/", 1))
            if found["resultType"] == "NOT_READY":
                time.sleep(0.05)
                continue
            if results := found.get("results"):
                names = [column["name"] for column in results["columns"]]
                binary = [column["logicalType"]["type"] in ("BINARY", "VARBINARY") for column in results["columns"]]
                rows += [list(map(_value, row["fields"], binary)) for row in results["data"]]
            page = found.get("nextResultUri")
        return names, rows

    def call(self, path: str, body: object = None, method: str | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                found: dict[str, Any] = json.loads(answer.read(), parse_float=Decimal)
                return found
        except urllib.error.HTTPError as error:
            lines = json.loads(error.read())["errors"][-1].splitlines()
            causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
            raise FlinkRefused((causes or lines)[-1]) from error


def _value(value: Any, binary: bool) -> Any:
    """JSON has binary values as Base64."""
    return base64.b64decode(value) if binary and value is not None else value


class FlinkCursor:
    """One statement at a time."""

    description: Sequence[tuple[str]] | None = None

    def __init__(self, connection: FlinkConnection) -> None:
        self._connection = connection
        self._rows: list[list[Any]] = []

    def execute(self, statement: str) -> None:
        names, self._rows = self._connection.run(statement)
        self.description = [(name,) for name in names]

    def fetchall(self) -> list[list[Any]]:
        return self._rows

    def close(self) -> None:
        self._rows = []
