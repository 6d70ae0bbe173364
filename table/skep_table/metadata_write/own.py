"""The metadata table as a table of its own, in the context of its data table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from skep_format.names import META_FOLDER
from skep_format.storage import FileStatus, FolderStorage
from skep_format.table_config import METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, TableConfig
from skep_format.timeline.instant import Instant
from skep_format.timeline.plans import IndexPlan
from skep_table.lock import NoLock
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.partitions import unbuilt_partitions
from skep_table.table import HudiTable


def has_metadata_table(config: TableConfig) -> bool:
    """Whether the table has a metadata table, or one that is being built."""
    return bool(config.raw.get(METADATA_PARTITIONS) or config.raw.get(METADATA_PARTITIONS_INFLIGHT))


def building_partitions(config: TableConfig) -> tuple[str, ...]:
    """The partitions that an indexing action is building: writers add entries to them as to those that are there."""
    return tuple(name for name in unbuilt_partitions(config) if name not in config.metadata_partitions)


def with_building(table: HudiTable) -> HudiTable:
    """The snapshot as those take it who write entries: with the partitions that are being built among those it has."""
    building = building_partitions(table.config)
    if not building:
        return table
    return table.with_config(replace(table.config, metadata_partitions=(*table.config.metadata_partitions, *building)))


def planned_partitions(table: HudiTable, indexing: Instant) -> tuple[str, ...]:
    """The partitions that a pending indexing action is to build; none where its plan is empty or deleted."""
    plan = table.requested_plan(IndexPlan, indexing)
    infos = (plan.index_partition_infos or ()) if plan is not None else ()
    return tuple(each.metadata_partition_path for each in infos if each.metadata_partition_path)


def open_own(table: HudiTable) -> HudiTable:
    """A snapshot of the metadata table. The data table's lock is that of both. NotATableError where it is missing."""
    storage = FolderStorage(table.storage, FOLDER)
    return HudiTable.in_context(replace(table.context, storage=storage, lock=NoLock()))


def own_of_locked(table: HudiTable) -> HudiTable:
    """As `open_own`, of a snapshot that was taken under the lock, which is still held.

    What that has read of the metadata table is not read again: only who has the lock changes it, but for partitions
    that an indexing action is building.
    """
    known = table.metadata_table()
    if known is None or building_partitions(table.config):
        return open_own(table)
    context = table.context
    return cast("HudiTable", known.own).with_context(
        options=context.options, lock=NoLock(), clock=context.clock, events=context.events, runner=context.runner
    )


def files_by_partition(own: HudiTable) -> Iterator[list[FileStatus]]:
    """The files in the folder of each partition of the metadata table."""
    for folder in own.storage.list_folder("").folders:
        if folder != META_FOLDER:
            yield own.storage.list_prefix(folder)


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A partition of the metadata table. `state`: ready, or building while another process fills it."""

    name: str
    state: str
    file_groups: int
    base_files: int
    log_files: int
    base_bytes: int
    log_bytes: int


def partition_sizes(table: HudiTable, own: HudiTable) -> Iterator[MetadataPartition]:
    """Of the partitions that the settings of a table name; `own` is a snapshot of its metadata table."""
    view = own.view(metadata=False)
    ready = table.config.metadata_partitions
    for name in (*ready, *building_partitions(table.config)):
        slices = view.slices(name)
        bases = [each.base_file for each in slices if each.base_file is not None]
        logs = [log for each in slices for log in each.log_files]
        sizes = sum(base.size_bytes for base in bases), sum(log.size_bytes for log in logs)
        state = "ready" if name in ready else "building"
        yield MetadataPartition(name, state, len(slices), len(bases), len(logs), *sizes)


def size_metrics(table: HudiTable, own: HudiTable) -> dict[str, int]:
    """The sizes by the names that Hudi has for them (HoodieMetadataMetrics), of partitions that are ready."""
    return {
        f"{each.name}.{name}": value
        for each in partition_sizes(table, own)
        if each.state == "ready"
        for name, value in (
            ("totalBaseFileSizeInBytes", each.base_bytes),
            ("totalLogFileSizeInBytes", each.log_bytes),
            ("baseFileCount", each.base_files),
            ("logFileCount", each.log_files),
        )
    }
