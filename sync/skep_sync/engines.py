"""What engines themselves answer for a table, beside what the table holds.

Each engine is asked two statements for each view: its columns, and how many rows of which last commit each partition
has. That is one scan of two columns; differences are reported by partition.
"""

from __future__ import annotations

import getpass
import importlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import TableEntry
from skep_catalog.entries import READ_OPTIMIZED
from skep_format.distribution import install_command
from skep_format.errors import EnvironmentMissingError, InputError
from skep_format.schema.types import COMMIT_TIME, PARTITION_PATH
from skep_sync.check import Disagreement
from skep_sync.planning.planner import SYMLINKS
from skep_sync.planning.steps import SyncPlan, some_partitions
from skep_table.query import ReadRequest, read
from skep_table.query.options import QueryType
from skep_table.table import HudiTable

_FIRST_ANSWER_LINES: Final = 3


class EngineKind(str, Enum):
    """Engines by the protocol that is spoken with them; Spark is a Thrift Server."""

    HIVE = "hive"
    SPARK = "spark"
    PRESTO = "presto"
    TRINO = "trino"


_PORTS: Final = {EngineKind.HIVE: 10000, EngineKind.SPARK: 10000, EngineKind.PRESTO: 8080, EngineKind.TRINO: 8080}


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """`kind=[user@]host[:port][/catalog]`, as `skep sync check --engine` takes it."""

    kind: EngineKind
    host: str
    port: int
    catalog: str
    user: str

    @classmethod
    def parse(cls, text: str) -> EngineAddress:
        """From `kind=host:port`. InputError for another form or an unknown kind."""
        kind_text, separator, rest = text.partition("=")
        try:
            kind = EngineKind(kind_text.strip().lower())
        except ValueError:
            kinds = ", ".join(kind.value for kind in EngineKind)
            raise InputError(f"engine {text!r}: no kind {kind_text!r}", found=kind_text, expected=kinds) from None
        user, _, place = rest.strip().rpartition("@")
        where, _, catalog = place.partition("/")
        host, _, port = where.partition(":")
        if not separator or not host or not (port or "1").isdigit():
            raise InputError(f"engine {text!r}: no address", found=rest, expected="KIND=[USER@]HOST[:PORT][/CATALOG]")
        return cls(kind, host, int(port or _PORTS[kind]), catalog or "hive", user or getpass.getuser())

    def __str__(self) -> str:
        return f"{self.kind.value} at {self.host}:{self.port}"

    def quoted(self, *names: str) -> str:
        """A name quoted as this engine's SQL does."""
        mark = "`" if self.kind in (EngineKind.HIVE, EngineKind.SPARK) else '"'
        return ".".join(f"{mark}{name}{mark}" for name in names)

    def connect(self) -> Any:
        """A connection as Python's database interface has them. EnvironmentMissingError names the extra to install."""
        where: dict[str, Any] = {"host": self.host, "port": self.port}
        match self.kind:
            case EngineKind.HIVE | EngineKind.SPARK:
                return _client("pyhive.hive", "hive").connect(**where, username=self.user, auth="NONE")
            case EngineKind.PRESTO:
                return _client("pyhive.presto", "presto").connect(**where, username=self.user, catalog=self.catalog)
            case EngineKind.TRINO:
                return _client("trino.dbapi", "trino").connect(**where, user=self.user, catalog=self.catalog)


