"""The metadata calls of JDBC as Arrow tables: databases, tables, columns, types, functions and keys of a lake."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from skep.query.views import view_entries
from skep_format.errors import NotATableError
from skep_sql.functions import FUNCTIONS

if TYPE_CHECKING:
    from skep.serve.hive.sessions import SqlSession
    from skep_catalog.entities import TableEntry as Entry

_NULLABLE: Final = 1


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of Hive's as java.sql.Types and JDBC's metadata have it."""

    name: str
    number: int
    precision: int | None = None
    literal: str | None = None
    scale: int | None = None
    radix: int | None = None
    searchable: int = 3  # in any condition


_TYPES: Final = (
    SqlType("BOOLEAN", 16, 1),
    SqlType("TINYINT", -6, 3, scale=0, radix=10),
    SqlType("SMALLINT", 5, 5, scale=0, radix=10),
    SqlType("INT", 4, 10, scale=0, radix=10),
    SqlType("BIGINT", -5, 19, scale=0, radix=10),
    SqlType("FLOAT", 6, 7, scale=7, radix=10),
    SqlType("DOUBLE", 8, 15, scale=15, radix=10),
    SqlType("DECIMAL", 3, 38, scale=38, radix=10),
    SqlType("STRING", 12, 2147483647, "'"),
    SqlType("VARCHAR", 12, 65535, "'"),
    SqlType("CHAR", 1, 255, "'"),
    SqlType("DATE", 91, 10, "'"),
    SqlType("TIMESTAMP", 93, 29, "'", scale=9),
    SqlType("BINARY", -2, 2147483647),
    SqlType("ARRAY", 2003, 2147483647, searchable=0),
    SqlType("MAP", 2000, 2147483647, searchable=0),
    SqlType("STRUCT", 2002, 2147483647, searchable=0),
    SqlType("VOID", 0),
)
_BY_NAME: Final = {kind.name: kind for kind in _TYPES}
_OTHER: Final = SqlType("OTHER", 1111)


def _columns_named(text: str) -> pa.Schema:
    """Columns by name; those with a type behind a colon are of that one, the others texts."""
    parts = (word.partition(":") for word in text.split())
    return pa.schema([(name, kind or "string") for name, _, kind in parts])


CATALOGS: Final = _columns_named("TABLE_CAT")
SCHEMAS: Final = _columns_named("TABLE_SCHEM TABLE_CATALOG")
TABLE_TYPES: Final = pa.table({"TABLE_TYPE": ["TABLE", "VIEW"]})
TABLES: Final = _columns_named(
    "TABLE_CAT TABLE_SCHEM TABLE_NAME TABLE_TYPE REMARKS TYPE_CAT TYPE_SCHEM TYPE_NAME SELF_REFERENCING_COL_NAME"
    " REF_GENERATION"
)
COLUMNS: Final = _columns_named(
    "TABLE_CAT TABLE_SCHEM TABLE_NAME COLUMN_NAME DATA_TYPE:int32 TYPE_NAME COLUMN_SIZE:int32 BUFFER_LENGTH:int32"
    " DECIMAL_DIGITS:int32 NUM_PREC_RADIX:int32 NULLABLE:int32 REMARKS COLUMN_DEF SQL_DATA_TYPE:int32"
    " SQL_DATETIME_SUB:int32 CHAR_OCTET_LENGTH:int32 ORDINAL_POSITION:int32 IS_NULLABLE SCOPE_CATALOG SCOPE_SCHEMA"
    " SCOPE_TABLE SOURCE_DATA_TYPE:int16 IS_AUTO_INCREMENT"
)
TYPE_INFO: Final = _columns_named(
    "TYPE_NAME DATA_TYPE:int32 PRECISION:int32 LITERAL_PREFIX LITERAL_SUFFIX CREATE_PARAMS NULLABLE:int16"
    " CASE_SENSITIVE:bool SEARCHABLE:int16 UNSIGNED_ATTRIBUTE:bool FIXED_PREC_SCALE:bool AUTO_INCREMENT:bool"
    " LOCAL_TYPE_NAME MINIMUM_SCALE:int16 MAXIMUM_SCALE:int16 SQL_DATA_TYPE:int32 SQL_DATETIME_SUB:int32"
    " NUM_PREC_RADIX:int32"
)
FUNCTION_ROWS: Final = _columns_named(
    "FUNCTION_CAT FUNCTION_SCHEM FUNCTION_NAME REMARKS FUNCTION_TYPE:int32 SPECIFIC_NAME"
)
PRIMARY_KEYS: Final = _columns_named("TABLE_CAT TABLE_SCHEM TABLE_NAME COLUMN_NAME KEQ_SEQ:int32 PK_NAME")
CROSS_REFERENCE: Final = _columns_named(
    "PKTABLE_CAT PKTABLE_SCHEM PKTABLE_NAME PKCOLUMN_NAME FKTABLE_CAT FKTABLE_SCHEM FKTABLE_NAME FKCOLUMN_NAME"
    " KEQ_SEQ:int32 UPDATE_RULE:int32 DELETE_RULE:int32 FK_NAME PK_NAME DEFERRABILITY:int32"
)
_WILD: Final = {"%": ".*", "*": ".*", ".*": ".*", "_": "."}


