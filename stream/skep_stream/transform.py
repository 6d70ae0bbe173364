"""Transformers: queries, flattening, chains with ids, functions of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError, OptionError
from skep_stream.options import SQL, SQL_FILE
from skep_stream.properties import read_text
from skep_stream.protocols import BatchEngine, StreamContext, Transformer

_SOURCE = "HOODIE_SRC_TMP_TABLE"


def _query(engine: BatchEngine, text: str, rows: pa.Table) -> pa.Table:
    return engine.query(text.replace("<SRC>", _SOURCE), {_SOURCE: rows})


def _script(engine: BatchEngine, statements: Sequence[str], rows: pa.Table) -> pa.Table:
    relations = {_SOURCE: rows}
    for statement in statements[:-1]:
        name, query = _view(statement)
        relations[name] = engine.query(query.replace("<SRC>", _SOURCE), relations)
    return engine.query(statements[-1].replace("<SRC>", _SOURCE), relations)


def _view(statement: str) -> tuple[str, str]:
    import re

    found = re.match(
        r"(?is)^\s*(?:create\s+(?:or\s+replace\s+)?temp(?:orary)?\s+view|cache\s+table)\s+(\w+)\s+as\s+(.*)$", statement
    )
    if not found:
        raise InputError(
            f"a statement before the last one makes a temporary view; this does not: {statement.strip()[:80]}",
            found=statement.strip()[:80],
            expected="CREATE TEMPORARY VIEW name AS query",
        )
    return found[1], found[2]


def identity(rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return rows


def with_dms_operation(rows: pa.Table) -> pa.Table:
    """AWSDmsTransformer: an empty column `Op` where AWS DMS gave none, as in full loads, for AWSDmsAvroPayload."""
    if "Op" in rows.schema.names:
        return rows
    return rows.append_column("Op", pa.repeat("", rows.num_rows))


def flatten(rows: pa.Table) -> pa.Table:
    """FlatteningTransformer: each member of a struct is a column of its own, `outer_inner`; lists and maps stay."""
    names: list[str] = []
    columns: list[pa.ChunkedArray] = []

    def add(name: str, column: pa.ChunkedArray) -> None:
        if not pa.types.is_struct(column.type):
            names.append(name)
            columns.append(column)
            return
        for member in column.type:
            add(f"{name}_{member.name}", pc.struct_field(column, member.name))

    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        add(name, column)
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"two columns are {doubled} when the rows are flattened", column=doubled)
    return pa.table(dict(zip(names, columns, strict=True)))


def own_function(name: str, function: Callable[[pa.Table], object], rows: pa.Table) -> pa.Table:
    """What a Python function of Arrow tables returns. InputError, with its name, where that is no Arrow table."""
    found = function(rows)
    if isinstance(found, pa.RecordBatch):
        return pa.Table.from_batches([found])
    if not isinstance(found, pa.Table):
        raise InputError(
            f"transformer {name} returned {type(found).__name__}, not an Arrow table",
            found=type(found).__name__,
            expected="pyarrow.Table",
        )
    return found


def query_transformer(context: StreamContext, part: str | None = None) -> Transformer:
    """SqlQueryBasedTransformer: a query over the batch, which it names `<SRC>`.

    It is that of `hoodie.streamer.transformer.sql`, or of the key with the transformer's id.
    """
    return partial(_query, context.engine, _setting(context, SQL.key, part))


def script_transformer(context: StreamContext, part: str | None = None) -> Transformer:
    """SqlFileBasedTransformer: the statements, separated by `;`, of the file that
    `hoodie.streamer.transformer.sql.file` names.

    The last is the query; those before make temporary views: `CREATE TEMPORARY VIEW name AS query`.
    """
    path = _setting(context, SQL_FILE.key, part)
    statements = [text for text in read_text(path, context.options).split(";") if text.strip()]
    if not statements:
        raise OptionError(f"{path} has no query", option=SQL_FILE.key, path=path)
    return partial(_script, context.engine, statements)


def _setting(context: StreamContext, key: str, part: str | None) -> str:
    own = f"{key}.{part}"
    old = own.replace("hoodie.streamer.", "hoodie.deltastreamer.", 1)
    options = context.options
    found = (part and (options.get(own) or options.get(old))) or options.get(key)
    if not found:
        raise OptionError(f"the transformer needs {own if part else key}", option=own if part else key)
    return found
