"""The folder that a bootstrap makes a table of: its files with their rows and columns, by partition. Nothing is
written."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from skep_format.basefile import OpenBaseFile, open_base
from skep_format.basefile.footer import damage_named
from skep_format.basefile.keys import ORC_AVRO_SCHEMA
from skep_format.errors import InputError, SchemaError, StorageError, UnsupportedError
from skep_format.escaping import unescape
from skep_format.names import DEFAULT_PARTITION, META_FOLDER, BaseFormat
from skep_format.options import Options
from skep_format.runner import Runner
from skep_format.schema.arrow import from_arrow, nullable, rebuilt, to_arrow
from skep_format.schema.types import META_FIELDS, DataType, Schema, type_text
from skep_format.storage import FileStatus, Storage, open_storage
from skep_table.encryption import with_keys
from skep_table.write.bootstrap.options import BootstrapMode, BootstrapSettings, source_path

_FORMATS: Final = (BaseFormat.PARQUET, BaseFormat.ORC)
_SHOWN: Final = 5
_AT_ONCE: Final = 512


class LeftOutWarning(UserWarning):
    """Files of the source of a bootstrap that are not in the table."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file, by its path below the source. `key_bytes` is about what its key columns take."""

    path: str
    size_bytes: int
    modified_ms: int
    rows: int
    key_bytes: int
    unreadable: str | None = None
    """A column that JVM Hudi can't read where it is, with its type."""

    @property
    def format(self) -> BaseFormat:
        """By its ending, as all readers of Hudi have it."""
        found = BaseFormat.of(self.path)
        assert found is not None  # others are left out
        return found


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """A folder with files, which becomes a partition. `values` are those of its name's columns; None is null."""

    path: str
    partition_path: str
    mode: BootstrapMode
    files: tuple[SourceFile, ...]
    values: Mapping[str, str | None]

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(file.rows for file in self.files)


