"""Columns whose values are in the names of folders (`day=2026-01-02/…`), as Hive and Spark write partitions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from skep_format.escaping import unescape
from skep_format.names import DEFAULT_PARTITION
from skep_format.rowfiles.inferred import FileRows, Input, Types, read_text_files


def values_of(folder: Path, file: Path) -> tuple[tuple[str, str | None], ...]:
    """Names and values of the folders below `folder` in which a file is; None for Hive's name of null."""
    parts = (part.partition("=") for part in file.relative_to(folder).parts[:-1])
    return tuple(
        (unescape(name), None if value in ("", DEFAULT_PARTITION) else unescape(value))
        for name, sign, value in parts
        if name and sign
    )


def with_folder_columns(files: Sequence[FileRows], known: Types) -> list[FileRows]:
    """The files with the columns of their folders' names that they lack themselves.

    Types are those that are known, else what fits the values in the names of all folders, as of text files.
    """
    names = dict.fromkeys(name for each in files for name, _ in each.source.folders)
    columns = {name: _column(name, files, known) for name in names}
    return [_extended(each, columns) if each.source.folders else each for each in files]


def _column(name: str, files: Sequence[FileRows], known: Types) -> tuple[pa.DataType, Mapping[str, pa.Scalar]]:
    """The type of the column, and the value of each text."""
    texts = sorted({value for each in files for key, value in each.source.folders if key == name and value is not None})
    if not texts:
        return known.get(name, pa.string()), {}
    written = io.StringIO()
    csv.writer(written).writerows([[name], *([text] for text in texts)])
    source = Input(f"folders {name}=…", "csv", written.getvalue().encode())
    (rows,) = read_text_files([source], known, lambda _name: None)
    column = pa.concat_tables(rows.tables()).column(name)
    return column.type, dict(zip(texts, column, strict=True))


def _extended(file: FileRows, columns: Mapping[str, tuple[pa.DataType, Mapping[str, pa.Scalar]]]) -> FileRows:
    own = {name: value for name, value in file.source.folders if name not in file.schema.names}
    fields = [pa.field(name, columns[name][0]) for name in own]

    def tables() -> Iterator[pa.Table]:
        for rows in file.tables():
            values = [
                pa.nulls(len(rows), columns[name][0]) if text is None else pa.repeat(columns[name][1][text], len(rows))
                for name, text in own.items()
            ]
            yield pa.Table.from_arrays([*rows.columns, *values], schema=pa.schema([*rows.schema, *fields]))

    return replace(file, schema=pa.schema([*file.schema, *fields]), tables=tables)
