"""Which record keys a commit brings into file groups, and takes out of them, by their merged slices before and after.

So are the entries of secondary indexes, which have a value of a column and the record key that has it.

What the stats of a commit count is taken only where it proves that the keys of a base file stayed (format guide 16.5),
or that log files have updates alone: if the base file holds their keys and no log file deletes any, or if the record
index states these keys in that file group, nothing changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import MetadataTableError
from skep_format.logfile import read_blocks
from skep_format.names import FileGroupId, join
from skep_format.schema.types import IS_DELETED, OPERATION, RECORD_KEY
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.merge import MergeRule
from skep_table.metadata_table.partitions import RECORD_INDEX, unbuilt_partitions
from skep_table.metadata_table.records.secondary_index import secondary_keys, secondary_texts
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.view import FileSlice, FileView

SAME_KEYS: Final = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
"""Operations after which each file group has the keys that it had."""
_NONE_TAGGED: Final[Mapping[FileGroupId, str]] = {}
_NO_KEYS: Final = pa.array([], pa.string())
PLACES: Final = pa.schema([("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string())])
"""The columns of a record key and its file group."""

Files = tuple[str, ...]
Changed = tuple[FileGroupId, FileSlice | None, FileSlice | None]
"""A file group, and its slices before the commit and after it."""


@dataclass(frozen=True)
class GroupChange:
    """What came into a file group and went out of it, between the slices of these files.

    `added` and `removed` are record keys; `entries` has what is added and removed of secondary indexes, by column.
    """

    group: FileGroupId
    before: Files
    after: Files
    added: pa.Array
    removed: pa.Array
    entries: Mapping[str, tuple[pa.Array, pa.Array]] = field(default_factory=dict)

    def is_of(self, columns: Collection[str], old: FileSlice | None, new: FileSlice | None) -> bool:
        """Whether it is what came and went between two slices, in the secondary indexes of these columns, too."""
        return set(columns) == set(self.entries) and (self.before, self.after) == (_files(old), _files(new))


@dataclass(frozen=True)
class KeyChanges:
    """The keys that came into file groups and went out of them, as `record_key`, `partition_path`, `file_id`."""

    added: pa.Table
    removed: pa.Table

    @classmethod
    def of(cls, changes: Iterable[GroupChange]) -> KeyChanges:
        """Those of all groups."""
        listed = list(changes)
        return cls(
            _places((each.group, each.added) for each in listed),
            _places((each.group, each.removed) for each in listed),
        )


def key_changes(
    before: HudiTable,
    after: HudiTable,
    metadata: CommitMetadata,
    columns: Sequence[str],
    known: Mapping[FileGroupId, GroupChange],
    tagged: Mapping[FileGroupId, str] = _NONE_TAGGED,
) -> dict[FileGroupId, GroupChange]:
    """The changes of each file group that a commit wrote or replaced; without those in which all keys stay.

    `after` is the table with the commit, `columns` are those of secondary indexes. What is `known` of slices with the
    same files is not read again. `tagged` has by file group the path of the base file in which all keys were read that
    the commit updates there.
    """
    if metadata.operation_type in SAME_KEYS:
        return {}
    slices = list(_changed_slices(before.view(), after.view(), metadata, values_count=bool(columns)))
    fresh = [each for each in slices if each[0] not in known or not known[each[0]].is_of(columns, *each[1:])]
    same = frozenset() if columns else _groups_with_same_keys(before, after, metadata, fresh, tagged)
    done = before.context.threads.map(
        partial(_compared, before, after, columns), (s for s in fresh if s[0] not in same)
    )
    found = {each.group: each for each in done}
    found |= {group: _unchanged(group, old, new) for group, old, new in fresh if group in same}
    found |= {group: known[group] for group, *_ in slices if group not in found}
    return found


def slice_keys(table: HudiTable, slice_: FileSlice | None) -> pa.Array:
    """The record keys of the rows of a slice; none without one."""
    return _keys(slice_rows(table, slice_, ()))


def secondary_entries(rows: pa.Table | None, column: str) -> pa.Array:
    """The keys of a secondary index for rows of a table, with their record keys. A column that they lack is null."""
    if rows is None or column not in rows.column_names:
        return _NO_KEYS
    values = secondary_texts(rows[column]).combine_chunks()
    return secondary_keys(values, _keys(rows))


def slice_rows(table: HudiTable, slice_: FileSlice | None, columns: Sequence[str]) -> pa.Table | None:
    """The record keys of a slice, and those of the columns that the table has; None without rows."""
    if slice_ is None:
        return None
    there = [name for name in columns if name in table.schema()] if columns else []
    batches = list(read_slice(table, slice_, columns=[RECORD_KEY, *there]))
    return pa.Table.from_batches(batches) if batches else None


def repeated_key(keys: pa.ChunkedArray) -> pa.Scalar | None:
    """The first of the keys that is among them several times."""
    counts = pc.value_counts(keys)
    several = counts.filter(pc.greater(counts.field("counts"), 1))
    return several[0]["values"] if len(several) else None


def two_places(table: HudiTable, key: str, *groups: FileGroupId) -> MetadataTableError:
    """The error about a key that lies in two file groups."""
    shown = " and ".join(join(group.partition_path, group.file_id) for group in groups)
    problem = f"key {key!r} lies in two file groups, {shown}, and a record index has one place for each key"
    hint = "an upsert with a global index writes each key to one place; without it the table can't have the index"
    return table.error(MetadataTableError, problem, hint=hint, found=shown)


def _keys(rows: pa.Table | None) -> pa.Array:
    return _NO_KEYS if rows is None else rows[RECORD_KEY].cast(pa.string()).combine_chunks()


def _changed_slices(
    before: FileView, after: FileView, metadata: CommitMetadata, *, values_count: bool
) -> Iterator[Changed]:
    groups: dict[str, set[str]] = defaultdict(set)
    for partition, stats in metadata.partition_to_write_stats.items():
        groups[partition] |= {stat.file_id for stat in stats if stat.path and (values_count or not _keeps_keys(stat))}
    for partition, replaced in (metadata.partition_to_replace_file_ids or {}).items():
        groups[partition].update(replaced)
    for partition, file_ids in groups.items():
        if not file_ids:
            continue
        old, new = ({each.file_id: each for each in view.slices(partition)} for view in (before, after))
        for file_id in sorted(file_ids):
            if file_id in old or file_id in new:
                yield FileGroupId(partition, file_id), old.get(file_id), new.get(file_id)


def _keeps_keys(stat: WriteStat) -> bool:
    """Whether a base file has the keys of the slice before it."""
    return not stat.is_log and stat.prev_commit not in ("", "null") and not (stat.num_inserts or stat.num_deletes)


def _groups_with_same_keys(
    before: HudiTable,
    after: HudiTable,
    metadata: CommitMetadata,
    changed: Iterable[Changed],
    tagged: Mapping[FileGroupId, str],
) -> frozenset[FileGroupId]:
    """Groups that got only updates in log files, all of keys that they hold."""
    rule = MergeRule.of(before.config, before.options)
    if rule.merger is not None:  # it may make a delete of an update
        return frozenset()
    logs = _updating_logs(metadata)
    updated = [(old, new) for group, old, new in changed if group in logs and old is not None and new is not None]
    rows_delete = rule.delete_field is not None or {IS_DELETED, OPERATION} & set(before.schema().names())
    keeping = frozenset() if rows_delete else _groups_without_deletes(before, (old for old, _ in updated), tagged)
    unsure = [
        replace(new, base_file=None, log_files=tuple(log for log in new.log_files if log.path in logs[new.group]))
        for _, new in updated
        if new.group not in keeping
    ]
    return keeping | _groups_with_keys_stated(before, after, unsure)


def _groups_without_deletes(
    before: HudiTable, slices: Iterable[FileSlice], tagged: Mapping[FileGroupId, str]
) -> frozenset[FileGroupId]:
    """Those whose base file holds all keys that are updated, and whose log files delete none.

    It costs reading the headers of the blocks.
    """

    def only_rows(slice_: FileSlice) -> bool:
        return all(
            block.type.has_records
            for log in slice_.log_files
            for block in read_blocks(before.storage.open_input(log.path), log.path, log.size_bytes)
        )

    same = [s for s in slices if s.base_file is not None and s.base_file.path == tagged.get(s.group)]
    return frozenset(s.group for s, only in zip(same, before.context.threads.map(only_rows, same), strict=True) if only)


def still_there(
    table: HudiTable, view: FileView, places: pa.Table
) -> Iterator[tuple[FileGroupId, pa.Array | pa.ChunkedArray]]:
    """Of record keys with places, those that the latest slices of their file groups have, group by group."""
    for path in places["partition_path"].unique().to_pylist():
        slices = {each.file_id: each for each in view.slices(path)}
        of_path = places.filter(pc.equal(places["partition_path"], path))
        for file_id in of_path["file_id"].unique().to_pylist():
            keys = of_path.filter(pc.equal(of_path["file_id"], file_id))["record_key"]
            there = pc.is_in(keys, value_set=slice_keys(table, slices.get(file_id)))
            yield FileGroupId(path, file_id), keys.filter(there)


def _groups_with_keys_stated(
    before: HudiTable, after: HudiTable, updated: Sequence[FileSlice]
) -> frozenset[FileGroupId]:
    """Those of which the record index states all keys in these log files there.

    It costs a look-up of the keys that were written, not reading the slices.
    """
    index = before.metadata_table()
    if not updated or index is None or RECORD_INDEX not in index.indexes:
        return frozenset()
    if RECORD_INDEX in unbuilt_partitions(before.config):
        return frozenset()
    keys = before.context.threads.map(lambda slice_: (slice_.group, pc.unique(slice_keys(after, slice_))), updated)
    written = _places(keys)
    stated = index.record_index(written["record_key"])
    assert stated is not None
    others = written.join(stated.select(PLACES.names), PLACES.names, join_type="left anti")
    places = others.group_by(PLACES.names[1:]).aggregate([])
    unsure = {FileGroupId(path, file_id) for path, file_id in zip(*places.to_pydict().values(), strict=True)}
    return frozenset(slice_.group for slice_ in updated if slice_.group not in unsure)


def _updating_logs(metadata: CommitMetadata) -> Mapping[FileGroupId, frozenset[str]]:
    """The log files of each file group to which a commit brought log files alone, and in them updates alone."""
    stats: dict[FileGroupId, list[WriteStat]] = defaultdict(list)
    for stat in metadata.stats:
        stats[FileGroupId(stat.partition_path, stat.file_id)].append(stat)
    return {
        group: frozenset(stat.path for stat in written)
        for group, written in stats.items()
        if all(stat.path and stat.is_log and not (stat.num_inserts or stat.num_deletes) for stat in written)
    }


def _files(slice_: FileSlice | None) -> Files:
    return slice_.file_names if slice_ is not None else ()


def _compared(
    before: HudiTable,
    after: HudiTable,
    columns: Sequence[str],
    changed: Changed,
) -> GroupChange:
    group, old, new = changed
    were, are = slice_rows(before, old, columns), slice_rows(after, new, columns)
    added, removed = (_keys(rows) for rows in (are, were))
    entries = {}
    for name in columns:
        comes, goes = (secondary_entries(rows, name) for rows in (are, were))
        entries[name] = _without(comes, goes), _without(goes, comes)
    return GroupChange(group, _files(old), _files(new), _without(added, removed), _without(removed, added), entries)


def _unchanged(group: FileGroupId, old: FileSlice | None, new: FileSlice | None) -> GroupChange:
    return GroupChange(group, _files(old), _files(new), _NO_KEYS, _NO_KEYS)


def _without(keys: pa.Array, others: pa.Array) -> pa.Array:
    """The distinct keys that are not among the others."""
    left = keys.filter(pc.invert(pc.is_in(keys, value_set=others))) if len(others) else keys
    return pc.unique(left)


def _places(keys: Iterable[tuple[FileGroupId, pa.Array]]) -> pa.Table:
    tables = [
        pa.table([each, _repeated(group.partition_path, len(each)), _repeated(group.file_id, len(each))], schema=PLACES)
        for group, each in keys
        if len(each)
    ]
    return pa.concat_tables(tables) if tables else PLACES.empty_table()


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
