"""CSV files as Arrow tables, by Spark's names of options; a value that does not fit its column is an error."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import InputError
from skep_format.rowfiles.csv_cut import CutError
from skep_format.rowfiles.csv_lines import CsvLines
from skep_format.rowfiles.csv_read import UnreadError, read_csv
from skep_format.rowfiles.csv_text import CsvForm, CsvText, csv_text, divided, utf8
from skep_format.rowfiles.rejected import Line, Rejected
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import Schema

_SHOWN: Final = 160  # characters of a reason, which quotes the value


class ColumnOrderWarning(UserWarning):
    """The header of a CSV file names other columns than the schema: they are read in their order."""


def csv_rows(
    name: str, data: bytes, schema: Schema | None, form: CsvForm, rejected: Rejected | None = None
) -> pa.Table:
    """The rows of one file. Without a schema the columns have the types that fit their texts, as in Hudi.

    With one, a header whose names are all in the schema gives the order of the columns; else theirs is the schema's,
    with a warning. InputError names file, line and column of the first value that does not fit; with `rejected` such
    lines are left out and added there, where each line is a record.
    """
    try:
        return _rows(name, data, schema, form)
    except InputError as error:
        if not error.fields.keys() & {"line", "row"}:
            raise
        text, form = divided(utf8(name, data, form), replace(form, encoding="UTF-8"))
        try:
            lines = CsvLines.of(text, form)
        except CutError:
            raise error from None
    for place, reason in lines.bad(lambda some: _rows(name, some, schema, form)):
        why, number = reason.message.partition(": ")[2], int(lines.numbers[place])
        if rejected is None:
            where, column = Line(name, number), reason.fields.get("column")
            raise InputError(f"{where}: {why}", path=name, line=number, column=column) from reason
        rejected.add(name, number, lines.text(place), why)
    return _rows(name, lines.without_bad(), schema, form)


def _rows(name: str, data: bytes, schema: Schema | None, form: CsvForm) -> pa.Table:
    text = csv_text(name, data, form)
    columns = _columns(name, text, schema)
    types = {} if schema is None else {field.name: field.type for field in to_arrow(schema) if field.name in columns}
    rows = _parsed(name, text, columns, types)
    if schema is None:
        return _narrowed(rows)
    return _in_schema(name, text, rows, to_arrow(schema))


def _narrowed(rows: pa.Table) -> pa.Table:
    """Whole numbers as Spark infers them: 32 bits where all values fit; a column without values is text."""
    for at, field in enumerate(rows.schema):
        column = rows.column(at)
        if pa.types.is_null(field.type):
            rows = rows.set_column(at, field.name, column.cast(pa.string()))
        elif pa.types.is_int64(field.type):
            with contextlib.suppress(pa.ArrowInvalid):
                rows = rows.set_column(at, field.name, column.cast(pa.int32()))
    return rows


def _columns(name: str, text: CsvText, schema: Schema | None) -> list[str]:
    has_header, count = text.form.header, len(text.first)
    header = [each or f"_c{at}" for at, each in enumerate(text.first)]
    if schema is None:
        return header if has_header else [f"_c{at}" for at in range(count)]
    known = [field.name for field in schema.fields]
    if has_header and set(header) <= set(known):
        return header
    if count > len(known):
        where, at = text.place(1 - has_header)
        raise InputError(
            f"{name}, {where}: {count} columns, the schema has {len(known)}",
            path=name,
            found=count,
            expected=len(known),
            **at,
        )
    if has_header:
        warnings.warn(
            f"{name}: the header has {', '.join(header)}, which are read as {', '.join(known[:count])}",
            ColumnOrderWarning,
            stacklevel=2,
        )
    return known[:count]


def _parsed(name: str, text: CsvText, columns: list[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    if not text.has_rows:
        return pa.table({each: pa.array([], types.get(each, pa.string())) for each in columns})
    try:
        return read_csv(text.rows, columns, types, text.parsing(), **text.form.arrow.nulls)
    except UnreadError as error:
        raise _named(name, text, columns, error) from error


def _named(name: str, text: CsvText, columns: list[str], unfit: UnreadError) -> InputError:
    reason = unfit.reason if len(unfit.reason) <= _SHOWN else f"{unfit.reason[:_SHOWN]}…"
    where, at = text.place(unfit.row) if unfit.row else ("", {})
    column = None if unfit.column is None else columns[unfit.column]
    of = f" column {column}:" if column else ""
    return InputError(f"{name}{where and ', '}{where}:{of} {reason}", path=name, column=column, **at)


def _in_schema(name: str, text: CsvText, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The schema's columns in their order. InputError for a required one without a value."""
    columns = []
    for field in wanted:
        at = rows.schema.get_field_index(field.name)
        column = pa.nulls(rows.num_rows, field.type) if at < 0 else rows.column(at)
        if not field.nullable and column.null_count:
            where, at = text.place(int(pc.index(column.is_null(), True).as_py()) + 1)
            raise InputError(
                f"{name}, {where}: column {field.name} is required, and has no value",
                path=name,
                column=field.name,
                **at,
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=wanted)
