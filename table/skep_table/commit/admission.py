"""May this table be written to, and what has to happen before: its version, its kind, its metadata table."""

from __future__ import annotations

import logging

from skep_table.commit.options import CONCURRENCY_MODE, METADATA_TABLE_POLICY, ConcurrencyMode, MetadataTablePolicy
from skep_table.errors import MetadataTableError, TableVersionError, UnsupportedError
from skep_table.events import Events
from skep_table.names import META_FOLDER, BaseFormat
from skep_table.options import Options, warn_ineffective
from skep_table.storage import Storage
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.table_config import (
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    TableConfig,
    update_table_config,
)

WRITABLE_VERSIONS = (6,)
METADATA_FOLDER = f"{META_FOLDER}/metadata"
_INDEX_DEFINITIONS = f"{META_FOLDER}/.index_defs/index.json"

log = logging.getLogger("skep.commit")


def check_version(config: TableConfig, root: str) -> None:
    """TableVersionError for a version that skep reads but does not write."""
    if config.version not in WRITABLE_VERSIONS:
        raise TableVersionError(
            f"table {config.name} at {root} has version {config.version}, skep writes version 6",
            hint="a Hudi 1.x writer upgrades a table unless it runs with hoodie.write.auto.upgrade=false and"
            " hoodie.write.table.version=6",
            table=config.name,
            path=root,
            found=config.version,
            expected=WRITABLE_VERSIONS,
        )


def check_writable(config: TableConfig, root: str) -> None:
    """TableVersionError for a version that skep reads but does not write; UnsupportedError for kinds of tables."""
    check_version(config, root)
    refused = {
        f"base files in {config.base_format.value}": config.base_format is not BaseFormat.PARQUET,
        "tables with change data capture (hoodie.table.cdc.enabled=true)": config.cdc_enabled,
    }
    for what, found in refused.items():
        if found:
            raise UnsupportedError(
                f"table {config.name} at {root}: {what} can't be written yet", table=config.name, path=root
            )


def has_metadata_table(config: TableConfig) -> bool:
    return bool(config.raw.get(METADATA_PARTITIONS) or config.raw.get(METADATA_PARTITIONS_INFLIGHT))


def drop_metadata_table(table: HudiTable, options: Options, events: Events) -> HudiTable:
    """Before a write that does not keep the metadata table: its listing would be stale, so it goes, in Hudi's own way.

    To be called with the lock held. MetadataTableError when the options forbid it.
    """
    if options.value(METADATA_ENABLE):
        warn_ineffective(
            f"option {METADATA_ENABLE.key}=true has no effect on writes: skep does not write metadata tables yet. The"
            " table is written without one, one that it has is dropped, and readers list its files in the storage"
        )
    if not has_metadata_table(table.config):
        return table
    name = table.config.name
    if options.value(CONCURRENCY_MODE) is ConcurrencyMode.OPTIMISTIC:
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
    events.emit("write.metadata_table_dropped", table=name, partitions=table.config.metadata_partitions)
    return table.reload()


def delete_metadata_table(storage: Storage) -> None:
    """First the properties that make readers trust it, then the files (format guide 7.1)."""
    update_table_config(storage, {METADATA_PARTITIONS: None, METADATA_PARTITIONS_INFLIGHT: None})
    storage.delete_folder(METADATA_FOLDER)
    storage.delete(_INDEX_DEFINITIONS)
