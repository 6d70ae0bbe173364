"""Whether a table can be written: its kind, and its version, which may not change during a write."""

from __future__ import annotations

from skep_format.errors import TableMismatchError, TableVersionError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.table_config import TableConfig
from skep_format.table_config.keys import CDC_ENABLED
from skep_format.timeline.write import remove_stages
from skep_format.versions import DEFAULT, format_of, known_versions
from skep_table.commit.parts.metadata_table import drop_unkept
from skep_table.slices.bootstrap import folders_left
from skep_table.table import HudiTable


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


def check_current(config: TableConfig, root: str) -> None:
    """TableVersionError for a table of a version that is only read."""
    if not format_of(config).is_written:
        written = ", ".join(map(str, known_versions()))
        raise TableVersionError(
            f"table {config.name} at {root} has version {config.version}, which is read, and upgraded before it is"
            f" written; skep writes versions {written}",
            hint=f"skep upgrade {config.name} --to {DEFAULT.version}, or write with hoodie.write.auto.upgrade=true",
            table=config.name,
            path=root,
            found=config.version,
            expected=written,
        )


def check_writable(config: TableConfig, root: str) -> None:
    """UnsupportedError for kinds of tables that are not written, TableVersionError for versions that are not."""
    check_current(config, root)
    refused = {
        f"base files in {config.base_format.value}": config.base_format is BaseFormat.HFILE,
        f"change data ({CDC_ENABLED}=true) without meta columns": config.cdc_enabled
        and not config.populate_meta_fields,
    }
    for what, found in refused.items():
        if found:
            raise UnsupportedError(
                f"table {config.name} at {root}: {what} can't be written yet", table=config.name, path=root
            )


def check_bootstrapped(table: HudiTable) -> None:
    """TableMismatchError for a table of which a bootstrap has made a part, and was ended before the rest."""
    if folders_left(table):
        raise TableMismatchError(
            f"table {table.config.name} at {table.storage.root}: its bootstrap was ended before the folders of mode"
            " FULL_RECORD were written",
            hint="repeat the bootstrap, which goes on there, or roll it back",
            table=table.config.name,
            path=table.storage.root,
        )


def check_own_files(table: HudiTable) -> None:
    """UnsupportedError for a table over files of another table format: what made it would undo any change."""
    if table.has_external_files:
        raise UnsupportedError(
            f"table {table.config.name} at {table.storage.root} can't be written: it is metadata over files of another"
            " table format, made by Apache XTable or the like",
            hint="write the table of that format, and sync it again; or copy the rows into a table of their own",
            table=table.config.name,
            path=table.storage.root,
        )


def take_lock_over(table: HudiTable) -> HudiTable:
    """A snapshot for a new holder of the table's lock. A completion that an earlier holder has staged can't go on.

    TableVersionError for a table of a version that is only read.
    """
    fresh = taken_over(table)
    check_current(fresh.config, fresh.storage.root)
    return fresh


def taken_over(table: HudiTable) -> HudiTable:
    """The same for a table of any version."""
    check_own_files(table)
    if table.context.lock.leased and table.storage.flags.atomic_rename:
        remove_stages(table.storage)
    return table.reload()


def prepared(table: HudiTable) -> HudiTable:
    """A snapshot under the lock of a table that may be changed: a metadata table that is not kept is dropped."""
    return drop_unkept(take_lock_over(table))
