"""Bootstrapped slices: a skeleton of meta columns in the table, the data columns still in the file they came from.

The bootstrap index names that file: HFiles keyed by `part=<partition>;fileid=<file id>`. Row i of one is row i
of the other. Sources that have moved are found by option `hoodie.bootstrap.base.path`, as the new place of the old one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from skep_format.basefile import read_base, read_footer
from skep_format.errors import CorruptFileError, FormatError, StorageError
from skep_format.hfile import HFile
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.options import Options
from skep_format.schema.arrow import to_arrow
from skep_format.schema.evolve import SourceNames
from skep_format.schema.types import Schema
from skep_format.storage import Storage, open_storage
from skep_format.table_config import TableConfig
from skep_table.encryption import with_keys
from skep_table.keys.partition_path import folder_values
from skep_table.slices.bootstrap_index import BY_FILE
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.table import HudiTable
from skep_table.view import FileSlice

METADATA_BOOTSTRAP: Final = InstantTime("00000000000001")
"""The instant of skeleton files; rows bootstrapped in full have another and are in ordinary base files."""


@dataclass(frozen=True, slots=True)
class BootstrapSource:
    """The file with the data columns of a skeleton file. `path` is its full address, `size_bytes` its size.

    `options` open the storage where it lies. `partition_path` gives the partition columns that the file does not hold.
    """

    path: str
    size_bytes: int
    partition_path: str
    config: TableConfig
    options: Mapping[str, str] = field(default_factory=dict)

    def storage(self) -> tuple[Storage, str]:
        """Where it lies, and its name there."""
        folder, _, name = self.path.rpartition("/")
        return with_keys(open_storage(folder, self.options), Options(self.options)), name

    def values(self, columns: Schema) -> dict[str, pa.Scalar]:
        """The values of `columns` in the folder, for those that it gives."""
        config = self.config
        given = frozenset(config.partition_fields) - config.formatted_times
        wanted = [column for column in to_arrow(columns) if column.name in given]
        path, fields = self.partition_path, config.partition_fields
        return folder_values(
            path, fields, wanted, hive_style=config.names_columns is not False, url_encode=config.url_encode
        )


BOOTSTRAP_LEFT: Final = "skep.bootstrap.full_record"
"""In the extra metadata of that instant: so many folders are to be written in full, under the next instant."""

_Entry = tuple[str, int]  # address and size in bytes
_indexes: WeakKeyDictionary[HudiTable, dict[FileGroupId, _Entry]] = WeakKeyDictionary()


def source_of(table: HudiTable, slice: FileSlice, options: Options) -> BootstrapSource | None:
    """The file that holds the data columns of a slice; None for a slice that is whole.

    FormatError for a skeleton file that the bootstrap index does not have.
    """
    if slice.base_file is None or slice.base_file.name.instant_time != METADATA_BOOTSTRAP:
        return None
    index = _indexes.get(table)
    if index is None:
        index = _indexes[table] = _load(table)
    entry = index.get(slice.group)
    if entry is None:
        raise FormatError(
            f"{slice.base_file.path} is a skeleton, and the bootstrap index has no file for it",
            path=slice.base_file.path,
            expected=f"part={slice.partition_path};fileid={slice.file_id}",
        )
    path, size = entry
    old, new = table.config.raw.get(BOOTSTRAP_BASE_PATH.key), options.value(BOOTSTRAP_BASE_PATH)
    path = _moved(path, old, new) if old and new else path
    return BootstrapSource(path, size, slice.partition_path, table.config, dict(options))


def folders_left(table: HudiTable) -> int:
    """How many folders a bootstrap is still to write in full, where it was ended after its skeletons."""
    last = table.timeline.data().completed().last()
    if last is None or last.requested_time != METADATA_BOOTSTRAP:
        return 0
    return int(table.commit_extra(last).get(BOOTSTRAP_LEFT, "0"))


def indexed_sources(table: HudiTable) -> frozenset[str]:
    """The addresses of all files that the bootstrap index names."""
    return frozenset(path for path, _ in _load(table).values())


def with_source_size(table: HudiTable, slice: FileSlice, options: Options) -> FileSlice:
    """A slice whose base file has the size that it would have as a file of its own: its source counts."""
    source = source_of(table, slice, options)
    if source is None or slice.base_file is None:
        return slice
    base = slice.base_file
    return replace(slice, base_file=replace(base, size_bytes=base.size_bytes + source.size_bytes))


def read_stitched(
    storage: Storage,
    skeleton: str,
    source: BootstrapSource,
    wanted: Schema,
    batch_rows: int,
    names: SourceNames | None = None,
) -> Iterator[pa.RecordBatch]:
    """Skeleton and source side by side, in batches of `wanted`. `names` are the source's for renamed columns.

    StorageError where the source is not there.
    """
    held = read_base(storage, skeleton, schema=_part(wanted, meta=True), batch_rows=batch_rows)
    data = _source_rows(skeleton, source, _part(wanted, meta=False), batch_rows, names)
    left, right = _Rows(held), _Rows(data)
    while True:
        count = min(left.ready(), right.ready())
        if not count:
            break
        rows = {**left.take(count), **right.take(count)}
        yield pa.RecordBatch.from_pydict({field: rows[field] for field in wanted.names()}, schema=to_arrow(wanted))
    if left.ready() or right.ready():
        raise CorruptFileError(f"{skeleton} and its source {source.path} have different numbers of rows", path=skeleton)


def _source_rows(
    skeleton: str, source: BootstrapSource, wanted: Schema, batch_rows: int, names: SourceNames | None
) -> Iterator[pa.RecordBatch]:
    """The data columns; partition columns that the file lacks have the value of the folder."""
    storage, name = source.storage()
    try:
        values = source.values(wanted)
        if values:
            held, named = set(read_footer(storage, name).arrow_schema.names), names or {}
            values = {column: value for column, value in values.items() if named.get(column, column) not in held}
        size, schema = max(0, source.size_bytes) or None, _optional(wanted, values)
        for batch in read_base(storage, name, size=size, schema=schema, names=names, batch_rows=batch_rows):
            yield _filled(batch, values)
    except FileNotFoundError as error:
        raise StorageError(
            f"{skeleton} is a skeleton: its data columns lie in {source.path}, which is not there",
            hint=f"{BOOTSTRAP_BASE_PATH.key} names the folder where the files of the bootstrap are now",
            path=source.path,
        ) from error


def _optional(schema: Schema, values: Mapping[str, pa.Scalar]) -> Schema:
    """Columns that the folder gives are nowhere required in the file."""
    fields = (replace(field, nullable=True) if field.name in values else field for field in schema.fields)
    return replace(schema, fields=tuple(fields)) if values else schema


def _filled(rows: pa.RecordBatch, values: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    for name, value in values.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.repeat(value, rows.num_rows))
    return rows


def _part(schema: Schema, *, meta: bool) -> Schema:
    data = set(schema.without_meta().names())
    return schema.select(tuple(name for name in schema.names() if (name not in data) == meta))


class _Rows:
    """Batches from which as many rows are taken as the other side has."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._at = 0

    def ready(self) -> int:
        while self._batch is None or self._at == self._batch.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                return 0
            self._batch, self._at = batch, 0
        return int(self._batch.num_rows - self._at)

    def take(self, count: int) -> dict[str, pa.Array]:
        assert self._batch is not None
        rows = self._batch.slice(self._at, count)
        self._at += count
        return dict(zip(rows.schema.names, rows.columns, strict=True))


