"""Files of rows, read some at a time: what `skep write` takes. The format is that of the ending, or named."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from skep.files.folder_columns import values_of, with_folder_columns
from skep_format.errors import InputError, SkepError
from skep_format.rowfiles.inferred import FileRows, Input, read_text_files
from skep_format.rowfiles.typed_rows import TYPED
from skep_format.schema.exact import cast_exactly
from skep_table.write.input.row_input import RereadInput, RowInput

_STDIN: Final = "-"
_HELD_BYTES: Final = 32 << 20
_OPEN_FILES: Final = Path("/proc/self/fd")
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
            found.append(_copied("stdin", format, sys.stdin.buffer))
        elif path.is_dir():
            inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in _FORMATS and each.is_file())
            found += [
                Input(str(each), _FORMATS[each.suffix.lower()], each, folders=values_of(path, each))
                for each in inside
                if each.name[0] not in "._"
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
            kind = format or _FORMATS[path.suffix.lower()]
            if path.is_file():
                found.append(Input(str(path), kind, path))
            else:  # a pipe, which can be read but once
                with path.open("rb") as pipe:
                    found.append(_copied(str(path), kind, pipe))
    if not found:
        raise InputError("no files to read", expected=", ".join(_FORMATS))
    return found


def _copied(name: str, format: str, stream: IO[bytes]) -> Input:
    """What a stream holds, in memory while that is little, else in a temporary file without a name."""
    head = stream.read(_HELD_BYTES)
    if len(head) < _HELD_BYTES or not _OPEN_FILES.exists():
        return Input(name, format, head + stream.read())
    file = tempfile.TemporaryFile(prefix="skep-input-")  # noqa: SIM115 - the input holds it
    file.write(head)
    shutil.copyfileobj(stream, file, 1 << 20)
    file.flush()
    return Input(name, format, _OPEN_FILES / str(file.fileno()), file)


def read_files(
    inputs: Sequence[Input],
    table: pa.Schema | None = None,
    schema: pa.Schema | None = None,
    done: Callable[[str], object] = lambda _name: None,
) -> RowInput:
    """The rows of all files in their order, columns by name; columns of text files have one type in all of them.

    In CSV and JSON lines a column is read as what `schema` names, else as the type that it has in `table`, else in the
    other files, else as what fits the texts of all files, which are read for that. Columns of other formats have types
    of their own, which only `schema` changes. `done` is called with the name of each file when it has been read for the
    first time. A file in folders `column=value` has these columns where it lacks them. InputError names the file (and
    the line of a text) that can't be read, or does not fit the others; for files with types, some of these errors come
    when the rows are read.
    """
    found: dict[int, FileRows] = {}
    for at, each in enumerate(inputs):
        if each.format in TYPED:
            with _named(each):
                found[at] = _typed(each)
    known = {field.name: field.type for one in found.values() for field in one.schema}
    known.update((field.name, field.type) for given in (table, schema) if given is not None for field in given)
    for format in ("jsonl", "csv"):
        places = [at for at, each in enumerate(inputs) if each.format == format]
        if places:
            found.update(zip(places, read_text_files([inputs[at] for at in places], known, done), strict=True))
            known = {**{field.name: field.type for at in places for field in found[at].schema}, **known}
    files = with_folder_columns([found[at] for at in range(len(inputs))], known)
    if schema is not None:
        missing = [name for name in schema.names if not any(name in one.schema.names for one in files)]
        if missing:
            raise InputError(
                f"no file has column {missing[0]} of the schema", column=missing[0], found=tuple(files[0].schema.names)
            )
    given = {} if schema is None else {field.name: field.type for field in schema}
    try:
        schemas = [
            pa.schema([(field.name, given.get(field.name, field.type)) for field in one.schema]) for one in files
        ]
        whole = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        names = ", ".join(each.name for each in inputs)
        raise InputError(f"the columns of {names} don't fit each other: {error}", found=names) from error
    untold = {each.name for each in inputs if each.format in TYPED}

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            with _named(file.source):
                for rows in file.tables():
                    yield from _in_types(file.source, rows, whole, given).to_batches()
            if file.source.name in untold:
                untold.discard(file.source.name)
                done(file.source.name)

    return RereadInput(whole, batches)


@contextmanager
def _named(source: Input) -> Iterator[None]:
    """Errors of a reader as InputError that names the file."""
    try:
        yield
    except SkepError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{source.name} can't be read: {error}", path=source.name) from error


def _in_types(source: Input, rows: pa.Table, schema: pa.Schema, given: Mapping[str, pa.DataType]) -> pa.Table:
    """The columns of all files, in their types. InputError for a value that does not fit."""
    columns = []
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column, found = rows.column(at), rows.schema.field(at).type
        if found != field.type:
            try:
                column = (
                    column.cast(field.type) if field.name in given else cast_exactly(column, field.type, field.name)
                )
            except pa.ArrowException as error:
                raise InputError(
                    f"{source.name}: column {field.name} of type {found} can't be read as {field.type}: {error}",
                    column=field.name,
                    found=str(found),
                    expected=str(field.type),
                ) from error
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def _typed(source: Input) -> FileRows:
    """A file whose columns have types."""
    opened = partial(TYPED[source.format], source.name)

    def tables() -> Iterator[pa.Table]:
        with source.open() as file:
            for batch in opened(file)[1]:
                yield pa.Table.from_batches([batch])

    with source.open() as file:
        return FileRows(source, opened(file)[0], tables)