def _client(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EnvironmentMissingError(
            f"the client of this engine is not installed: {error}",
            hint=install_command(extra),
            missing=name.partition(".")[0],
        ) from error


# -- asking ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Held:
    """What a partition holds: rows, and the commit of the newest of them."""

    rows: int
    last_commit: str | None

    def __str__(self) -> str:
        return f"{self.rows} row{'' if self.rows == 1 else 's'} up to {self.last_commit}"


def check_engines(
    table: HudiTable, metastore: EntryCatalog, plan: SyncPlan, engines: Sequence[EngineAddress]
) -> tuple[Disagreement, ...]:
    """Asks each engine for each entry of a plan that is registered. What an engine answers with an error is a finding
    too. Without engines nothing is read: counting rows reads all files."""
    if not engines:
        return ()
    entries = [metastore.find_table(plan.database, name) for name in plan.seen]
    found: list[Disagreement] = []
    held: dict[QueryType, dict[str, _Held]] = {}
    for entry in filter(None, entries):
        query = _query_of(entry)
        if query not in held and {COMMIT_TIME, PARTITION_PATH} <= {column.name for column in entry.storage.columns}:
            held[query] = _held_by_table(table, query)
        for engine in engines:
            try:
                found += list(_disagreements(engine, entry, table, query, held.get(query)))
            except EnvironmentMissingError:
                raise
            except Exception as error:  # each client has errors of its own
                found.append(Disagreement(entry.full_name, "engine", _first_lines(error), (str(engine),)))
    return tuple(found)


def _disagreements(
    engine: EngineAddress, entry: TableEntry, table: HudiTable, query: QueryType, held: dict[str, _Held] | None
) -> Iterator[Disagreement]:
    with closing(engine.connect()) as connection:
        yield from _columns_of(engine, connection, entry)
        if held is None:
            yield from _count_of(engine, connection, entry, table, query)
        else:
            yield from _rows_of(engine, connection, entry, held)


def _columns_of(engine: EngineAddress, connection: Any, entry: TableEntry) -> Iterator[Disagreement]:
    from_name = engine.quoted(entry.database, entry.name)
    with closing(connection.cursor()) as cursor:
        cursor.execute(f"select * from {from_name} limit 0")
        cursor.fetchall()  # some clients know the columns only then
        found = [str(column[0]).rpartition(".")[2].lower() for column in cursor.description]
    expected = [column.name.lower() for column in (*entry.storage.columns, *entry.partition_keys)]
    if sorted(found) != sorted(expected):
        missing, more = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
        parts = [f"no {', '.join(missing)}"] * bool(missing) + [f"also {', '.join(more)}"] * bool(more)
        yield Disagreement(entry.full_name, "columns", "; ".join(parts), (str(engine),))


def _rows_of(
    engine: EngineAddress, connection: Any, entry: TableEntry, held: dict[str, _Held]
) -> Iterator[Disagreement]:
    path, commit = engine.quoted(PARTITION_PATH), engine.quoted(COMMIT_TIME)
    entry_name = engine.quoted(entry.database, entry.name)
    statement = f"select {path}, count(*), max({commit}) from {entry_name} group by {path}"
    found = {str(row[0] or ""): _Held(int(row[1]), row[2]) for row in _rows(connection, statement)}
    differing = [place for place in sorted({*found, *held}) if found.get(place) != held.get(place)]
    if differing:
        first = differing[0]
        answered, there = found.get(first) or "no rows", held.get(first) or "none"
        what = f"answers {answered} in {first or 'the table'}; there are {there}"
        more = "" if len(differing) == 1 else f"; other answers in {some_partitions(differing)}"
        yield Disagreement(entry.full_name, "rows", what + more, (str(engine),))


def _count_of(
    engine: EngineAddress, connection: Any, entry: TableEntry, table: HudiTable, query: QueryType
) -> Iterator[Disagreement]:
    """Where the entry has no meta columns there is nothing but the number of rows."""
    ((found,),) = _rows(connection, f"select count(*) from {engine.quoted(entry.database, entry.name)}")
    expected = read(table, ReadRequest(query=query)).count()
    if int(found) != expected:
        what = f"answers {found} rows; there are {expected}"
        yield Disagreement(entry.full_name, "rows", what, (str(engine),))


def _rows(connection: Any, statement: str) -> list[tuple[Any, ...]]:
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()]


# -- the table's own answers -------------------------------------------------------------------------------------------


def _query_of(entry: TableEntry) -> QueryType:
    base_files = entry.storage.input_format == SYMLINKS
    read_optimized = base_files or entry.storage.serde_parameters.get(READ_OPTIMIZED) == "true"
    return QueryType.READ_OPTIMIZED if read_optimized else QueryType.SNAPSHOT


def _held_by_table(table: HudiTable, query: QueryType) -> dict[str, _Held]:
    request = ReadRequest(query=query, columns=(PARTITION_PATH, COMMIT_TIME))
    held: dict[str, _Held] = {}
    for batch in read(table, request).to_batches():
        grouped = pa.table(batch).group_by(PARTITION_PATH).aggregate([(COMMIT_TIME, "count"), (COMMIT_TIME, "max")])
        for row in grouped.to_pylist():
            place = row[PARTITION_PATH] or ""
            before = held.get(place, _Held(0, None))
            last = max(filter(None, (before.last_commit, row[f"{COMMIT_TIME}_max"])), default=None)
            held[place] = _Held(before.rows + row[f"{COMMIT_TIME}_count"], last)
    return held


def _first_lines(error: Exception) -> str:
    inner = error.args[0] if error.args else error
    status = getattr(inner, "status", None)
    text = getattr(status, "errorMessage", None) or (inner.get("message") if isinstance(inner, dict) else None)
    return " ".join(str(text or error).split("\n")[:_FIRST_ANSWER_LINES])[:500]