def matcher(pattern: str | None) -> Callable[[str], bool]:
    r"""JDBC's patterns: `%` is any text, `_` any character, `\` makes the next one plain; none and '' match all.

    As in Hive, `*` and `.*` are any text, too: clients of the protocol ask for `.*`.
    """
    if not pattern:
        return lambda _: True
    parts = []
    for escaped, sign in re.findall(r"(\\?)(\.\*|.)", pattern, re.DOTALL):
        parts.append(re.escape(sign) if escaped else _WILD.get(sign, re.escape(sign)))
    expression = re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
    return lambda name: expression.fullmatch(name) is not None


def made(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Rows of plain values, of which the last ones may be left out."""
    full = [[*row, *[None] * (len(schema) - len(row))] for row in rows]
    columns = list(zip(*full, strict=True)) or [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _databases(session: SqlSession, pattern: str | None) -> list[str]:
    fits = matcher(pattern)
    return [name for name in session.lake.metastore.databases() if fits(name)]


def _entries(session: SqlSession, schema: str | None, table: str | None, *, views: bool = False) -> Iterator[Entry]:
    fits, metastore = matcher(table), session.lake.metastore
    for database in _databases(session, schema):
        found = view_entries(metastore, database) if views else session.lake.entries(database)
        yield from (entry for entry in found if fits(entry.name))


def schemas(session: SqlSession, pattern: str | None) -> pa.Table:
    """The databases."""
    return made(SCHEMAS, ([name, ""] for name in _databases(session, pattern)))


def tables(session: SqlSession, schema: str | None, table: str | None, types: Sequence[str] | None) -> pa.Table:
    """The Hudi tables, the views of the metastore, and the temporary ones of the session."""
    wanted = {kind.upper() for kind in types or ("TABLE", "VIEW")}
    rows: list[Sequence[Any]] = []
    if "TABLE" in wanted:
        rows = [
            ["", entry.database, entry.name, "TABLE", entry.parameters.get("comment", "")]
            for entry in _entries(session, schema, table)
        ]
    if "VIEW" in wanted:
        rows += [["", view.database, view.name, "VIEW", ""] for view in _entries(session, schema, table, views=True)]
    if "VIEW" in wanted and matcher(schema)(""):
        rows += [["", "", name, "VIEW", ""] for name in session.views if matcher(table)(name)]
    return made(TABLES, rows)


def columns(session: SqlSession, schema: str | None, table: str | None, column: str | None) -> pa.Table:
    """Columns as the tables and the views of the metastore are registered."""
    fits = matcher(column)
    rows = (
        _column_row(entry, number, name, kind, comment)
        for entry in chain(_entries(session, schema, table), _entries(session, schema, table, views=True))
        for number, (name, kind, comment) in enumerate(_columns_of(entry), 1)
        if fits(name)
    )
    return made(COLUMNS, rows)


def _columns_of(entry: Entry) -> Iterator[tuple[str, str, str | None]]:
    for each in (*entry.storage.columns, *entry.partition_keys):
        yield each.name, each.type, each.comment


def _column_row(entry: Entry, number: int, name: str, kind: str, comment: str | None) -> Sequence[Any]:
    base = re.split(r"[(<]", kind, maxsplit=1)[0].strip().upper()
    found = _BY_NAME.get(base, _OTHER)
    size, digits = found.precision, found.scale
    given = [int(part) for part in re.findall(r"\d+", kind)] if base in ("DECIMAL", "CHAR", "VARCHAR") else []
    if given:
        size, digits = given[0], given[1] if len(given) > 1 else digits
    shown = kind if "<" in kind else kind.upper()
    place = ["", entry.database, entry.name, name, found.number, shown, size, None, digits, found.radix]
    return [*place, _NULLABLE, comment or "", None, None, None, None, number, "YES", None, None, None, None, "NO"]


def type_info() -> pa.Table:
    """The types of columns."""
    rows = (
        [
            *(kind.name, kind.number, kind.precision, kind.literal, kind.literal, None),
            *(_NULLABLE, kind.name in ("STRING", "VARCHAR", "CHAR"), kind.searchable, kind.radix is None, False, False),
            *(None, 0, kind.scale or 0, None, None, kind.radix),
        ]
        for kind in _TYPES
    )
    return made(TYPE_INFO, rows)


def functions(pattern: str | None) -> pa.Table:
    """skep's table functions; those of the engines are not listed."""
    fits = matcher(pattern)
    returns_table = 2
    rows = (["", "", name, "", returns_table, name] for name in sorted(FUNCTIONS) if fits(name))
    return made(FUNCTION_ROWS, rows)


def primary_keys(session: SqlSession, schema: str | None, table: str | None) -> pa.Table:
    """The record key of a table."""
    rows: list[Sequence[Any]] = []
    for entry in _entries(session, schema, table):
        try:
            keys = session.lake.table(entry.full_name).hudi.config.record_key_fields
        except NotATableError:  # its files were deleted
            continue
        rows += [["", entry.database, entry.name, key, number, "record_key"] for number, key in enumerate(keys, 1)]
    return made(PRIMARY_KEYS, rows)
