"""CSV files as Arrow tables, by Spark's names of options; a value that does not fit its column is an error."""

from __future__ import annotations

import contextlib
import re
import warnings
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import csv as arrow_csv

from skep_stream import options as names
from skep_table.errors import InputError
from skep_table.options import Options
from skep_table.schema.arrow import to_arrow
from skep_table.schema.types import Schema

_BLOCK_BYTES: Final = 16 << 20  # a row has to fit


class ColumnOrderWarning(UserWarning):
    """The header of a CSV file names other columns than the schema: they are read in their order."""


@dataclass(frozen=True, slots=True)
class CsvForm:
    """How the text of files is cut into values."""

    separator: str = ","
    header: bool = False
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    multiline: bool = False
    encoding: str = "UTF-8"

    @classmethod
    def of(cls, options: Options) -> CsvForm:
        """From the keys `hoodie.streamer.csv.…`."""
        return cls(
            options.value(names.CSV_SEPARATOR).replace("\\t", "\t"),
            options.value(names.CSV_HEADER),
            options.value(names.CSV_QUOTE),
            options.value(names.CSV_ESCAPE),
            options.value(names.CSV_NULL),
            options.value(names.CSV_MULTILINE),
            options.value(names.CSV_ENCODING),
        )


def csv_rows(name: str, data: bytes, schema: Schema | None, form: CsvForm) -> pa.Table:
    """The rows of one file. Without a schema the columns have the types that fit their texts, as in Hudi.

    With one, a header whose names are all in the schema gives the order of the columns; else theirs is the schema's,
    with a warning. InputError names file, line and column.
    """
    header = _first_row(name, data, form)
    types = {} if schema is None else {field.name: field.type for field in to_arrow(schema)}
    columns = _columns(name, header, schema, form)
    rows = _parsed(name, data, columns, types, form)
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


def _columns(name: str, header: list[str], schema: Schema | None, form: CsvForm) -> list[str]:
    if schema is None:
        return header if form.header else [f"_c{at}" for at in range(len(header))]
    known = [field.name for field in schema.fields]
    if form.header and set(header) <= set(known):
        return header
    if len(header) > len(known):
        raise InputError(
            f"{name}, line 1: {len(header)} columns, the schema has {len(known)}",
            path=name,
            line=1,
            found=len(header),
            expected=len(known),
        )
    if form.header:
        warnings.warn(
            f"{name}: the header has {', '.join(header)}, which are read as {', '.join(known[: len(header)])}",
            ColumnOrderWarning,
            stacklevel=2,
        )
    return known[: len(header)]


def _first_row(name: str, data: bytes, form: CsvForm) -> list[str]:
    """The values of the first row, which may be a header."""
    try:
        first = arrow_csv.open_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(encoding=form.encoding),
            parse_options=_parsing(data, form),
            convert_options=arrow_csv.ConvertOptions(column_types={}),
        )
    except pa.ArrowException as error:
        raise InputError(f"{name} can't be read: {error}", path=name) from error
    return list(first.schema.names)


def _parsing(data: bytes, form: CsvForm) -> arrow_csv.ParseOptions:
    # Arrow takes the escape for one outside of quotes, too: only where it escapes a quote it is named
    escapes = bool(form.escape) and f"{form.escape}{form.quote}".encode() in data
    return arrow_csv.ParseOptions(
        delimiter=form.separator,
        quote_char=form.quote or False,
        escape_char=form.escape if escapes else False,
        newlines_in_values=form.multiline,
    )


def _parsed(name: str, data: bytes, columns: list[str], types: dict[str, pa.DataType], form: CsvForm) -> pa.Table:
    try:
        return _read(data, columns, types, form, threads=True)
    except pa.ArrowException:
        try:
            _read(data, columns, types, form, threads=False)  # only one thread counts the lines
        except pa.ArrowException as again:
            error = again
        raise _named(name, columns, str(error)) from error


def _read(data: bytes, columns: list[str], types: dict[str, pa.DataType], form: CsvForm, threads: bool) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(
            use_threads=threads,
            block_size=_BLOCK_BYTES,
            column_names=columns,
            skip_rows=1 if form.header else 0,
            encoding=form.encoding,
        ),
        parse_options=_parsing(data, form),
        convert_options=arrow_csv.ConvertOptions(
            column_types={key: kind for key, kind in types.items() if key in columns},
            null_values=sorted({"", form.null}),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def _named(name: str, columns: list[str], reason: str) -> InputError:
    column = re.search(r"In CSV column #(\d+): ", reason)
    row = re.search(r"Row #(\d+): ", reason)
    reason = re.sub(r"^CSV parse error: |In CSV column #\d+: |Row #\d+: |CSV conversion error to ", "", reason)
    where = f", line {row[1]}" if row else ""
    found = columns[int(column[1])] if column else None
    of = f" column {found}:" if found else ""
    return InputError(f"{name}{where}:{of} {reason}", path=name, line=int(row[1]) if row else None, column=found)


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
