"""Files of rows as one Arrow table: what `skep write` takes. The formats are told apart by ending, or named."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep.text_files import Input, read_csv_files, read_json_files
from skep_table.errors import InputError, SkepError

if TYPE_CHECKING:
    import pyarrow as pa

_AVRO_ROWS: Final = 50_000
_STDIN: Final = "-"
_FORMATS: Final = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".avro": "avro",
    ".orc": "orc",
}


def inputs_of(paths: Iterable[Path], format: str | None = None) -> list[Input]:
    """The files that are named, and of folders the files of known endings in them, in order; `-` is standard input.

    `format` (csv, jsonl, parquet, avro, orc) holds for standard input, and for named files whatever their ending.
    InputError for what is not there, and for what has no known format. Standard input is read now.
    """
    found: list[Input] = []
    for path in paths:
        if str(path) == _STDIN:
            if format is None:
                raise InputError("standard input has no ending that names its format", hint="give --format csv, …")
            found.append(Input("stdin", format, sys.stdin.buffer.read()))
        elif path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in _FORMATS and each.is_file())
            found += [
                Input(str(each), _FORMATS[each.suffix.lower()], each) for each in inside if each.name[0] not in "._"
            ]
        elif not path.exists():
            raise InputError(f"{path} is not there", path=str(path))
        elif format is None and path.suffix.lower() not in _FORMATS:
            raise InputError(
                f"{path}: unknown kind of file",
                hint="--format names it",
                found=path.suffix,
                expected=", ".join(_FORMATS),
            )
        else:
            # What is no regular file (a pipe) can be read but once.
            content = path if path.is_file() else path.read_bytes()
            found.append(Input(str(path), format or _FORMATS[path.suffix.lower()], content))
    if not found:
        raise InputError("no files to read", expected=", ".join(_FORMATS))
    return found


def read_files(
    inputs: Sequence[Input],
    table: pa.Schema | None = None,
    schema: pa.Schema | None = None,
    done: Callable[[str], object] = lambda _name: None,
) -> pa.Table:
    """The rows of all files in their order, columns by name; columns of text files have one type in all of them.

    In CSV and JSON lines a column is read as what `schema` says, else as the type that it has in `table`, else in the
    other files, else as what fits the texts of all files. Columns of other formats have types of their own, which only
    `schema` changes. `done` is called with the name of each file when it has been read. InputError names the file (and
    the line of a text) that can't be read, or does not fit the others.
    """
    import pyarrow as pa

    read: dict[int, pa.Table] = {}
    for at, each in enumerate(inputs):
        if each.format in _READERS:
            try:
                read[at] = _READERS[each.format](each)
            except SkepError:
                raise
            except (OSError, ValueError, pa.ArrowException) as error:
                raise InputError(f"{each.name} can't be read: {error}", path=each.name) from error
            done(each.name)
    known = {field.name: field.type for one in read.values() for field in one.schema}
    known.update((field.name, field.type) for given in (table, schema) if given is not None for field in given)
    for format, reader in (("jsonl", read_json_files), ("csv", read_csv_files)):
        places = [at for at, each in enumerate(inputs) if each.format == format]
        if places:
            read.update(zip(places, reader([inputs[at] for at in places], known, done), strict=True))
            known = {**{field.name: field.type for at in places for field in read[at].schema}, **known}
    tables = [read[at] for at in range(len(inputs))]
    if schema is not None:
        tables = [_as_told(each, one, schema) for each, one in zip(inputs, tables, strict=True)]
        missing = [name for name in schema.names if not any(name in one.column_names for one in tables)]
        if missing:
            raise InputError(
                f"no file has column {missing[0]} of the schema", column=missing[0], found=tuple(tables[0].column_names)
            )
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        names = ", ".join(each.name for each in inputs)
        raise InputError(f"the columns of {names} don't fit each other: {error}", found=names) from error


def _as_told(source: Input, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns that `schema` names in its types. InputError for a value that does not fit."""
    import pyarrow as pa

    for at, field in enumerate(rows.schema):
        wanted = schema.field(field.name).type if field.name in schema.names else field.type
        if field.type != wanted:
            try:
                rows = rows.set_column(at, pa.field(field.name, wanted), rows.column(at).cast(wanted))
            except pa.ArrowException as error:
                raise InputError(
                    f"{source.name}: column {field.name} of type {field.type} can't be read as {wanted}: {error}",
                    column=field.name,
                    found=str(field.type),
                    expected=str(wanted),
                ) from error
    return rows


def _parquet(source: Input) -> pa.Table:
    from pyarrow import parquet

    return parquet.read_table(source.content if isinstance(source.content, Path) else source.open())


def _orc(source: Input) -> pa.Table:
    from pyarrow import orc

    return orc.read_table(source.open())


def _avro(source: Input) -> pa.Table:
    import fastavro
    import pyarrow as pa

    from skep_table.schema.arrow import to_arrow
    from skep_table.schema.avro import parse_avro

    with source.open() as file:
        records = fastavro.reader(file)
        schema = to_arrow(parse_avro(records.metadata["avro.schema"]))
        batches = []
        while part := list(itertools.islice(records, _AVRO_ROWS)):
            batches.append(pa.RecordBatch.from_pylist(part, schema))
    return pa.Table.from_batches(batches, schema)


_READERS: Final[dict[str, Callable[[Input], pa.Table]]] = {"parquet": _parquet, "avro": _avro, "orc": _orc}
