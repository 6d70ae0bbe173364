"""BLOOM, SIMPLE and their global forms: footers, bloom filters and key columns of base files; and prepped rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.keys.stored import StoredKeys
from skep_table.logfile import BlockType, read_blocks
from skep_table.merge import MergeRule
from skep_table.merge.rule import DELETE_FIELD
from skep_table.runner import ThreadRunner
from skep_table.schema.types import FILE_NAME, IS_DELETED, OPERATION, PARTITION_PATH, RECORD_KEY
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice
from skep_table.write.index import NEW_KEY, IndexFile, tag_keys
from skep_table.write.indexes.base import (
    GONE_GROUP,
    Files,
    GlobalIndex,
    Index,
    Places,
    Tags,
    by_partition,
    positions,
    single,
)

# Files that one thread looks into, one after the other.
_FILES_A_TASK = 16


@dataclass(frozen=True)
class FooterIndex(Index):
    """Looks into the base files of the row's partition.

    A key that a pending compaction is going to leave out, since the logs that it reads delete it, is not there any
    more: in the logs over the compaction no index of base files would find it again.
    """

    table: HudiTable
    files: Files

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        files = self.files.get(path, ())
        if not files:
            return np.full(rows.num_rows, NEW_KEY, np.int32)
        return tag_keys(self.table.storage, single(rows.column(RECORD_KEY)), files, self._left_out, self._stored)

    @cached_property
    def _stored(self) -> StoredKeys:
        return stored_keys(self.table)

    def _left_out(self, file: IndexFile, keys: pa.Array) -> np.ndarray:
        if file.planned is None or not _may_delete(self.table, file.planned):
            return np.zeros(len(keys), np.bool_)
        return ~_alive(self.table, file.planned, keys)


def _may_delete(table: HudiTable, slice_: FileSlice) -> bool:
    """Whether logs may delete rows, as far as their headers and the schema tell."""
    if IS_DELETED in table.schema() or DELETE_FIELD.key in table.options or OPERATION in table.schema():
        return True
    for log in slice_.log_files:
        with table.storage.open_input(log.path) as file:
            if any(block.type is BlockType.DELETE for block in read_blocks(file, log.path)):
                return True
    return False


def stored_keys(table: HudiTable) -> StoredKeys:
    return StoredKeys.of(table.config, table.stored_schema())


def _alive(table: HudiTable, slice_: FileSlice, keys: pa.Array) -> np.ndarray:
    stored = stored_keys(table)
    batches = read_slice(table, slice_, columns=stored.schema.names())
    held = pa.chunked_array([stored.of_rows(batch) for batch in batches], pa.string())
    alive: np.ndarray = pc.is_in(keys, value_set=held).to_numpy(zero_copy_only=False)
    return alive


@dataclass(frozen=True)
class GlobalFooterIndex(GlobalIndex):
    """Looks into the base files of all partitions; where a slice has logs, into these too.

    A key that moved may lie dead in a base file whose log tells that it was deleted. Of several files that hold a key
    the first counts.
    """

    table: HudiTable
    files: Files
    rule: MergeRule
    combine: bool
    update_partition_path: bool

    def find(self, keys: pa.Array) -> Places:
        tasks = list(_tasks(self.files))
        found = np.full(len(keys), NEW_KEY, np.int64)
        answers = ThreadRunner().map(partial(self._tag, keys), tasks)
        for (start, *_), tags in zip(tasks, answers, strict=True):
            fresh = (found == NEW_KEY) & (tags != NEW_KEY)
            found[fresh] = tags[fresh] + start
        return place_of(found, self.files)

    def _tag(self, keys: pa.Array, task: tuple[int, str, list[IndexFile]]) -> Tags:
        _, path, files = task
        tags = tag_keys(self.table.storage, keys, files)
        hits = np.flatnonzero(tags != NEW_KEY)
        if len(hits) and _has_logs(files[0]):
            slice_ = next(each for each in self.table.view().slices(path) if each.file_id == files[0].file_id)
            alive = _alive(self.table, slice_, keys.take(pa.array(hits)))
            tags[hits[~alive]] = NEW_KEY
        return tags


def _tasks(files: Files) -> Iterator[tuple[int, str, list[IndexFile]]]:
    """The place of the first file among all, its partition, and some files; a slice with logs goes alone."""
    start = 0
    for path, of_path in files.items():
        task: list[IndexFile] = []
        for file in of_path:
            if task and (len(task) == _FILES_A_TASK or _has_logs(file) or _has_logs(task[0])):
                yield start, path, task
                start, task = start + len(task), []
            task.append(file)
        if task:
            yield start, path, task
            start += len(task)


def _has_logs(file: IndexFile) -> bool:
    return file.tail is not None and bool(file.tail.size)


def place_of(found: np.ndarray, files: Files) -> Places:
    """From positions among all files, one partition's after the other's, to partitions and positions there."""
    paths = list(files)
    counts = np.array([len(files[path]) for path in paths], np.int64)
    starts = np.append(0, np.cumsum(counts))
    codes = np.searchsorted(starts, found, side="right") - 1
    known = found != NEW_KEY
    partitions = pa.array(paths, pa.string()).take(pa.array(np.where(known, codes, 0), mask=~known))
    return Places(partitions, np.where(known, found - starts[codes], NEW_KEY).astype(np.int32))


@dataclass(frozen=True)
class NamedFiles(Index):
    """Prepped rows: each says in `_hoodie_file_name` where it was read from, or nothing when it is new."""

    columns: ClassVar[tuple[str, ...]] = (RECORD_KEY, PARTITION_PATH, FILE_NAME)

    files: Files

    def tag(self, keyed: pa.Table) -> Tags:
        return by_partition(keyed, self._tag)

    def _tag(self, path: str, rows: pa.Table) -> Tags:
        known: Sequence[IndexFile] = self.files.get(path, ())
        names = single(rows.column(FILE_NAME))
        # a base file's name goes on after the file id, a row of a log bears the file id alone
        ids = pc.replace_substring_regex(names, "_.*$", "")
        tags = positions(ids, pa.array([file.file_id for file in known], pa.string()), GONE_GROUP)
        new = pc.equal(pc.fill_null(names, ""), "").to_numpy(zero_copy_only=False)
        return np.where(new, NEW_KEY, tags).astype(np.int32)
