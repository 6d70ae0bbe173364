"""CSV files as Arrow tables, by Spark's names of options; a value that does not fit its column is an error."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyarrow import csv as arrow_csv

from skep_stream.files.csv_text import CsvForm, CsvText, csv_text
from skep_table.errors import InputError
from skep_table.schema.arrow import to_arrow
from skep_table.schema.types import Schema

_BLOCK_BYTES: Final = 16 << 20  # a row has to fit


class ColumnOrderWarning(UserWarning):
    """The header of a CSV file names other columns than the schema: they are read in their order."""


def csv_rows(name: str, data: bytes, schema: Schema | None, form: CsvForm) -> pa.Table:
    """The rows of one file. Without a schema the columns have the types that fit their texts, as in Hudi.

    With one, a header whose names are all in the schema gives the order of the columns; else theirs is the schema's,
    with a warning. InputError names file, line and column.
    """
    text = csv_text(name, data, form)
    columns = _columns(name, text, schema)
    types = {} if schema is None else {field.name: field.type for field in to_arrow(schema) if field.name in columns}
    rows = _parsed(name, text, columns, types)
    if schema is None:
        return _narrowed(rows)
    return _in_schema(name, rows, to_arrow(schema))


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
        where, line = text.place(1 - has_header)
        raise InputError(
            f"{name}, {where}: {count} columns, the schema has {len(known)}",
            path=name,
            line=line,
            found=count,
            expected=len(known),
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
        return _read(text, columns, types, threads=True)
    except pa.ArrowException as error:
        reason = error
        try:
            _read(text, columns, types, threads=False)  # only one thread counts the rows
        except pa.ArrowException as again:
            reason = again
        raise _named(name, text, columns, str(reason)) from error


def _read(text: CsvText, columns: list[str], types: Mapping[str, pa.DataType], threads: bool) -> pa.Table:
    form = text.form.arrow
    return arrow_csv.read_csv(
        pa.BufferReader(text.rows),
        read_options=arrow_csv.ReadOptions(use_threads=threads, block_size=_BLOCK_BYTES, column_names=columns),
        parse_options=text.parsing(),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict(types),
            null_values=form.null_texts,
            strings_can_be_null=True,
            quoted_strings_can_be_null=form.nulls_are_quoted,
        ),
    )


def _named(name: str, text: CsvText, columns: list[str], reason: str) -> InputError:
    column = re.search(r"In CSV column #(\d+): ", reason)
    row = re.search(r"Row #(\d+): ", reason)
    reason = re.sub(r"^CSV parse error: |In CSV column #\d+: |Row #\d+: |CSV conversion error to ", "", reason)
    where, line = text.place(int(row[1])) if row else ("", None)
    found = columns[int(column[1])] if column else None
    of = f" column {found}:" if found else ""
    return InputError(f"{name}{where and ', '}{where}:{of} {reason}", path=name, line=line, column=found)


def _in_schema(name: str, rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The schema's columns in their order. InputError for a required one without a value."""
    columns = []
    for field in wanted:
        at = rows.schema.get_field_index(field.name)
        column = pa.nulls(rows.num_rows, field.type) if at < 0 else rows.column(at)
        if not field.nullable and column.null_count:
            raise InputError(
                f"{name}: column {field.name} is required, and has no value in {column.null_count} rows",
                path=name,
                column=field.name,
            )
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=wanted)
