"""Whether a table can be written:

its kind, and its version, which may not change during a write. Its metadata table, which skep does not maintain, is
dropped.
"""

from __future__ import annotations

import logging

from skep_table.commit.options import METADATA_TABLE_POLICY, Concurrency, MetadataTablePolicy
from skep_table.errors import MetadataTableError, TableVersionError, UnsupportedError
from skep_table.names import META_FOLDER, BaseFormat
from skep_table.options import warn_ineffective
from skep_table.storage import Storage
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.table_config import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    TableConfig,
    update_table_config,
)
from skep_table.timeline.write import remove_stages

METADATA_FOLDER = f"{META_FOLDER}/metadata"
_INDEX_DEFINITIONS = f"{META_FOLDER}/.index_defs/index.json"

log = logging.getLogger("skep.commit")


def check_version(began: HudiTable, now: HudiTable) -> None:
    """TableVersionError where another writer changed the table's version between two snapshots.

    What was planned or written for the old version does not fit the new one: keys and names of files may differ.
    """
    found, expected = now.config.version, began.config.version
    if found != expected:
        raise TableVersionError(
            f"table {now.config.name} at {now.storage.root} was version {expected} when this operation began, and"
            f" another writer made it version {found}",
            hint="repeat the operation. A Hudi 1.x writer upgrades a table unless it runs with"
            f" hoodie.write.auto.upgrade=false and hoodie.write.table.version={expected}",
            table=now.config.name,
            path=now.storage.root,
            found=found,
            expected=expected,
        )


def check_writable(config: TableConfig, root: str) -> None:
    """UnsupportedError for kinds of tables that are not written."""
    refused = {
        f"base files in {config.base_format.value}": config.base_format is not BaseFormat.PARQUET,
        "tables with change data capture (hoodie.table.cdc.enabled=true)": config.cdc_enabled,
    }
    for what, found in refused.items():
        if found:
            raise UnsupportedError(
                f"table {config.name} at {root}: {what} can't be written yet", table=config.name, path=root
            )


def take_lock_over(table: HudiTable) -> HudiTable:
    """A snapshot for a new holder of the table's lock. A completion that an earlier holder has staged can't go on."""
    if table.context.lock.leased and table.storage.flags.atomic_rename:
        remove_stages(table.storage)
    return table.reload()


def prepared(table: HudiTable) -> HudiTable:
    """A snapshot under the lock of a table that may be changed: its metadata table is dropped."""
    return drop_metadata_table(take_lock_over(table))


def has_metadata_table(config: TableConfig) -> bool:
    """Whether the table has a metadata table, or one that is being built."""
    return bool(config.raw.get(METADATA_PARTITIONS) or config.raw.get(METADATA_PARTITIONS_INFLIGHT))


def drop_metadata_table(table: HudiTable) -> HudiTable:
    """Drops the metadata table as Hudi does before a write that does not maintain it: its listing would be outdated.

    Called with the lock held. Returns the snapshot after it. MetadataTableError when the options forbid it.
    """
    options = table.options
    if options.value(METADATA_ENABLE):
        warn_ineffective(
            f"option {METADATA_ENABLE.key}=true has no effect on writes: skep does not write metadata tables yet. The"
            " table is written without one, one that it has is dropped, and readers list its files in the storage"
        )
    if not has_metadata_table(table.config):
        return table
    name = table.config.name
    if Concurrency.of(options).is_shared:
        raise MetadataTableError(
            f"table {name} has a metadata table, and other writers may be keeping it",
            hint="run all writers with hoodie.metadata.enable=false",
            table=name,
            found=table.config.metadata_partitions,
        )
    if options.value(METADATA_TABLE_POLICY) is MetadataTablePolicy.REFUSE:
        raise MetadataTableError(
            f"table {name} has a metadata table, which this write would have to drop",
            hint=f"{METADATA_TABLE_POLICY.key}={MetadataTablePolicy.DROP.value} allows it",
            table=name,
            found=table.config.metadata_partitions,
        )
    delete_metadata_table(table.storage)
    log.warning("table %s: its metadata table is dropped; a Hudi writer with metadata enabled rebuilds it", name)
    table.context.events.emit("write.metadata_table_dropped", table=name, partitions=table.config.metadata_partitions)
    return table.reload()


def delete_metadata_table(storage: Storage) -> None:
    """First the properties that make readers trust it, then the files (format guide 7.1)."""
    update_table_config(storage, {METADATA_PARTITIONS: None, METADATA_PARTITIONS_INFLIGHT: None})
    storage.delete_folder(METADATA_FOLDER)
    storage.delete(_INDEX_DEFINITIONS)
