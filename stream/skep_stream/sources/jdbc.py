"""JdbcSource: rows of a database table, all of them or those with a greater value in a column than read before.

The URL is Hudi's, `jdbc:sqlite:/path` or `jdbc:postgresql://host:port/database`; the driver is Python's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import EnvironmentMissingError, InputError, OptionError, StorageError, UnsupportedError
from skep_stream import options as keys
from skep_stream.properties import read_text
from skep_stream.protocols import Batch, Position, StreamContext
from skep_stream.rounds import UNLIMITED
from skep_stream.sources import postgresql

_NAME: Final = re.compile(r"[A-Za-z_][\w$]*")


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """One kind of database: how it is connected to, how its driver writes a parameter, and the types of columns.

    `types` are of a connection and what its driver states about the columns; None for those that have only values.
    """

    connect: Callable[[], Any]
    parameter: str
    types: Callable[[Any, Any], Sequence[pa.DataType | None]] = lambda _, columns: [None] * len(columns)


@dataclass(frozen=True, slots=True)
class JdbcSource:
    """`column`: only rows whose value there is greater than the checkpoint; None reads the table whole each time.

    `falls_back`: where that fails, the whole table is read.
    """

    database: DatabaseKind
    table: str
    column: str | None
    falls_back: bool = False
    shown: str = field(default="", compare=False)

    def fetch(self, last: Position, limit: int) -> Batch:
        """The next rows; the checkpoint is their greatest value. StorageError where the database refuses."""
        with _errors(self.shown), closing(self.database.connect()) as connection:
            if self.column is None:
                return Batch(self._rows(connection, self._whole()), last.checkpoint or "")
            try:
                query = incremental(self.table, self.column, last.checkpoint, limit, self.database)
                rows = self._rows(connection, *query)
            except Exception:
                if not self.falls_back:
                    raise
                rows = self._rows(connection, self._whole())
        greatest = pc.max(_column(rows, self.column)).as_py()
        if greatest is None:  # there are no rows, or after a fall back none with a value
            return Batch(rows if rows.num_rows else None, last.checkpoint)
        return Batch(rows, str(greatest))

    def _whole(self) -> str:
        return f"SELECT * FROM {self.table}"

    def _rows(self, connection: Any, query: str, values: tuple[object, ...] = ()) -> pa.Table:
        cursor = connection.cursor()
        cursor.execute(query, values)
        names = [each[0] for each in cursor.description]
        types = self.database.types(connection, cursor.description)
        columns = list(zip(*cursor.fetchall(), strict=True)) or [()] * len(names)
        return pa.table([_array(*each) for each in zip(names, columns, types, strict=True)], names=names)


def incremental(
    table: str, column: str, last: str | None, limit: int, database: DatabaseKind
) -> tuple[str, tuple[object, ...]]:
    """The query of a round, and its parameters. All rows of one value are in one round, whatever the limit."""
    where = f"{column} IS NOT NULL" if last is None else f"{column} > {database.parameter}"
    values: tuple[object, ...] = () if last is None else (last,)
    if limit >= UNLIMITED:
        return f"SELECT * FROM {table} WHERE {where}", values
    first = f"SELECT {column} AS found FROM {table} WHERE {where} ORDER BY {column} LIMIT {limit}"
    return (
        f"SELECT * FROM {table} WHERE {where} AND {column} <= (SELECT MAX(found) FROM ({first}) AS bound)",
        values * 2,
    )


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A database may spell a name in other case."""
    found = [each for each in rows.schema.names if each.lower() == name.lower()]
    if len(found) != 1 and name not in found:
        raise InputError(f"the table has no column {name}", column=name, found=", ".join(rows.schema.names))
    return rows.column(name if name in found else found[0])


def _array(name: str, values: Sequence[object], kind: pa.DataType | None) -> pa.Array:
    try:
        array = pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"column {name} can't be made one of Arrow: {error}", column=name) from error
    return array.cast(pa.string()) if pa.types.is_null(array.type) else array


@contextmanager
def _errors(shown: str) -> Iterator[None]:
    """Errors of drivers, which have no class in common, as StorageError."""
    try:
        yield
    except (InputError, EnvironmentMissingError, StorageError):
        raise
    except Exception as error:
        raise StorageError.of_file(shown, str(error).strip(), call="query") from error


def database_of(url: str, user: str, password: str) -> DatabaseKind:
    """By a JDBC URL. UnsupportedError for another kind of database."""
    if url.startswith("jdbc:sqlite:"):
        return DatabaseKind(lambda: _sqlite(url.removeprefix("jdbc:sqlite:")), "?")
    if url.startswith("jdbc:postgresql:"):
        arguments = postgresql.arguments_of(url, user, password)
        return DatabaseKind(lambda: postgresql.connect(arguments), "%s", postgresql.types_of)
    kind = ":".join(url.split(":")[:2])
    raise UnsupportedError(f"no driver for {kind}", option=keys.JDBC_URL.key, found=kind, expected="sqlite, postgresql")


def _sqlite(path: str) -> Any:
    import sqlite3

    if not Path(path).exists():
        raise InputError(f"{path} is not there", path=path)
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def jdbc_source(context: StreamContext) -> JdbcSource:
    """JdbcSource by its options. OptionError for one that is missing."""
    options = context.options
    url, table = (options.needed(each, "JdbcSource needs") for each in (keys.JDBC_URL, keys.JDBC_TABLE))
    column = options.value(keys.JDBC_COLUMN) if options.value(keys.JDBC_INCREMENTAL) else None
    if column is not None and not _NAME.fullmatch(column):
        raise OptionError(
            f"{keys.JDBC_COLUMN.key}={column!r} is no name of a column", option=keys.JDBC_COLUMN.key, found=column
        )
    password = options.value(keys.JDBC_PASSWORD)
    if not password and options.value(keys.JDBC_PASSWORD_FILE):
        password = read_text(options.value(keys.JDBC_PASSWORD_FILE), options).strip()
    database = database_of(url, options.value(keys.JDBC_USER), password)
    shown = f"{url.partition('?')[0]}, {table}"
    if database.parameter == "%s":
        table = table.replace("%", "%%")
    return JdbcSource(database, table, column, options.value(keys.JDBC_FALL_BACK), shown)
