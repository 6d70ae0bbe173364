"""Records of the partition `files`: which partitions the table has, and which files are in each (format guide 7.4).

A file that is added has its size, one that is deleted the mark for that. A newer record adds files, and deletes those
that it marks so; of several sizes of one file the largest counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import CleanMetadata, RollbackMetadata
from skep_table.metadata_table.entries import Entries
from skep_table.metadata_table.keys import ALL_PARTITIONS, partition_key
from skep_table.metadata_table.partitions import FILES, FILES_MEMBER
from skep_table.metadata_table.records.build import PartitionUpdate

_PARTITION_LIST: Final = 1  # the record's type: the names in its map are partitions
_FILE_LIST: Final = 2
_INFO: Final = pa.struct([pa.field("size", pa.int64()), pa.field("isDeleted", pa.bool_())])
_ROWS: Final = pa.schema([("key", pa.string()), ("name", pa.string()), ("size", pa.int64()), ("deleted", pa.bool_())])

_FEW_BYTES: Final = 1 << 20

_SIZES: Final = pa.schema([("key", pa.string()), ("name", pa.string()), ("size", pa.int64())])

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
    how = [("size", "max"), ("deleted", "min")]
    once = rows.cast(_ROWS).group_by(["key", "name"]).aggregate(how).rename_columns(_ROWS.names)
    return _by_key(once.sort_by([("key", "ascending"), ("name", "ascending")]), [ALL_PARTITIONS])


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
    once: dict[tuple[str, str], tuple[int, bool]] = {}
    for key, name, size, deleted in (*rows, *removed, *listed):  # a file that is written again is there
        before = once.get((key, name), (size, deleted))
        once[key, name] = max(size, before[0]), deleted and before[1]
    files = sorted((*file, *state) for file, state in once.items())  # as by their bytes
    columns = zip(*files, strict=True) if files else [()] * len(_ROWS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _ROWS.types, strict=True)]
    return _by_key(pa.table(arrays, _ROWS), [ALL_PARTITIONS, *map(partition_key, keys)])


def _by_key(rows: pa.Table, keys: Iterable[str]) -> PartitionUpdate:
    """A record for each key of `rows`, which are sorted by key and name, and for each of `keys`: there it may have no
    files."""
    given = pa.concat_arrays([rows["key"].combine_chunks(), pa.array(list(keys), pa.string())]).unique()
    given = given.take(pc.sort_indices(given))  # by their bytes, as in an HFile
    counts = np.bincount(pc.index_in(rows["key"], given).to_numpy(), minlength=len(given))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    infos = pa.StructArray.from_arrays(
        [rows["size"].combine_chunks(), rows["deleted"].combine_chunks()], fields=list(_INFO)
    )
    maps = pa.MapArray.from_arrays(offsets, rows["name"].combine_chunks(), infos)
    kinds = pc.if_else(pc.equal(given, ALL_PARTITIONS), _PARTITION_LIST, _FILE_LIST).cast(pa.int32())
    record = pa.StructArray.from_arrays([kinds, maps], ["type", FILES_MEMBER])
    return PartitionUpdate(FILES, pa.table({"key": given, "record": record}))


def merged_files(entries: Iterable[Entries]) -> pa.Table:
    """The live files as columns `key`, `name`, `size`, sorted by key and name."""
    rows = _rows(entries)
    return _SIZES.empty_table() if rows is None else _merge(rows)


def merged_changes(entries: Iterable[Entries]) -> pa.Table | None:
    """What the entries come to for the files below them: as `key`, `name`, `size`, `deleted`, each file once.

    None where all files of a key were deleted at once, of which they name none.
    """
    rows = _rows(entries)
    if rows is None:
        return _SIZES.append(pa.field("deleted", pa.bool_())).empty_table()
    if rows["name"].null_count:
        return None
    live = _merge(rows)
    ended = rows.filter(rows["deleted"]).group_by(["key", "name"]).aggregate([])
    ended = ended.join(live.select(["key", "name"]), ["key", "name"], join_type="left anti")
    deleted = ended.append_column("size", pa.array(np.zeros(len(ended), np.int64)))
    sides = ((live, False), (deleted, True))
    return pa.concat_tables([side.append_column("deleted", pa.array(np.full(len(side), mark))) for side, mark in sides])


def _rows(entries: Iterable[Entries]) -> pa.Table | None:
    """All that the entries state, as `key`, `name`, `size`, `deleted`, and the `number` of the entry; None for none."""
    if isinstance(entries, list) and len(entries) > 1 and _are_few(entries):
        return _rows_of_few(entries)
    tables = []
    for number, source in enumerate(entries):
        if source.records is None:
            count = len(source.keys)
            columns = [source.keys, pa.nulls(count, pa.string()), pa.array(np.zeros(count, np.int64))]
            rows = pa.table([*columns, pa.array(np.ones(count, np.bool_))], _ROWS.names)
        else:
            owners, names, infos = _entries_of(source.records.column(FILES_MEMBER))
            rows = pa.table([source.keys.take(owners), names, *infos.flatten()], _ROWS.names)
        tables.append(rows.append_column("number", pa.array(np.full(len(rows), number, np.int64))))
    return pa.concat_tables(tables) if tables else None


def _are_few(sources: Sequence[Entries]) -> bool:
    """Whether entries in memory are small, and have records of one type."""
    kinds = {None if each.records is None else each.records.column(FILES_MEMBER).type for each in sources}
    return None not in kinds and len(kinds) == 1 and sum(map(_record_bytes, sources)) <= _FEW_BYTES


def _record_bytes(source: Entries) -> int:
    return source.records.nbytes if source.records is not None else 0


def _rows_of_few(sources: Sequence[Entries]) -> pa.Table:
    """As `_rows`, in one step: what one takes does not depend on the number of log files, of which each has entries."""
    maps = [each.records.column(FILES_MEMBER) for each in sources if each.records is not None]
    owners, names, infos = _entries_of(pa.concat_arrays(maps))
    keys = pa.concat_arrays([each.keys for each in sources])
    numbers = pa.array(np.repeat(np.arange(len(sources)), [len(each.keys) for each in sources]))
    return pa.table([keys.take(owners), names, *infos.flatten(), numbers.take(owners)], [*_ROWS.names, "number"])


def _entries_of(maps: pa.MapArray) -> tuple[pa.Array, pa.Array, pa.StructArray]:
    """All maps' entries, one after the other: which map each is of, file names, file infos."""
    offsets = maps.offsets.to_numpy()
    sizes = np.diff(offsets)
    owners = pa.array(np.repeat(np.arange(len(maps)), sizes))
    count = int(sizes.sum())
    return owners, maps.keys.slice(int(offsets[0]), count), maps.items.slice(int(offsets[0]), count)


