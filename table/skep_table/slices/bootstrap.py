"""Bootstrapped slices: a skeleton of meta columns in the table, the data columns still in the file they came from.

The bootstrap index says which file that is: HFiles keyed by `part=<partition>;fileid=<file id>`. Row i of one is row i
of the other. Sources that have moved are found by option `hoodie.bootstrap.base.path`, as the new place of the old one.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from skep_table.basefile import read_base
from skep_table.errors import CorruptFileError, FormatError
from skep_table.hfile import HFile
from skep_table.options import Options
from skep_table.schema.types import Schema
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.storage import Storage, open_storage
from skep_table.table import HudiTable
from skep_table.view import FileSlice

METADATA_BOOTSTRAP: Final = "00000000000001"
"""The instant of skeleton files; rows bootstrapped in full bear another and lie in ordinary base files."""
_INDEX_FOLDER: Final = ".hoodie/.aux/.bootstrap/.fileids"

_indexes: WeakKeyDictionary[HudiTable, dict[tuple[str, str], str]] = WeakKeyDictionary()


def source_of(table: HudiTable, slice: FileSlice, options: Options) -> str | None:
    """The full address of the file that holds the data columns of a slice; None for a slice that is whole."""
    if slice.base_file is None or slice.base_file.name.instant_time != METADATA_BOOTSTRAP:
        return None
    index = _indexes.get(table)
    if index is None:
        index = _indexes[table] = _load(table)
    source = index.get((slice.partition_path, slice.file_id))
    if source is None:
        raise FormatError(
            f"{slice.base_file.path} is a skeleton, and the bootstrap index has no file for it",
            path=slice.base_file.path,
            expected=f"part={slice.partition_path};fileid={slice.file_id}",
        )
    old, new = table.config.raw.get(BOOTSTRAP_BASE_PATH), options.get(BOOTSTRAP_BASE_PATH)
    return _moved(source, old, new) if old and new else source


def read_bootstrap(
    storage: Storage, skeleton: str, source: str, wanted: Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Skeleton and source side by side, in batches of `wanted`."""
    folder, _, name = source.rpartition("/")
    held = read_base(storage, skeleton, schema=_part(wanted, meta=True), batch_rows=batch_rows)
    data = read_base(open_storage(folder), name, schema=_part(wanted, meta=False), batch_rows=batch_rows)
    left, right = _Rows(held), _Rows(data)
    while True:
        count = min(left.ready(), right.ready())
        if not count:
            break
        rows = {**left.take(count), **right.take(count)}
        yield pa.RecordBatch.from_pydict({field: rows[field] for field in wanted.names()})
    if left.ready() or right.ready():
        raise CorruptFileError(f"{skeleton} and its source {source} have different numbers of rows", path=skeleton)


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


def _load(table: HudiTable) -> dict[tuple[str, str], str]:
    index: dict[tuple[str, str], str] = {}
    for file in table.storage.list_prefix(_INDEX_FOLDER):
        if not file.name.startswith(".") and file.name.endswith(".hfile"):
            for key, value in HFile.open(table.storage, file.path, file.size_bytes).scan():
                partition, _, file_id = key.decode().rpartition(";fileid=")
                index[partition.removeprefix("part="), file_id] = _source(value, file.path)
    return index


def _source(value: bytes, path: str) -> str:
    """The path in a record of type HoodieBootstrapFilePartitionInfo, which is a container file of its own."""
    import fastavro

    try:
        record: dict[str, Any] = next(iter(fastavro.reader(io.BytesIO(value))))
        return str(record["bootstrapFileStatus"]["path"]["uri"])
    except (ValueError, KeyError, TypeError, EOFError, StopIteration) as error:
        raise CorruptFileError(f"{path}: entry of the bootstrap index can't be read: {error}", path=path) from error


def _moved(source: str, old: str, new: str) -> str:
    start, end = _plain(source), _plain(old).rstrip("/")
    return new.rstrip("/") + start[len(end) :] if start.startswith(end + "/") else source


def _plain(path: str) -> str:
    """Without a scheme that only says that the path is local."""
    return "/" + path[len("file:") :].lstrip("/") if path.startswith("file:") else path
