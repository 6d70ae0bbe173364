"""Repairs by the names of Hudi's shell, changes of a table's settings and of its type, as methods of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skep.base.arguments import checks_arguments
from skep.base.keywords import takes_options
from skep.base.times import Moment, instant_of
from skep.services.handle import TableHandle
from skep_format.errors import InputError
from skep_format.names import FileGroupId
from skep_format.table_config import TableType

if TYPE_CHECKING:
    from skep_table.services.cleaning.clean import UnreadableClean
    from skep_table.services.compaction.planned import PlannedSlice
    from skep_table.services.repairs.duplicates import DuplicateRows, MovedPartition
    from skep_table.services.repairs.metafiles import PartitionMetafile
    from skep_table.services.repairs.settings import SettingsChange
    from skep_table.write.flow import TableWriter
    from skep_table.write.result import WriteResult


@checks_arguments
class RepairMethods(TableHandle):
    """Mixed into `Table`; see docs/hudi-cli.md. With `dry_run` a call changes nothing, and returns what it would do."""

    def commit(
        self, write: Callable[[TableWriter], WriteResult], options: Mapping[str, object], frame: object = None
    ) -> WriteResult:
        """See `Table.commit`."""
        raise NotImplementedError

    @takes_options
    def change_settings(
        self, changes: Mapping[str, str | None], *, dry_run: bool = False, **options: object
    ) -> SettingsChange:
        """Sets properties of the table, and removes those given as None. All others stay as they are.

        InputError for what states how the table's files are, and for another value of what its rows depend on.
        """
        from skep_table.services.repairs.settings import change_settings

        change = change_settings(self._locked(options), changes, plan=dry_run)
        return self._reloaded(change, dry_run)

    @takes_options
    def overwrite_settings(
        self, properties: Mapping[str, str], *, dry_run: bool = False, **options: object
    ) -> SettingsChange:
        """Replaces all properties of the table. InputError where they state other files than those of the table."""
        from skep_table.services.repairs.settings import overwrite_settings

        change = overwrite_settings(self._locked(options).context, properties, plan=dry_run)
        return self._reloaded(change, dry_run)

    @takes_options
    def change_table_type(
        self, to: str, *, compact: bool = True, dry_run: bool = False, **options: object
    ) -> SettingsChange:
        """Makes the table copy-on-write ("COW") or merge-on-read ("MOR"); to "COW" it carries out pending plans and
        compacts first. `compact=False`: InputError where that is needed."""
        from skep_table.upgrade.table_type import change_table_type
        from skep_table.write.planning.settings import TYPE_WORDS

        text = TYPE_WORDS.get(to.lower(), to.upper())
        if text not in {kind.value for kind in TableType}:
            raise InputError(f"there is no table type {to!r}", option="to", found=to, expected="COW or MOR")
        change = change_table_type(self._locked(options), TableType(text), compacts=compact, plan=dry_run)
        if not dry_run and not change.is_empty:
            self._reloaded(change, dry_run)
            self.sync_changed()
        return change

    @takes_options
    def add_partition_metafiles(self, *, dry_run: bool = False, **options: object) -> list[PartitionMetafile]:
        """Writes the metafiles of partitions that have lost theirs; returns all folders with data files."""
        from skep_table.services.repairs.metafiles import add_metafiles

        return add_metafiles(self._locked(options), plan=dry_run)

    @takes_options
    def migrate_partition_metafiles(self, *, dry_run: bool = False, **options: object) -> list[PartitionMetafile]:
        """Brings the metafiles of all partitions to the format of base files, and the table to make further ones so."""
        from skep_table.services.repairs.metafiles import migrate_metafiles

        found = migrate_metafiles(self._locked(options), plan=dry_run)
        return self._reloaded(found, dry_run)

    @takes_options
    def delete_unreadable_cleans(self, *, dry_run: bool = False, **options: object) -> list[UnreadableClean]:
        """Deletes pending cleans whose plan can't be read, which keep every later clean from running."""
        from skep_table.services.cleaning.clean import delete_unreadable_cleans

        return delete_unreadable_cleans(self._locked(options), plan=dry_run)

    @takes_options
    def deduplicate(
        self,
        partition: str,
        *,
        keep: str = "insert_type",
        copy_to: str | None = None,
        dry_run: bool = False,
        **options: object,
    ) -> DuplicateRows:
        """Removes rows of a partition whose key another one has, by one commit, and returns all of them.

        `keep`, by Hudi's words: the row of the newest commit stays; of several of that commit `update_type` and
        `upsert_type` keep the last, and `insert_type` is an InputError. `copy_to`: a folder that gets a file with the
        rows of the partition that stay.
        """
        from skep_table.services.repairs.duplicates import (
            DedupeType,
            copy_rows_that_stay,
            find_duplicates,
            remove_duplicates,
        )

        if keep not in {kind.value for kind in DedupeType}:
            known = ", ".join(kind.value for kind in DedupeType)
            raise InputError(f"there is no dedupe type {keep!r}", option="keep", found=keep, expected=known)
        table = self._locked(options).reload()
        found = find_duplicates(table, partition, DedupeType(keep))
        if copy_to is not None:
            copy_rows_that_stay(table, partition, DedupeType(keep), copy_to)
        if not dry_run:
            remove_duplicates(
                table, found, DedupeType(keep), lambda change, more: self.commit(change, {**options, **more})
            )
        return found

    @takes_options
    def rename_partition(self, partition: str, to: str, *, dry_run: bool = False, **options: object) -> MovedPartition:
        """Brings all rows of a partition to the path `to`, by one commit; their partition columns get its values.

        InputError where rows are there already.
        """
        from skep_table.services.repairs.duplicates import rename_partition

        table = self._locked(options).reload()
        return rename_partition(table, partition, to, None if dry_run else lambda change: self.commit(change, options))

    @takes_options
    def move_deprecated_partitions(self, *, dry_run: bool = False, **options: object) -> list[MovedPartition]:
        """Brings the rows of partitions named `default`, the partition of nulls before Hudi 0.12, to that of today."""
        from skep_table.services.repairs.duplicates import move_deprecated

        table = self._locked(options).reload()
        return move_deprecated(table, None if dry_run else lambda change: self.commit(change, options))

    @takes_options
    def validate_compaction(self, instant: Moment, **options: object) -> list[PlannedSlice]:
        """Compares the plan of a pending compaction with the files of the table. Changes nothing."""
        from skep_table.services.compaction.planned import validate_compaction

        return validate_compaction(self._locked(options).reload(), instant_of(self._hudi, instant, "instant"))

    @takes_options
    def unschedule_compaction(
        self,
        instant: Moment,
        *,
        file_id: str | None = None,
        partition: str = "",
        dry_run: bool = False,
        **options: object,
    ) -> list[PlannedSlice]:
        """Takes a planned compaction off the timeline, or the file group `file_id` of `partition` out of its plan.

        InputError for one that is carried out; UnsupportedError where a write went on from it (table version 6).
        """
        from skep_table.services.compaction.planned import unschedule_compaction

        time = instant_of(self._hudi, instant, "instant")
        group = None if file_id is None else FileGroupId(partition, file_id)
        return unschedule_compaction(self._locked(options), time, group, plan=dry_run)

    def _reloaded(self, done: Any, dry_run: bool) -> Any:
        if not dry_run:
            self._hudi = self._hudi.reload()
        return done
