"""Looks at table and metastore, asking no more than it must, and hands what it finds to the pure planner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import Column, StorageDescriptor, TableEntry, partition_name, values_of_name
from skep_catalog.entries import OWNED_BY, WantedEntries, WantedEntry, is_hudi, wanted_entries
from skep_catalog.entry_options import PARTITION_FIELDS
from skep_catalog.lengths import too_long
from skep_format.clock import SYSTEM_CLOCK
from skep_format.errors import NoSuchTableError, TableMismatchError
from skep_format.names import DEFAULT_PARTITION
from skep_format.schema.types import META_FIELDS, TimestampType
from skep_format.table_config.keys import PARTITION_FIELDS as TABLE_PARTITION_FIELDS
from skep_sync.options import RELOCATE, Cascade, SyncOptions
from skep_sync.planning.ahead import Ahead, FoundPartitions, Registered
from skep_sync.planning.changes import PartitionChanges, TimelineState
from skep_sync.planning.columns import refused
from skep_sync.planning.descriptors import Drifted, drift
from skep_sync.planning.locations import registered_there
from skep_sync.planning.plan import (
    EntryLayout,
    alike,
    distinct,
    entry_steps,
    fitting,
    hidden_by,
    marker_of,
    merged,
    partition_steps,
    refusals,
)
from skep_sync.planning.steps import AddDatabase, AddPartitions, ChangeIndexes, DropEntry, Step, SyncPlan
from skep_sync.values import Extractor, is_number
from skep_table.table import HudiTable

SYMLINKS: Final = "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
"""The input format of entries that lie over lists of files."""

_LATELY: Final = 60.0
"""Seconds for which commits in the same second as the synced one are compared again: their writers sync soon after."""


def target_of(table: HudiTable, database: str | None = None, name: str | None = None) -> tuple[str, str]:
    """Where a table is registered: as asked for, else by its own database and name, else in `default`."""
    return (database or table.config.database or "default").lower(), (name or table.config.name).lower()


class Planner:
    """Collects what the pure planner needs, asking the metastore no more than it must."""

    def __init__(
        self,
        table: HudiTable,
        metastore: EntryCatalog,
        database: str,
        name: str,
        options: SyncOptions,
        full: bool = False,
        ahead: Ahead | None = None,
    ) -> None:
        self.table, self.metastore, self.options, self.full = table, metastore, options, full
        self.ahead = ahead
        self.database, self.name = database, name
        self.base_path = metastore.location(table.storage.uri(""))
        self.warnings: list[str] = []
        self.refused: list[str] = []
        self.drifted: dict[str, tuple[Drifted, ...]] = {}

    def plan(self) -> SyncPlan:
        """The plan. NoSuchTableError for a missing database, TableMismatchError for another table under the name."""
        history, wanted = self.look()
        actual = self._actual(wanted)
        if any(self._is_ahead(entry, history) for entry in actual.values()):
            # Another sync included a later commit than this snapshot has.
            self.table = self.table.reload()
            history, wanted = self.look()
        self.warnings += wanted.warnings
        steps: list[Step] = [] if any(actual.values()) else self._missing_database()
        complete = False
        for entry in wanted.entries:
            found = actual[entry.table.name]
            if found is not None:
                self._check_same(entry, found)
            entry_plan, entry_complete = self._entry(entry, found, history)
            steps += entry_plan
            if found is not None or entry_plan:
                # After the marker: an index that can't be made now holds up no partition, and is planned again.
                indexes = self.metastore.lacking_indexes(found or entry.table)
                steps += [] if indexes is None else [ChangeIndexes(entry.table, indexes)]
            complete |= entry_complete
        if (steps or self.full) and self.table.config.is_mor:
            steps += self._earlier_views(actual)
        return SyncPlan(
            self.base_path,
            self.database,
            self.name,
            history.point,
            tuple(steps),
            tuple(self.warnings),
            complete,
            actual,
            self.drifted,
            tuple(dict.fromkeys(self.refused)),
        )

    def look_ahead(self, paths: Collection[str], confirm: Callable[[], None]) -> Ahead:
        """What the plan of a commit into these partitions needs of the metastore, while the commit is not complete."""
        at = SYSTEM_CLOCK.monotonic()
        _, wanted = self.look()
        entries, found = self._actual(wanted), {}
        for entry in (each for each in entries.values() if each is not None and self._needs_changes(each)):
            names = self._layout(entry.partition_keys).all_names(paths)
            found[entry.name] = FoundPartitions(frozenset(names), self._located(entry, names))
        return Ahead(entries, found, confirm, at)

    def _actual(self, wanted: WantedEntries) -> Mapping[str, TableEntry | None]:
        names = [entry.table.name for entry in wanted.entries]
        known = None if self.ahead is None else self.ahead.entries_of(names)
        return self.metastore.find_tables(self.database, names) if known is None else known

    def look(self) -> tuple[TimelineState, WantedEntries]:
        """What the table is now, and what it should be in the metastore."""
        schema, history = self.table.schema(), TimelineState.of(self.table)
        options = self.options.entry
        properties = {**self.metastore.entry_parameters, **options.table_properties}
        options = replace(options, table_properties=properties)
        self._check_stated()
        keys = options.partition_fields or self.table.config.partition_fields
        times = {field.name for field in schema.fields if isinstance(field.type, TimestampType)}
        at = [index for index, name in enumerate(keys) if name in times]
        if at and self._has_texts(history, keys, at):
            options = replace(options, texts_of_timestamps=True)
        entries = wanted_entries(
            self.table.config,
            schema,
            self.base_path,
            self.database,
            self.name,
            options,
            owner=self.metastore.user,
            lengths=self.metastore.lengths,
        )
        for entry in entries.entries:
            self.metastore.check(entry.table)
        return history, entries

    def _has_texts(self, history: TimelineState, keys: tuple[str, ...], timestamps: list[int]) -> bool:
        """Whether the newest folders are named by timestamps as text. The option of Hudi's key generators for that is
        not in a table's settings."""
        layout = self._layout(tuple(Column(name.rpartition(".")[2], "string") for name in keys))
        for instant, _ in reversed(history.commits):
            paths = frozenset(self.table.commit_metadata(instant).partition_to_write_stats)
            known, _ = fitting(PartitionChanges(False, paths, frozenset(), lambda _: {}), layout)
            found = [layout.target(path).values for path in known.live]
            if texts := [values[at] for values in found for at in timestamps if values[at] != DEFAULT_PARTITION]:
                return not all(map(is_number, texts))
        return False

    def _entry(self, entry: WantedEntry, actual: TableEntry | None, history: TimelineState) -> tuple[list[Step], bool]:
        marker = marker_of(actual)
        point = history.point
        unfit = too_long(entry.table, self.metastore.lengths)
        if unfit:
            self.refused += unfit
            if actual is None:
                return [], False
            # Its partitions are kept up with the columns that the metastore has.
            entry = replace(entry, table=replace(entry.table, storage=_with_columns_of(entry.table, actual)))
        if actual is not None and self._is_ahead(actual, history):
            # Still ahead after a fresh look: that commit was rolled back or the table restored to an earlier one.
            self.warnings.append(
                f"table {actual.full_name} was synced up to {marker and marker.requested_time}, which is not on "
                "the timeline (rolled back or restored): all partitions are compared"
            )
        partitions: list[Step] = []
        complete = False
        touched: list[str] = []
        stale: tuple[Drifted, ...] = ()
        full = self.full
        if actual is not None and not registered_there(actual.storage.location, entry.table.storage.location):
            self._check_relocation(actual, entry.table)
            full = True
            self.warnings.append(
                f"{actual.full_name} is registered at {actual.storage.location}: it and all its partitions will be at "
                f"{entry.table.storage.location}"
            )
        reorder = actual is not None and full and self._is_disordered(actual, entry.table)
        news = full or marker != point or (marker is not None and bool(history.beside(marker, _LATELY)))
        if self._needs_changes(entry.table) and point is not None and news:
            changes = history.changes_since(None if full else marker)
            complete = changes.complete
            # Partitions get the descriptor that the entry will have: where it keeps an order of its own, they do, too.
            shown = entry.table if actual is None else merged(entry.table, actual, {}, full=full, reorder=reorder)
            registered = None
            if full and actual is not None and entry.table.partition_keys:
                registered, stale = self._look_at_all(actual, shown)
                self.drifted[actual.name] = stale
            before = len(self.refused)
            partitions, touched = self._of_partitions(shown, actual, changes, registered)
            if len(self.refused) > before:
                point = None  # what is missing is found again by the next sync
        if unfit:
            return partitions, complete
        if actual is None and self.table.config.is_mor:
            # So that a change of strategy drops what was created here, and nothing else.
            owned = {**entry.table.parameters, OWNED_BY: f"{self.database}.{self.name}"}
            entry = replace(entry, table=replace(entry.table, parameters=owned))
        in_one_step = self.metastore.compares_columns and not reorder
        if actual is not None and in_one_step and (warning := refusals(actual, merged(entry.table, actual, {}))):
            self.warnings.append(warning)
        steps = entry_steps(
            entry.table,
            actual,
            point,
            partitions,
            cascade=self.options.cascade,
            touched=touched,
            stale=stale,
            conditional=self.options.conditional,
            full=full,
            reorder=reorder,
        )
        return steps, complete

    def _is_disordered(self, actual: TableEntry, wanted: TableEntry) -> bool:
        """Whether an entry's columns are in an order that no sync left: in that of a sync, later columns come last.

        What the table began with is known by its first commit; where that was archived, by its meta columns and keys.
        """
        names = [column.name.lower() for column in actual.storage.columns]
        new = [column.name for column in wanted.storage.columns]
        if not refused(actual.storage.columns, wanted.storage.columns):
            return False
        first = self.table.timeline.data().completed().instants[:1]
        config = self.table.config
        began = {*META_FIELDS, *config.record_key_fields}
        archive = self.table.timeline.layout.archive_folder
        if first and not any(True for _ in self.table.storage.list_prefix(archive)):
            began |= {field.name for field in self.table.schema(first[0].requested_time).fields}
        began = {name.lower() for name in began}
        return [name for name in names if name in began and name in new] != [
            name for name in new if name in began and name in names
        ]

    def _needs_changes(self, wanted: TableEntry) -> bool:
        """Whether it matters which partitions were written."""
        return bool(wanted.partition_keys) and not self.options.no_partitions

    def _of_partitions(
        self, wanted: TableEntry, actual: TableEntry | None, changes: PartitionChanges, known: Registered | None
    ) -> tuple[list[Step], list[str]]:
        """The steps of an entry's partitions, and the names of those written, for changed columns."""
        layout = self._layout(wanted.partition_keys)
        all_paths = changes.live
        changes, refused = fitting(changes, layout)
        if actual is None and not changes.live:
            for path in sorted(all_paths):
                layout.target(path)  # where no path at all fits, the extractor's error comes before an entry
        registered = self._registered(actual, changes, layout) if known is None else known
        changes, others = distinct(changes, layout, registered, lambda path: bool(self.table.view().slices(path)))
        steps = partition_steps(wanted, changes, layout, registered, touch=self.options.touch)
        steps, hidden = self._without_hidden(steps, actual, registered, layout)
        self.refused += [*refused, *others, *hidden]
        touched = self.options.cascade is Cascade.TOUCHED
        return steps, sorted(set().union(*map(layout.names, changes.live))) if touched else []

    def _without_hidden(
        self, steps: list[Step], actual: TableEntry | None, registered: Registered, layout: EntryLayout
    ) -> tuple[list[Step], list[str]]:
        """The steps without partitions for which the metastore's database takes another one, and these by name.

        Most databases compare texts without the blanks at their end. A metastore that has `good1` passes `good1 ` over
        as known. Which database it has can't be asked, but whether it finds one under the other's name.
        """
        names = [partition_name(layout.keys, values) for values in registered]
        hidden: dict[str, str] = {}
        for step in steps:
            if actual is None or not isinstance(step, AddPartitions):
                continue
            for target in alike([*(p.name for p in step.partitions), *names], step.partitions):
                found = self.metastore.partitions(actual.database, actual.name, [target.name])
                if other := next((p.values for p in found if p.values != target.values), None):
                    hidden[target.path] = hidden_by(target, partition_name(layout.keys, other))
        kept = [
            replace(step, partitions=tuple(p for p in step.partitions if p.path not in hidden))
            if isinstance(step, AddPartitions)
            else step
            for step in steps
        ]
        return [s for s in kept if not isinstance(s, AddPartitions) or s.partitions], list(hidden.values())

    def _is_ahead(self, entry: TableEntry | None, history: TimelineState) -> bool:
        marker, point = marker_of(entry), history.point
        if marker is None or point is None:
            return marker is not None
        ended, known = marker.completion_time, point.completion_time
        is_later = ended is not None and known is not None and ended.is_after(known)
        return is_later or marker.requested_time.is_after(point.requested_time)

    def _layout(self, columns: tuple[Column, ...]) -> EntryLayout:
        keys, types = tuple(key.name for key in columns), tuple(key.type for key in columns)
        config = self.table.config
        extractor = self.options.extractor or Extractor.fitting(len(keys), hive_style=self._names_columns(keys))
        return EntryLayout(self.base_path, keys, extractor, config.url_encode, types, self.metastore.lengths)

    def _check_stated(self) -> None:
        """TableMismatchError for a table in folders of which nothing states the columns, as before table version 2."""
        config, given = self.table.config, self.options.entry.partition_fields
        if given is not None or TABLE_PARTITION_FIELDS in config.raw:
            return
        folder = next(filter(None, self.table.view().partitions()), None)
        if folder is not None:
            raise TableMismatchError(
                f"table {config.name} at {self.base_path} lies in folders such as {folder!r}, and its settings do not"
                f" state which columns they are of ({TABLE_PARTITION_FIELDS})",
                hint=f"state them: {PARTITION_FIELDS.key}",
                option=PARTITION_FIELDS.key,
                found=folder,
            )

    def _names_columns(self, keys: tuple[str, ...]) -> bool:
        """Whether folders are column=value; where the settings do not state it, as those that are there."""
        config = self.table.config
        if config.names_columns is not None or not keys:
            return config.hive_style
        paths = self.table.view().partitions()
        return bool(paths) and all(path.startswith(f"{keys[0]}=") for path in paths)

    def _look_at_all(self, actual: TableEntry, target: TableEntry) -> tuple[Registered, tuple[Drifted, ...]]:
        """All partitions with their locations, and those that are not as an entry like `target` has them."""
        keys = [key.name for key in actual.partition_keys]
        registered: Registered = {}
        stale: list[Drifted] = []
        for partition in self.metastore.partitions(actual.database, actual.name):
            registered[partition.values] = partition.storage.location
            if aspects := drift(partition.storage, target.storage):
                stale.append(Drifted(partition_name(keys, partition.values), aspects))
        return registered, tuple(stale)

    def _registered(self, actual: TableEntry | None, changes: PartitionChanges, layout: EntryLayout) -> Registered:
        """The entry's partitions: names of all for a full comparison, else those of the paths in question."""
        if actual is None:
            return {}
        database, name = actual.database, actual.name
        if changes.complete:
            found: Registered = {values_of_name(text): None for text in self.metastore.partition_names(database, name)}
            shared = [partition_name(layout.keys, values) for values in layout.shared(changes) if values in found]
            return found | self._located(actual, shared)
        paths = changes.live | changes.emptied
        names = layout.all_names(paths)
        known = None if self.ahead is None else self.ahead.registered(name, names)
        found = self._located(actual, names) if known is None else known
        if layout.spells_alike:
            missing = {layout.known_as(layout.target(path).values) for path in paths} - set(map(layout.known_as, found))
            if missing:  # new, or registered by a spelling that only the list of all names shows
                listed = self.metastore.partition_names(database, name)
                others = [text for text in listed if layout.known_as(values_of_name(text)) in missing]
                found = found | self._located(actual, others)
        return found

    def _located(self, entry: TableEntry, names: Sequence[str]) -> Registered:
        """Those of some partitions that an entry has, with their locations."""
        return {p.values: p.storage.location for p in self.metastore.partitions(entry.database, entry.name, names)}

    def _earlier_views(self, wanted: Mapping[str, TableEntry | None]) -> list[Step]:
        """Views of an earlier strategy: dropped where a sync of skep's created them, else reported."""
        steps: list[Step] = []
        for name in (f"{self.name}_ro", f"{self.name}_rt", self.name):
            if name in wanted or (entry := self.metastore.find_table(self.database, name)) is None:
                continue
            if not registered_there(entry.storage.location, self.base_path) or not is_hudi(entry):
                continue
            if entry.parameters.get(OWNED_BY) == f"{self.database}.{self.name}":
                steps.append(DropEntry(entry))
            else:
                self.warnings.append(
                    f"{entry.full_name} shows this table by an earlier strategy and is not kept up any more; skep did "
                    "not make it, so it is left: drop the entry when nobody needs it"
                )
        return steps

    def _is_own_kind(self, actual: TableEntry) -> bool:
        """Whether an entry is one that this planner keeps up; others under the name are left alone."""
        return is_hudi(actual) and actual.storage.input_format != SYMLINKS

    def _missing_database(self) -> list[Step]:
        with suppress(NoSuchTableError):
            self.metastore.database(self.database)
            return []
        if not self.options.auto_create_database:
            raise NoSuchTableError(
                f"metastore {self.metastore.uri} has no database {self.database}",
                hint="create it, or set hoodie.datasource.hive_sync.auto_create_database=true",
                table=self.database,
            )
        return [AddDatabase(self.database)]

    def _check_relocation(self, actual: TableEntry, wanted: TableEntry) -> None:
        """TableMismatchError where another table has the name, and may not lose it."""
        if not self.options.relocate:
            raise TableMismatchError(
                f"{actual.full_name} is registered at {actual.storage.location}, and the table at"
                f" {wanted.storage.location} has the same name: the entry is left as it is",
                hint=f"choose another name; where the table has moved, sync it yourself, or set {RELOCATE.key}=true",
                table=actual.full_name,
                found=actual.storage.location,
                expected=wanted.storage.location,
            )

    def _check_same(self, wanted: WantedEntry, actual: TableEntry) -> None:
        """Another kind of table under the name is left alone."""
        if actual.table_type == "VIRTUAL_VIEW":
            raise TableMismatchError(f"{actual.full_name} is a view in the metastore", table=actual.full_name)
        if not self._is_own_kind(actual):
            raise TableMismatchError(
                f"{actual.full_name} is in the metastore, and not as a Hudi table ({actual.storage.input_format})",
                hint="choose another name, or drop that table",
                table=actual.full_name,
                found=actual.storage.input_format,
                expected=wanted.table.storage.input_format,
            )
        found = [key.name.lower() for key in actual.partition_keys]
        expected = [key.name.lower() for key in wanted.table.partition_keys]
        if found != expected:
            raise TableMismatchError(
                f"{actual.full_name} has the partition keys {found} in the metastore, the table has {expected}: "
                "metastores can't change them",
                hint="drop the entry (not the data), then sync again",
                table=actual.full_name,
                found=found,
                expected=expected,
            )


def _with_columns_of(wanted: TableEntry, actual: TableEntry) -> StorageDescriptor:
    return replace(
        wanted.storage,
        columns=actual.storage.columns,
        bucket_columns=actual.storage.bucket_columns,
        num_buckets=actual.storage.num_buckets,
    )
