"""The engines as the tests see them: started, asked in their own dialect, answered in one spelling of values."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from engine_flink_sql import FlinkConnection

from skep_format.clock import retried, within


class EngineRefused(Exception):
    """The engine answered with an error."""


class NoWorkers(EngineRefused):
    """No worker was there to ask. On a busy machine Presto takes its own for failed, until its next heartbeat."""


@dataclass(frozen=True)
class Answer:
    """The rows of one statement, as the engine's client gives them."""

    names: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def column(self, name: str) -> list[Any]:
        place = self.names.index(name)
        return [row[place] for row in self.rows]


@dataclass
class Engine:
    """A started engine, `metastore` the one it asks."""

    name: str
    kind: str
    metastore: str
    port: int
    _connect: Callable[[], Any] = field(repr=False)
    _connection: Any = field(default=None, repr=False)

    @property
    def hive_like(self) -> bool:
        """Whether it speaks Hive's dialect."""
        return self.kind in ("hive", "spark")

    @property
    def merges(self) -> bool:
        """Whether it merges log files in. Trino 476 answers snapshots with base files alone, and no error."""
        return self.kind != "trino"

    @property
    def computes_snapshots(self) -> bool:
        """Whether jobs run over log files. Hive 4 with Hudi's bundle 0.15.0 selects and filters there, no more."""
        return self.merges and self.name != "hive-4.0.1"

    def quote(self, name: str) -> str:
        mark = "`" if self.hive_like or self.kind == "flink" else '"'
        return ".".join(f"{mark}{part}{mark}" for part in name.split("."))

    def ask(self, statement: str, *settings: str) -> Answer:
        """One statement, after `settings` (`set a=b`) in a session of its own when there are any."""
        return retried(lambda: self._asked(statement, *settings), NoWorkers, within(60, 1))

    def _asked(self, statement: str, *settings: str) -> Answer:
        if settings:
            with closing(self._connect()) as connection:
                for setting in settings:
                    _run(connection, setting)
                return _run(connection, statement)
        connection, self._connection = self._connection or self._connect(), None
        answer = _run(connection, statement)
        self._connection = connection  # a client that failed may be in the middle of an answer: it is not used again
        return answer

    def partitions(self, entry: str, columns: Sequence[str]) -> list[str]:
        """Their values; Hive and Spark list them as `part=a`, Spark as the folders are named; Trino's Hudi catalog has
        no list of them."""
        if self.hive_like:
            found = [str(row[0]).split("/") for row in self.ask(f"show partitions {self.quote(entry)}").rows]
            return ["/".join(part.rpartition("=")[2] for part in parts) for parts in found]
        if self.kind == "trino":
            rows = self.ask(f"select distinct {', '.join(map(self.quote, columns))} from {self.quote(entry)}").rows
        else:
            rows = self.ask(f"select * from {self.quote(entry + '$partitions')}").rows
        return ["/".join(map(str, row)) for row in rows]

    def ready(self) -> None:
        with closing(self._connect()) as connection:
            _run(connection, "show databases" if self.kind == "flink" else "select 1")
            if self.kind in (
                "presto",
                "trino",
            ):  # a statement that wants a worker, which may join later than the server answers
                _run(connection, "select count(*) from system.runtime.nodes cross join system.jdbc.types")

    def close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the engine may have ended already
                self._connection.close()
            self._connection = None


def _run(connection: Any, statement: str) -> Answer:
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
        if cursor.description is None:
            return Answer((), [])
        names = tuple(str(column[0]).rpartition(".")[2] for column in cursor.description)
        return Answer(names, [tuple(row) for row in cursor.fetchall()])
    except Exception as error:
        kind = NoWorkers if "NO_NODES_AVAILABLE" in str(error) else EngineRefused
        raise kind(f"{statement}: {message(error)}") from error
    finally:
        cursor.close()


def message(error: Exception) -> str:
    """The engine's message, out of the many ways its clients wrap it."""
    inner = error.args[0] if error.args else error
    status = getattr(inner, "status", None)  # Hive's
    if status is not None and getattr(status, "errorMessage", None):
        return str(status.errorMessage)
    if isinstance(inner, Mapping):  # Presto's
        return str(inner.get("message", inner))
    return str(error)


def hive_like(name: str, kind: str, metastore: str, port: int) -> Engine:
    def connect() -> Any:
        from pyhive import hive

        return hive.connect("127.0.0.1", port=port, username="root", auth="NONE")

    return Engine(name, kind, metastore, port, connect)


def presto(name: str, metastore: str, port: int, catalog: str = "hive") -> Engine:
    def connect() -> Any:
        from pyhive import presto as client

        return client.connect("127.0.0.1", port=port, username="root", catalog=catalog)

    return Engine(name, "presto", metastore, port, connect)


def trino(name: str, metastore: str, port: int, catalog: str = "hudi") -> Engine:
    def connect() -> Any:
        import trino as client

        return client.dbapi.connect(host="127.0.0.1", port=port, user="root", catalog=catalog)

    return Engine(name, "trino", metastore, port, connect)


def flink(name: str, metastore: str, port: int) -> Engine:
    return Engine(name, "flink", metastore, port, lambda: FlinkConnection(port))


def rest_ready(port: int) -> None:
    """Presto and Trino take queries once they report that they have started."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/info", timeout=5) as page:
        assert json.loads(page.read())["starting"] is False
