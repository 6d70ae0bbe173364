"""The metadata table of a table that is written: kept in step with every action, or dropped before the first.

All of this is for the holder of the table's lock, except `abort_in_metadata_table`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from skep_table.clock import Clock, LateClock
from skep_table.commit.instants import timeline_clock
from skep_table.commit.options import METADATA_TABLE_POLICY, Concurrency, MetadataTablePolicy
from skep_table.errors import FormatError, MetadataTableError, NotATableError
from skep_table.instant_time import InstantTime
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.partitions import FILES
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.files import files_of_rollback
from skep_table.metadata_write import (
    create_metadata_table,
    delete_metadata_table,
    drop_indexes,
    has_metadata_table,
    open_own,
    roll_back_delta_commit,
    write_delta_commit,
)
from skep_table.options import Options
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.table_config import METADATA_PARTITIONS_INFLIGHT
from skep_table.timeline.instant import Instant
from skep_table.timeline.plans import RollbackMetadata

_KEPT: Final = frozenset({FILES})
_EARLIER_SECONDS: Final = 0.001

log = logging.getLogger("skep.commit")


def keeps_metadata_table(options: Options) -> bool:
    """Whether writes make a metadata table and keep it in step; otherwise they drop one that the table has."""
    return options.value(METADATA_ENABLE)


def metadata_clock(table: HudiTable) -> Clock:
    """The clock by which actions on the metadata table complete: a millisecond before that of the table.

    A compaction there takes the time at which the table's last action completed, and has to lie after all of its own.
    """
    return LateClock(timeline_clock(table), _EARLIER_SECONDS)


# -- before a write


def drop_unkept(table: HudiTable) -> HudiTable:
    """Drops what this write would not keep in step, and what does not agree with the table any more.

    That is the whole metadata table where it is not to be kept, or where some writer has not kept it; otherwise the
    indexes of which skep can't write the entries. Returns the snapshot after it. MetadataTableError where the options
    forbid that.
    """
    if not has_metadata_table(table.config):
        return table
    if not keeps_metadata_table(table.options):
        return drop_metadata_table(table)
    if table.metadata_table() is None:
        return _delete(table, "it does not list all commits, and is made again")
    inflight = table.config.raw.get(METADATA_PARTITIONS_INFLIGHT, "").split(",")
    unkept = sorted({*table.config.metadata_partitions, *filter(None, inflight)} - _KEPT)
    if not unkept:
        return table
    names = ", ".join(unkept)
    _check_may_drop(table, f"the indexes {names} in its metadata table")
    drop_indexes(table, _KEPT)
    log.warning("table %s: the indexes %s are dropped, skep keeps only the listing of files", table.config.name, names)
    table.context.events.emit("write.indexes_dropped", table=table.config.name, indexes=unkept)
    return table.reload()


def create_missing(table: HudiTable) -> HudiTable:
    """Makes the metadata table that the options ask for, unless it is there or pending actions must end first."""
    if not keeps_metadata_table(table.options) or has_metadata_table(table.config):
        return table
    return create_metadata_table(table, metadata_clock(table))


def drop_metadata_table(table: HudiTable) -> HudiTable:
    """Drops the metadata table as Hudi does before a write that does not maintain it: its listing would be outdated.

    Returns the snapshot after it. MetadataTableError when the options forbid it.
    """
    if not has_metadata_table(table.config):
        return table
    _check_may_drop(table, "a metadata table")
    return _delete(table, "a Hudi writer with metadata enabled rebuilds it")


def _delete(table: HudiTable, why: str) -> HudiTable:
    name, partitions = table.config.name, table.config.metadata_partitions
    delete_metadata_table(table.storage)
    log.warning("table %s: its metadata table is dropped; %s", name, why)
    table.context.events.emit("write.metadata_table_dropped", table=name, partitions=partitions)
    return table.reload()


def _check_may_drop(table: HudiTable, what: str) -> None:
    name, options = table.config.name, table.options
    if Concurrency.of(options).is_shared:
        raise MetadataTableError(
            f"table {name} has {what}, and other writers may be keeping it",
            hint="run all writers with the same hoodie.metadata options, and without indexes in the metadata table",
            table=name,
            found=table.config.metadata_partitions,
        )
    if options.value(METADATA_TABLE_POLICY) is MetadataTablePolicy.REFUSE:
        raise MetadataTableError(
            f"table {name} has {what}, which this write would have to drop",
            hint=f"{METADATA_TABLE_POLICY.key}={MetadataTablePolicy.DROP.value} allows it",
            table=name,
            found=table.config.metadata_partitions,
        )


# -- with an action


def record_in_metadata_table(table: HudiTable, time: InstantTime, updates: Sequence[PartitionUpdate]) -> None:
    """Writes what the action `time` changes into the metadata table, before the action completes.

    A metadata table to which that can't be added is dropped: readers then list the storage.
    """
    try:
        write_delta_commit(open_own(table), time, updates, metadata_clock(table))
    except (FormatError, NotATableError) as error:
        _delete(table, error.message)


def record_rollback(table: HudiTable, rollback: Instant, metadata: RollbackMetadata) -> None:
    """Records what a rollback leaves behind its target's own entries, which `abort_in_metadata_table` has undone.

    These are log files with command blocks, and deleted files of a target that a compaction has merged already.
    """
    if not has_metadata_table(table.config):
        return
    try:
        known = MetadataTable.open(table)
    except NotATableError:
        return
    if known is None:
        return
    listed = {path: {file.name for file in known.files(path)} for path in metadata.partition_metadata}
    update = files_of_rollback(metadata, listed)
    if update is not None:
        record_in_metadata_table(table, rollback.requested_time, [update])


def abort_in_metadata_table(table: HudiTable, time: InstantTime) -> None:
    """Undoes what the action `time` has written into the metadata table, if anything."""
    if not has_metadata_table(table.config):
        return
    try:
        own = open_own(table)
        if own.timeline.contains(time):
            roll_back_delta_commit(own, time)
    except NotATableError:
        return
    except FormatError as error:
        _delete(table, error.message)
