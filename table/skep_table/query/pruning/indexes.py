"""Which partitions and file groups a filter leaves before anything is listed: by indexes of the metadata table.

These indexes describe the table as it is now. An index that may not be true for the snapshot that is read is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.instant_time import CompletionTime, InstantTime
from skep_format.names import FileGroupId
from skep_format.schema.arrow import from_arrow_type
from skep_format.schema.types import RECORD_KEY
from skep_format.table_config import MergeMode
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.metadata import WriteOperation
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import RECORD_INDEX, short_name
from skep_table.metadata_table.records.secondary_index import has_known_texts, secondary_texts
from skep_table.query.filters.predicate import Bounds, ColumnRef, Predicate
from skep_table.query.options import QueryType
from skep_table.query.pruning.partitions import PartitionValues
from skep_table.query.pruning.slices import MOST_KEYS, in_byte_order, record_keys
from skep_table.table import HudiTable

_MOST_VALUES: Final = 100  # that are looked up in a secondary index
_MOST_SECONDARY_BYTES: Final = 8 << 20  # of a secondary index are read: a value may have very many rows
_MOST_LATE: Final = 100  # writes that completed late, of which the partitions are asked for
_LIKE_NUMBERS: Final = r"^[-+.0-9]"
_LIKE_DATES: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"


def metadata_of_snapshot(table: HudiTable, query: QueryType, as_of: InstantTime | None) -> MetadataTable | None:
    """The metadata table if its indexes are true for what the query sees; None if there is none, or they may not be.

    They are for snapshots of the present. A read-optimized query of a merge-on-read table sees rows that were deleted
    or have moved since.
    """
    if query is not QueryType.SNAPSHOT and (query is not QueryType.READ_OPTIMIZED or table.config.is_mor):
        return None
    if as_of is not None and any(each.requested_time.is_after(as_of) for each in table.timeline):
        return None
    metadata = table.metadata_to_read()
    if metadata is None or not metadata.is_of_snapshot:
        return None
    last = table.timeline.data().completed().last()
    if last is not None and not metadata.has_delta_commit(last.requested_time):
        # It was made after the last write. Was it made with writes that this snapshot does not have?
        now = table.timeline_now().data().completed()
        if [each.requested_time for each in now] != [each.requested_time for each in table.timeline.data().completed()]:
            return None
    return metadata


def prune_by_partition_statistics(
    table: HudiTable, metadata: MetadataTable, partitions: Sequence[str], predicate: Predicate
) -> list[str]:
    """The partitions that their statistics can't exclude."""
    makes_values = table.config.is_mor and table.config.merge_mode is MergeMode.CUSTOM
    if makes_values or not partitions or not _in_order(table.timeline.data().completed()):
        return list(partitions)
    rows = metadata.statistics_of_partitions(RECORD_KEY, pa.string(), partitions)
    if rows is None:
        return list(partitions)
    found = (
        (each.path, _bounds(metadata, each, partitions, rows["value_count"])) for each in predicate.compared_columns
    )
    wanted = predicate.may_match({path: known for path, known in found if known is not None}, len(partitions))
    unsure = frozenset[str]() if wanted.all() else _completed_late(table)
    if unsure is None:
        return list(partitions)
    return [path for path, may in zip(partitions, wanted.tolist(), strict=True) if may or path in unsure]


def _in_order(writes: Iterable[Instant]) -> bool:
    """Whether writes completed in the order in which they were requested.

    Hudi merges the statistics of a partition's files as of the requested time: without the files of writes that were
    requested later and completed earlier.
    """
    done = [each.completion_time for each in writes]
    return all(
        first is not None and second is not None and first.is_at_or_before(second) for first, second in pairwise(done)
    )


def _completed_late(table: HudiTable) -> frozenset[str] | None:
    """The partitions of archived writes that completed after one that was requested later; None for too many writes.

    Their statistics stay as they are until the partition is written to again. Writes of older table versions, which
    have no completion time, were there before any statistics of partitions.
    """
    if table not in _late:
        data = (each for each in table.timeline.archived() if each.action in DATA_ACTIONS)
        writes = sorted(chain(data, table.timeline.data().completed()), key=lambda each: each.requested_time)
        first: CompletionTime | None = None
        late = []
        for write in reversed(writes):
            done = write.completion_time
            if first is not None and done is not None and first.is_before(done):
                late.append(write)
            else:
                first = done or first
        paths = (path for each in late[:_MOST_LATE] for path in table.commit_metadata(each).partition_to_write_stats)
        _late[table] = None if len(late) > _MOST_LATE else frozenset(paths)
    return _late[table]


_late: WeakKeyDictionary[HudiTable, frozenset[str] | None] = WeakKeyDictionary()


