"""Which record keys a commit brings into file groups, and takes out of them, by their merged slices before and after.

What the stats of a commit count is taken only where it proves that the keys of a base file stayed (format guide 16.5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_table.names import FileGroupId
from skep_table.schema.types import RECORD_KEY
from skep_table.slices.read import read_slice
from skep_table.table import HudiTable
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.view import FileSlice, FileView

_SAME_KEYS: Final = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
_NO_KEYS: Final = pa.array([], pa.string())
_PLACES: Final = pa.schema([("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string())])

Files = tuple[str, ...]


@dataclass(frozen=True)
class GroupChange:
    """The keys that came into a file group and went out of it, between the slices of these files."""

    group: FileGroupId
    before: Files
    after: Files
    added: pa.Array
    removed: pa.Array


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
    before: HudiTable, after: HudiTable, metadata: CommitMetadata, known: Mapping[FileGroupId, GroupChange]
) -> dict[FileGroupId, GroupChange]:
    """The changes of each file group that a commit wrote or replaced; without those in which all keys stay.

    `after` is the table with the commit. What is `known` of slices with the same files is not read again.
    """
    if metadata.operation_type in _SAME_KEYS:
        return {}
    slices = list(_changed_slices(before.view(), after.view(), metadata))
    fresh = [each for each in slices if not _is_known(known, *each)]
    done = before.context.threads.map(partial(_compared, before, after), fresh)
    found = {each.group: each for each in done}
    found |= {group: known[group] for group, *_ in slices if group not in found}
    return found


def slice_keys(table: HudiTable, slice_: FileSlice | None) -> pa.Array:
    """The record keys of the rows of a slice; none without one."""
    if slice_ is None:
        return _NO_KEYS
    batches = read_slice(table, slice_, columns=[RECORD_KEY])
    keys = pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string())
    return keys.combine_chunks()


def _changed_slices(
    before: FileView, after: FileView, metadata: CommitMetadata
) -> Iterator[tuple[FileGroupId, FileSlice | None, FileSlice | None]]:
    groups: dict[str, set[str]] = defaultdict(set)
    for partition, stats in metadata.partition_to_write_stats.items():
        groups[partition] |= {stat.file_id for stat in stats if stat.path and not _keeps_keys(stat)}
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


def _is_known(
    known: Mapping[FileGroupId, GroupChange], group: FileGroupId, old: FileSlice | None, new: FileSlice | None
) -> bool:
    change = known.get(group)
    return change is not None and (change.before, change.after) == (_files(old), _files(new))


def _files(slice_: FileSlice | None) -> Files:
    return slice_.file_names if slice_ is not None else ()


def _compared(
    before: HudiTable, after: HudiTable, changed: tuple[FileGroupId, FileSlice | None, FileSlice | None]
) -> GroupChange:
    group, old, new = changed
    were, are = slice_keys(before, old), slice_keys(after, new)
    return GroupChange(group, _files(old), _files(new), _without(are, were), _without(were, are))


def _without(keys: pa.Array, others: pa.Array) -> pa.Array:
    """The distinct keys that are not among the others."""
    left = keys.filter(pc.invert(pc.is_in(keys, value_set=others))) if len(others) else keys
    return pc.unique(left)


def _places(keys: Iterable[tuple[FileGroupId, pa.Array]]) -> pa.Table:
    tables = [
        pa.table(
            [each, _repeated(group.partition_path, len(each)), _repeated(group.file_id, len(each))], schema=_PLACES
        )
        for group, each in keys
        if len(each)
    ]
    return pa.concat_tables(tables) if tables else _PLACES.empty_table()


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
