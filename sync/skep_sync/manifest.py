"""Tables for engines that know nothing of Hudi: an entry over lists of the newest base files.

Below `.hoodie/.skep/manifest` of the table each partition has a folder with one file, the list of its base files. The
entry's partitions lie there, with Hive's SymlinkTextInputFormat, which engines read as "the files that these lists
name". It is the read-optimized view: what is in log files only is not seen. A list is replaced in one step before the
metastore is altered, so readers of one partition see one state of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import Column, TableEntry
from skep_catalog.entries import WantedEntries, WantedEntry
from skep_catalog.entry_options import Strategy
from skep_format.errors import UnsupportedError
from skep_format.names import BaseFormat
from skep_format.storage import Storage
from skep_sync.options import SyncOptions, TargetKind
from skep_sync.planning.ahead import Ahead, Registered
from skep_sync.planning.changes import PartitionChanges, TimelineState, each_path
from skep_sync.planning.plan import EntryLayout
from skep_sync.planning.planner import SYMLINKS, Planner, target_of
from skep_sync.planning.steps import Manifest, Step, SyncPlan, WriteManifests
from skep_sync.sync_lock import as_sync_error
from skep_table.table import HudiTable
from skep_table.view import FileSlice

FOLDER: Final = ".hoodie/.skep/manifest"
_FILE: Final = "files"
_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat"


@contextmanager
def planning(
    table: HudiTable,
    metastore: EntryCatalog,
    database: str | None,
    name: str | None,
    options: SyncOptions | Mapping[str, object] | None,
    *,
    full: bool = False,
    ahead: Ahead | None = None,
) -> Iterator[Planner]:
    """The planner of a table for the kind of target that the options ask for. Errors of the block are SyncErrors."""
    settings = SyncOptions.of(options)
    database, name = target_of(table, database, name)
    kind = ManifestPlanner if settings.kind is TargetKind.MANIFEST else Planner
    with as_sync_error(database, name, table.storage.root):
        yield kind(table, metastore, database, name, settings, full or not settings.incremental, ahead)


def manifest_path(partition_path: str) -> str:
    """The list of a partition, relative to the table."""
    return "/".join(filter(None, (FOLDER, partition_path, _FILE)))


class ManifestPlanner(Planner):
    """Plans one entry for the read-optimized view, and the lists that it reads."""

    def plan(self) -> SyncPlan:
        """Lists first: an entry is never ahead of them."""
        plan = super().plan()
        return replace(plan, steps=tuple(sorted(plan.steps, key=lambda step: not isinstance(step, WriteManifests))))

    def look(self) -> tuple[TimelineState, WantedEntries]:
        if self.table.config.base_format is not BaseFormat.PARQUET:
            problem = f"lists of base files are for Parquet, not {self.table.config.base_format.value}"
            raise self.table.error(UnsupportedError, problem)
        plain = replace(self.options.entry, strategy=Strategy.RO, as_datasource=False)
        self.options = replace(self.options, entry=plain)
        history, wanted = super().look()
        return history, replace(wanted, entries=tuple(map(self._over_lists, wanted.entries)))

    def _over_lists(self, entry: WantedEntry) -> WantedEntry:
        storage = replace(
            entry.table.storage,
            location=f"{self.base_path}/{FOLDER}",
            input_format=SYMLINKS,
            output_format=_OUTPUT,
        )
        return replace(entry, table=replace(entry.table, storage=storage))

    def _layout(self, columns: tuple[Column, ...]) -> EntryLayout:
        return replace(super()._layout(columns), base_path=f"{self.base_path}/{FOLDER}")

    def _needs_changes(self, wanted: TableEntry) -> bool:  # noqa: ARG002 - of whatever table
        return True

    def _of_partitions(
        self, wanted: TableEntry, actual: TableEntry | None, changes: PartitionChanges, known: Registered | None
    ) -> tuple[list[Step], list[str]]:
        steps, touched = super()._of_partitions(wanted, actual, changes, known) if wanted.partition_keys else ([], [])
        lists = self._lists(changes)
        return [*([WriteManifests(wanted, lists)] if lists else []), *steps], touched

    def _lists(self, changes: PartitionChanges) -> tuple[Manifest, ...]:
        """Of the partitions in question those whose lists are not as they should be; emptied ones get empty lists."""
        from skep_table.query.cleaned import files_deleted, is_outdated

        view, storage = self.table.view(), self.table.storage

        def wanted(path: str) -> Manifest | None:
            slices = view.slices(path) if path in changes.live else []
            self._refuse_parts(slices)
            files = sorted(slice_.base_file.path for slice_ in slices if slice_.base_file is not None)
            made = Manifest(manifest_path(path), tuple(map(storage.uri, files)))
            return None if _known(storage, made.path) == made.files else made

        lists = tuple(filter(None, each_path(wanted, sorted(changes.live | changes.emptied))))
        if is_outdated(self.table):
            raise files_deleted(self.table, "lists of its files would lack some")
        return lists

    def _refuse_parts(self, slices: Iterable[FileSlice]) -> None:
        """UnsupportedError for files whose rows are not complete without others."""
        from skep_table.slices.bootstrap import METADATA_BOOTSTRAP
        from skep_table.slices.history import names_in_file, schema_history

        history = schema_history(self.table)
        for base in (slice_.base_file for slice_ in slices):
            if base is None:
                continue
            skeleton = base.name.instant_time == METADATA_BOOTSTRAP
            if skeleton or names_in_file(history, base.name.instant_time):
                what = "a skeleton of a bootstrap" if skeleton else "a file with columns that were renamed since"
                problem = f"{base.path} is {what}, which lists of files can't express"
                hint = "cluster the table, which rewrites its files"
                raise self.table.error(UnsupportedError, problem, hint=hint, path=base.path)

    def _is_own_kind(self, actual: TableEntry) -> bool:
        """Over lists of skep's: this table's, or those it had before it moved."""
        location = (actual.storage.location or "").rstrip("/")
        return actual.storage.input_format == SYMLINKS and location.endswith(f"/{FOLDER}")

    def _earlier_views(self, wanted: Mapping[str, TableEntry | None]) -> list[Step]:  # noqa: ARG002 - there are none
        return []


def _known(storage: Storage, path: str) -> tuple[str, ...]:
    """The files that a list names; none where there is no list."""
    try:
        return tuple(storage.read(path).decode().splitlines())
    except FileNotFoundError:
        return ()