def _merge(rows: pa.Table) -> pa.Table:
    whole = pc.is_null(rows["name"])
    if not pc.any(pc.or_(whole, rows["deleted"]), min_count=0).as_py():
        return _sizes(rows)
    dropped = rows.filter(whole).group_by("key").aggregate([("number", "max")]).rename_columns(["key", "dropped"])
    named = rows.filter(pc.invert(whole))
    deletions = named.filter(named["deleted"]).group_by(["key", "name"]).aggregate([("number", "max")])
    live = named.filter(pc.invert(named["deleted"]))
    live = live.join(deletions, ["key", "name"]).join(dropped, ["key"])
    after = pc.greater(live["number"], pc.fill_null(live["number_max"], -1))
    after = pc.and_(after, pc.greater(live["number"], pc.fill_null(live["dropped"], -1)))
    return _sizes(live.filter(after))


def _sizes(live: pa.Table) -> pa.Table:
    """Each file once, with the greatest of the sizes that are stated of it."""
    rows = live.select(["key", "name", "size"])
    rows = rows.sort_by([(name, "ascending") for name in rows.column_names]).combine_chunks()
    keys, names = rows["key"], rows["name"]
    again = pc.and_(pc.equal(keys[1:], keys[:-1]), pc.equal(names[1:], names[:-1]))
    if not pc.any(again, min_count=0).as_py():
        return rows
    return rows.filter(pa.chunked_array([*pc.invert(again).chunks, pa.array([True])]))