def _load(table: HudiTable) -> dict[FileGroupId, _Entry]:
    index: dict[FileGroupId, _Entry] = {}
    for file in table.storage.list_prefix(BY_FILE):
        if not file.name.startswith(".") and file.name.endswith(".hfile"):
            for entries in HFile.open(table.storage, file.path, file.size_bytes).scan():
                for key, value in zip(*(column.to_pylist() for column in entries.columns), strict=True):
                    partition, _, file_id = key.decode().rpartition(";fileid=")
                    index[FileGroupId(partition.removeprefix("part="), file_id)] = _source(value, file.path)
    return index


def _source(value: bytes, path: str) -> _Entry:
    """The file in a record of type HoodieBootstrapFilePartitionInfo, which is a container file of its own."""
    import fastavro

    try:
        record: dict[str, Any] = next(iter(fastavro.reader(io.BytesIO(value))))
        status = record["bootstrapFileStatus"]
        return str(status["path"]["uri"]), int(status["length"] or 0)
    except (ValueError, KeyError, TypeError, EOFError, StopIteration) as error:
        raise CorruptFileError.of_file(path, f"entry of the bootstrap index can't be read: {error}") from error


def _moved(source: str, old: str, new: str) -> str:
    start, end = plain_path(source), plain_path(old).rstrip("/")
    return new.rstrip("/") + start[len(end) :] if start.startswith(end + "/") else source


def plain_path(path: str) -> str:
    """Without the scheme `file`, which local paths may have."""
    return "/" + path[len("file:") :].lstrip("/") if path.startswith("file:") else path