@dataclass(frozen=True, slots=True)
class SourceData:
    """What a bootstrap found. `in_files` are the columns of the files, `columns` those and the ones of folder names."""

    storage: Storage
    folders: tuple[SourceFolder, ...]
    in_files: Schema
    columns: Schema

    @property
    def path(self) -> str:
        """The folder, absolute, as tables of Hudi state it: without a scheme where that is `file`."""
        return self.storage.uri("").removeprefix("file://").rstrip("/")

    def unlisted(self) -> SourceData:
        """The same without its folders: what a task needs that gets its files."""
        return replace(self, folders=())

    def of_mode(self, mode: BootstrapMode) -> tuple[SourceFolder, ...]:
        """The folders with this mode."""
        return tuple(folder for folder in self.folders if folder.mode is mode)

    @property
    def skeletons(self) -> BaseFormat | None:
        """The format of the files that get skeletons, which is that of these and of the table; None without any."""
        folders = self.of_mode(BootstrapMode.METADATA_ONLY)
        return folders[0].files[0].format if folders else None

    def rows_of(self, folder: SourceFolder, file: SourceFile, columns: Schema) -> Iterator[pa.RecordBatch]:
        """Those of `columns`, read in batches; what the files lack has the value of the folder."""
        held = columns.select(tuple(name for name in columns.names() if name in self.in_files))
        schema = to_arrow(columns)
        # a file without any of the columns still has its rows
        read = held if held.fields else self.in_files.select(self.in_files.names()[:1])
        with _opened(self.storage, file.path, file.size_bytes) as opened:
            for batch in opened.rows(schema=read):
                arrays = [
                    batch.column(batch.schema.get_field_index(each.name))
                    if each.name in held
                    else pa.repeat(pa.scalar(folder.values.get(each.name), each.type), batch.num_rows)
                    for each in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def open_source(options: Options) -> Storage:
    """The storage of the folder that the options name, whose path is absolute."""
    return with_keys(open_storage(source_path(options), options), options)


def read_source(
    storage: Storage,
    keys: Collection[str],
    settings: BootstrapSettings,
    runner: Runner,
) -> SourceData:
    """Lists the folder and reads the footers of all files. `keys` are the key columns of the table.

    InputError where it has no files, and for files that would be left out; SchemaError where files differ in columns.
    """
    found, left_out = _listed(storage)
    _report(storage, left_out, settings)
    if not found:
        raise InputError(
            f"{storage.root} has no files that end with .parquet or .orc: there is nothing to bootstrap",
            path=storage.root,
        )
    schemas = _Schemas(storage)
    tops = frozenset(name.partition(".")[0].lower() for name in keys)
    by_folder: dict[str, list[SourceFile]] = {}
    for at in range(0, len(found), _AT_ONCE):  # of the schemas of many files only those that differ are kept
        for file, held in runner.map(partial(_facts, storage, tops), found[at : at + _AT_ONCE]):
            schemas.add(file, held)
            by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
    schema = schemas.common()
    folders = tuple(
        SourceFolder(path, settings.partition_of(path), settings.mode_of(path), tuple(files), _values(path))
        for path, files in sorted(by_folder.items())
    )
    _check_folders(storage, folders)
    _check_modes(storage, folders)
    more = [name for name in folders[0].values if name not in schema]
    lower = {name.lower(): name for name in schema.names()}
    for name in (each for each in more if each.lower() in lower):
        problem = f"folders name column {name}, and files have {lower[name.lower()]}: to Hudi both are one"
        raise SchemaError.of_file(storage.root, problem, column=name, found=lower[name.lower()])
    texts = from_arrow(pa.schema([(name, pa.string()) for name in more])).fields
    columns = Schema((*schema.fields, *texts))
    return SourceData(storage, folders, schema, columns)


def _listed(storage: Storage) -> tuple[list[FileStatus], tuple[str, ...]]:
    """The files of the deepest folders that have some, and the paths of the others."""
    every = [file for file in storage.list_prefix("", recursive=True) if not _is_hidden(file.path)]
    if storage.list_folder(META_FOLDER).files:
        raise InputError(
            f"{storage.root} is a Hudi table: it is read as it is, and can't be bootstrapped", path=storage.root
        )
    data = [file for file in every if BaseFormat.of(file.name) in _FORMATS]
    deepest = max((file.path.count("/") for file in data), default=0)
    kept = [file for file in data if file.path.count("/") == deepest]
    taken = {file.path for file in kept}
    return kept, tuple(file.path for file in every if file.path not in taken)


def _is_hidden(path: str) -> bool:
    """As Spark has it: names that begin with a dot or an underscore, unless they are those of a partition."""
    return any(part[:1] == "." or (part[:1] == "_" and "=" not in part) for part in path.split("/"))


def _report(storage: Storage, left_out: Sequence[str], settings: BootstrapSettings) -> None:
    if not left_out:
        return
    shown = ", ".join(left_out[:_SHOWN]) + (", …" if len(left_out) > _SHOWN else "")
    what = (
        f"{storage.root}: {len(left_out)} file{'s' if len(left_out) > 1 else ''} above the deepest folders, or not"
        f" ending with .parquet or .orc: {shown}"
    )
    if not settings.leaves_out:
        raise InputError(
            f"{what}. Hudi leaves them out of a bootstrap without a word",
            hint="move them, or leave them out with skep.bootstrap.leave_out=true",
            path=storage.root,
            found=len(left_out),
        )
    warnings.warn(f"{what}: they are not in the table", LeftOutWarning, stacklevel=4)


@contextmanager
def _opened(storage: Storage, path: str, size: int) -> Iterator[OpenBaseFile]:
    """A file of the listing. StorageError where it is not there any more."""
    try:
        with open_base(storage, path, size or None) as opened:
            yield opened
    except FileNotFoundError as error:
        where = storage.uri(path)
        raise StorageError(f"{where} was in the source when it was listed, and is not there now", path=where) from error


def _facts(storage: Storage, keys: Collection[str], status: FileStatus) -> tuple[SourceFile, pa.Schema]:
    with _opened(storage, status.path, status.size_bytes) as opened:
        footer = opened.footer()
        metadata, unreadable = opened.metadata, None
        schema = nullable(footer.arrow_schema.remove_metadata())
        if ORC_AVRO_SCHEMA in footer.entries:  # ORC has no types for all that it states
            schema = nullable(to_arrow(footer.schema))
        size = 0
        if metadata is None:
            with damage_named(status.path):
                opened.orc.check_times()
                size = opened.orc.about_bytes([name for name in schema.names if name.lower() in keys])
            if (column := opened.orc.instants()) is not None:
                unreadable = f"{column} is timestamp with local time zone"
        else:
            columns = [metadata.schema.column(at) for at in range(metadata.num_columns)]
            schema = _as_spark_has_it(schema, columns)
            held = opened.row_groups
            sizes = () if held is None else held.column_bytes()
            size = sum(stored for name, stored in sizes if name.partition(".")[0].lower() in keys)
            for column in columns:
                if _is_unreadable(column):
                    unreadable = f"{column.path} is {_kind(column)}"
    return SourceFile(status.path, status.size_bytes, status.modified_ms, footer.num_rows, size, unreadable), schema


def _is_unreadable(column: Any) -> bool:
    """Whether it is of a kind that Spark, or Hudi's reader of the files under skeletons, refuses in Parquet files."""
    kind = _kind(column)
    return kind.startswith(("Time(", "Float16", "INT96")) or "nanoseconds" in kind


def _kind(column: Any) -> str:
    return "INT96" if column.physical_type == "INT96" else str(column.logical_type)


def _as_spark_has_it(schema: pa.Schema, columns: Sequence[Any]) -> pa.Schema:
    """With times of 96 bits, which older writers made, as moments: Arrow has them without a zone."""
    if not any(column.physical_type == "INT96" for column in columns):
        return schema
    leaves = iter(columns)  # Parquet's columns are the leaves of Arrow's fields, in their order

    def leaf(kind: pa.DataType) -> pa.DataType:
        return pa.timestamp("us", "UTC") if next(leaves).physical_type == "INT96" else kind

    return pa.schema([rebuilt(field, leaf) for field in schema])


class _Schemas:
    """Compares the columns of all files with those of the first."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: list[pa.Schema] = []
        self._first = ""
        self._common: Schema | None = None

    def add(self, file: SourceFile, schema: pa.Schema) -> None:
        """SchemaError where they differ in names or types, and for columns that no table can have."""
        if any(schema.equals(each) for each in self._known):
            return
        self._known.append(schema)
        where = self._storage.uri(file.path)
        try:
            found = from_arrow(schema)
        except SchemaError as error:
            raise SchemaError.of_file(where, error.message, column=error.fields.get("column")) from error
        if self._common is None:
            self._first, self._common = where, found
            _refuse_meta(found, where)
            return
        expected, types = ({each.name: each.type for each in one.fields} for one in (self._common, found))
        for name in sorted({*expected, *types}):
            if expected.get(name) != types.get(name):
                raise _differs(self._first, where, name, expected, types)

    def common(self) -> Schema:
        """The columns that all files have, in the order of the first."""
        assert self._common is not None
        return self._common


def _refuse_meta(schema: Schema, where: str) -> None:
    meta = [name for name in META_FIELDS if name in schema]
    if meta:
        raise SchemaError(
            f"{where} has column {meta[0]}, which each write of Hudi fills: it is a file of a Hudi table",
            path=where,
            column=meta[0],
        )


def _differs(
    first: str, other: str, name: str, expected: Mapping[str, DataType], types: Mapping[str, DataType]
) -> SchemaError:
    wanted, found = (type_text(each[name]) if name in each else "missing" for each in (expected, types))
    return SchemaError(
        f"column {name} is {found} in {other}, and {wanted} in {first}: a bootstrapped table has one schema for all"
        " files",
        hint="write the files of one of the two again, or bootstrap them as tables of their own",
        column=name,
        path=other,
        found=found,
        expected=wanted,
    )


def _values(folder: str) -> dict[str, str | None]:
    """Of the levels that are named `column=value`, as Spark reads them."""
    values: dict[str, str | None] = {}
    for part in folder.split("/"):
        name, sign, text = part.partition("=")
        if name and sign:
            value = unescape(text)
            values[unescape(name)] = None if value == DEFAULT_PARTITION else value
    return values


def _check_folders(storage: Storage, folders: Sequence[SourceFolder]) -> None:
    """SchemaError where folders name other columns; InputError where two become one partition."""
    expected = tuple(folders[0].values)
    partitions: dict[str, str] = {}
    for folder in folders:
        if tuple(folder.values) != expected:
            raise SchemaError(
                f"{storage.root}: folder {folder.path} names columns {', '.join(folder.values) or 'none'}, folder"
                f" {folders[0].path} {', '.join(expected) or 'none'}",
                path=folder.path,
                found=", ".join(folder.values),
                expected=", ".join(expected),
            )
        other = partitions.setdefault(folder.partition_path, folder.path)
        if other != folder.path:
            raise InputError(
                f"{storage.root}: folders {other} and {folder.path} would be one partition, {folder.partition_path}",
                path=folder.path,
                found=folder.partition_path,
            )


def _check_modes(storage: Storage, folders: Sequence[SourceFolder]) -> None:
    """UnsupportedError for files whose rows can't stay where they are."""
    first: SourceFile | None = None
    for folder in folders:
        if folder.mode is not BootstrapMode.METADATA_ONLY:
            continue
        for file in folder.files:
            where, first = storage.uri(file.path), first or file
            if file.format is not first.format:
                raise UnsupportedError(
                    f"{where} is {file.format.value}, and {storage.uri(first.path)} is {first.format.value}: rows that"
                    " stay where they are have the format of the table's own files",
                    hint="FULL_RECORD writes the rows of one of the two into base files of the table's format",
                    path=where,
                    found=file.format.value,
                    expected=first.format.value,
                )
            if file.unreadable is not None:
                problem = f"column {file.unreadable}, which JVM Hudi can't read where it is"
                hint = "FULL_RECORD writes the rows again"
                raise UnsupportedError.of_file(where, problem, hint=hint, column=file.unreadable.partition(" ")[0])