def _bounds(
    metadata: MetadataTable, column: ColumnRef, partitions: Sequence[str], rows: pa.ChunkedArray
) -> Bounds | None:
    """Statistics of a column by partition, unknown where some of `rows`, the partition's rows, may be missing in them.

    They are where a file has none, because it was written before the column was added or indexed. Footers without
    bounds, of a long text or of times in INT96, are merged as if all values were null. Floats have NaN too, and those
    that were widened are read with the digits of their text.
    """
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_binary(kind):
        return None
    stats = metadata.statistics_of_partitions(".".join(column.path), kind, partitions)
    if stats is None:
        return None
    certain = pc.equal(stats["value_count"], rows)
    if pa.types.is_string(kind):
        stats = in_byte_order(stats)
        certain = pc.and_(certain, pc.and_(_is_text(stats["min_value"]), _is_text(stats["max_value"])))
    if not (
        pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind)
    ):
        certain = pc.and_(certain, pc.equal(stats["null_count"], 0))
    known = (stats[name] for name in ("min_value", "max_value", "null_count", "value_count"))
    chosen = (pc.if_else(certain.fill_null(False), each, pa.scalar(None, each.type)) for each in known)
    return Bounds(*(each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in chosen))


def _is_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """False for texts that may come from numbers, of a column that was changed to text: they had another order."""
    numbers = pc.match_substring_regex(values, _LIKE_NUMBERS)
    return pc.or_(pc.invert(numbers), pc.match_substring_regex(values, _LIKE_DATES))


@dataclass(frozen=True, slots=True)
class MatchingGroups:
    """The file groups that can have a row that matches; `by` names the index that has them."""

    groups: frozenset[FileGroupId]
    by: str

    @property
    def partitions(self) -> list[str]:
        """The partition paths of the groups, sorted."""
        return sorted({group.partition_path for group in self.groups})


def places_of(
    table: HudiTable, metadata: MetadataTable, predicate: Predicate, partitions: PartitionValues
) -> MatchingGroups | None:
    """Where the rows that match are, by their record keys or a column with a secondary index.

    None where no index has them, or there are too many keys.
    """
    if RECORD_INDEX not in metadata.indexes:
        return None
    keys = record_keys(predicate, table.config)
    if keys is not None:
        return _places_of_keys(table, metadata, keys, predicate, partitions, "by the record index")
    if table.config.merge_mode is MergeMode.CUSTOM:
        return None  # the index has the values that Hudi's merger made
    for column, partition in metadata.secondary_indexes().items():
        values = predicate.equal_values(tuple(column.split(".")))
        if values is None or column in partitions.names:
            continue
        by_value = metadata.definitions[partition].is_by_value
        if not has_known_texts(from_arrow_type(values.type, partition), by_value=by_value):
            continue
        texts = secondary_texts(values.drop_null())
        found = metadata.record_keys_of(partition, texts, _MOST_SECONDARY_BYTES) if len(texts) <= _MOST_VALUES else None
        if found is not None and len(found) <= MOST_KEYS:
            by = f"by the secondary index {short_name(partition)}"
            return _places_of_keys(table, metadata, found, predicate, partitions, by)
    return None


def _places_of_keys(
    table: HudiTable,
    metadata: MetadataTable,
    keys: pa.Array,
    predicate: Predicate,
    partitions: PartitionValues,
    by: str,
) -> MatchingGroups | None:
    among: Sequence[str] | None = None
    if metadata.has_partitioned_record_index:
        if partitions.folder_filter(predicate) is None:
            return None
        among = partitions.select(metadata.partitions(), predicate)
    found = metadata.record_index(keys, among)
    if found is None or (pc.count_distinct(found["record_key"]).as_py() < len(keys) and _may_lack_keys(table)):
        return None
    rows = zip(found["partition_path"].to_pylist(), found["file_id"].to_pylist(), strict=True)
    return MatchingGroups(frozenset(FileGroupId(path, file_id) for path, file_id in rows), by)


def _may_lack_keys(table: HudiTable) -> bool:
    """Whether the record index may lack keys of live rows.

    Where Hudi overwrites or deletes a partition, it takes from the index all keys of its base files, those too of rows
    that had moved to another partition (format guide 16.5). It does not get them back: archived writes count, too.
    """
    if table not in _lacking:
        replaced = chain(
            table.timeline.completed().of(Action.REPLACE_COMMIT),
            (each for each in table.timeline.archived() if each.action is Action.REPLACE_COMMIT),
        )
        operations = (table.commit_metadata(each).operation_type for each in replaced)
        _lacking[table] = any(each is not WriteOperation.CLUSTER for each in operations)
    return _lacking[table]


_lacking: WeakKeyDictionary[HudiTable, bool] = WeakKeyDictionary()
