"""Records of the partition `files`: which partitions the table has, and which files are in each (format guide 7.4).

A file that is added has its size, one that is deleted the mark for that. Of one file the largest size counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.metadata_table.keys import ALL_PARTITIONS, partition_key
from skep_table.metadata_table.partitions import FILES, FILES_MEMBER
from skep_table.metadata_table.records.update import PartitionUpdate
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.plans import CleanMetadata, RollbackMetadata

_PARTITION_LIST: Final = 1  # the record's type: the names in its map are partitions
_FILE_LIST: Final = 2
_INFO: Final = pa.struct([pa.field("size", pa.int64()), pa.field("isDeleted", pa.bool_())])
_ROWS: Final = pa.schema([("key", pa.string()), ("name", pa.string()), ("size", pa.int64()), ("deleted", pa.bool_())])

_Sizes = Mapping[str, Mapping[str, int]]  # by partition path, by file name
_Names = Mapping[str, Collection[str]]


def files_of_commit(metadata: CommitMetadata) -> PartitionUpdate:
    """What a write or a service added. Files that it replaced stay until they are cleaned."""
    written = [(stat.partition_path, stat.path, stat.file_size_in_bytes) for stat in metadata.stats if stat.path]
    changes = [
        (stat.partition_path, path, size) for stat in metadata.stats for path, size in (stat.cdc_stats or {}).items()
    ]
    rows = [_row(path, at.rpartition("/")[2], size) for path, at, size in (*written, *changes)]
    return _update(rows, added=metadata.partition_to_write_stats)


def files_of_clean(metadata: CleanMetadata) -> PartitionUpdate:
    """What a clean deleted. A partition that it deleted as a whole is none any more."""
    cleaned = metadata.partition_metadata
    dropped = [path for path, each in cleaned.items() if each.is_partition_deleted]
    rows = [_row(path, name) for path, each in cleaned.items() for name in map(_name, each.delete_path_patterns)]
    return _update(rows, dropped=dropped, keys=cleaned)


def files_of_rollback(metadata: RollbackMetadata, listed: _Names) -> PartitionUpdate | None:
    """What a rollback left: log files with its commands and those that it undid, and without those that it deleted.

    Of the deleted ones only those count that are still `listed`. None where nothing changes.
    """
    rows, partitions = [], []
    for path, each in metadata.partition_metadata.items():
        logs = {**(each.rollback_log_files or {}), **(each.log_files_from_failed_commit or {})}
        kept = [_row(path, _name(uri), size) for uri, size in logs.items() if size > 0]
        known = listed.get(path, ())
        rows += [*kept, *(_row(path, name) for name in map(_name, each.success_delete_files) if name in known)]
        partitions += [path] if kept else []
    return _update(rows, added=partitions) if rows else None


def files_listed(partitions: _Sizes) -> PartitionUpdate:
    """All partitions and files of a table."""
    rows = [_row(path, name, size) for path, sizes in partitions.items() for name, size in sizes.items()]
    return _update(rows, added=partitions, keys=partitions)


def files_merged(rows: pa.Table) -> PartitionUpdate:
    """The live files as `merged_files` returns them, by key: what is left once all changes are merged."""
    return files_changed(rows.append_column("deleted", pa.array(np.zeros(len(rows), np.bool_))))


def files_changed(rows: pa.Table) -> PartitionUpdate:
    """Files that were added and deleted, as `merged_changes` returns them, by key."""
    return _grouped(rows.cast(_ROWS), [ALL_PARTITIONS])


def _row(partition_path: str, name: str, size: int | None = None) -> tuple[str, str, int, bool]:
    """A file with its size; without one it is deleted."""
    return partition_key(partition_path), name, size or 0, size is None


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]


def _update(
    rows: list[tuple[str, str, int, bool]],
    *,
    added: Iterable[str] = (),
    dropped: Iterable[str] = (),
    keys: Iterable[str] = (),
) -> PartitionUpdate:
    """`rows` of files, and the partition paths that are added to the table or dropped. `keys` have a record anyway."""
    removed = [(ALL_PARTITIONS, partition_key(path), 0, True) for path in dropped]
    listed = [(ALL_PARTITIONS, partition_key(path), 0, False) for path in added]
    columns = zip(*rows, *removed, *listed, strict=True) if rows or removed or listed else [()] * len(_ROWS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _ROWS.types, strict=True)]
    return _grouped(pa.table(arrays, _ROWS), [ALL_PARTITIONS, *map(partition_key, keys)])


def _grouped(rows: pa.Table, keys: Iterable[str]) -> PartitionUpdate:
    """A record for each key of `rows`, and for each of `keys`: there it may have no files."""
    how = [("size", "max"), ("deleted", "min")]  # a file that is written again is there
    rows = rows.group_by(["key", "name"]).aggregate(how).sort_by([("key", "ascending"), ("name", "ascending")])
    given = pa.concat_arrays([rows["key"].combine_chunks(), pa.array(list(keys), pa.string())]).unique()
    given = given.take(pc.sort_indices(given))  # by their bytes, as in an HFile
    counts = np.bincount(pc.index_in(rows["key"], given).to_numpy(), minlength=len(given))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    infos = pa.StructArray.from_arrays(
        [rows["size_max"].combine_chunks(), rows["deleted_min"].combine_chunks()], fields=list(_INFO)
    )
    maps = pa.MapArray.from_arrays(offsets, rows["name"].combine_chunks(), infos)
    kinds = pc.if_else(pc.equal(given, ALL_PARTITIONS), _PARTITION_LIST, _FILE_LIST).cast(pa.int32())
    record = pa.StructArray.from_arrays([kinds, maps], ["type", FILES_MEMBER])
    return PartitionUpdate(FILES, pa.table({"key": given, "record": record}))
