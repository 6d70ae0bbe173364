"""Applies the steps of a plan: partitions in batches, new ones on several connections, then one alteration per entry.

What was done before a step fails remains, and is well-formed: partitions are added where they are missing, columns
copied to partitions that have others, and the marker, which comes last, is not set. So the next sync continues there.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import TypeVar

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import Database, Partition, TableEntry
from skep_catalog.lengths import may_be_too_long
from skep_format.batching import pieces
from skep_format.errors import (
    AuthenticationError,
    CatalogError,
    EntryChangedError,
    EntryExistsError,
    MetastoreUnreachableError,
    NoSuchTableError,
    StorageError,
)
from skep_format.storage import Storage
from skep_sync import backup
from skep_sync.options import Cascade, SyncOptions
from skep_sync.planning.columns import SETTING, accepted, refused, same_columns
from skep_sync.planning.descriptors import aligned, of_partition
from skep_sync.planning.plan import alike, hidden_by
from skep_sync.planning.steps import (
    MARKERS,
    AddDatabase,
    AddPartitions,
    AlignPartitions,
    AlterEntry,
    ChangeIndexes,
    CreateEntry,
    DropEntry,
    DropPartitions,
    Manifest,
    MovePartitions,
    PartitionTarget,
    Step,
    SyncPlan,
    TouchPartitions,
    WriteManifests,
)
from skep_table.events import Events

T = TypeVar("T")

_ALTERED = 250
"""Partitions in a call that alters them: a server does it one by one in one transaction; progress counts calls."""
_REFUSED = 8
"""So many partitions in a row, none of them taken, and the metastore is asked for no more of a batch."""
_TIME = "transient_lastDdlTime"
"""A metastore sets the time of an alteration where there is none."""
_SHARE = 100
"""Below so many partitions another call costs as much as another connection gains."""


class Applier:
    """Applies steps to one metastore. `storage` is the table's: copies of changed entries are kept there first."""

    def __init__(self, metastore: EntryCatalog, storage: Storage, options: SyncOptions, events: Events) -> None:
        self._metastore, self._storage, self._options, self._events = metastore, storage, options, events
        self.counts: Counter[str] = Counter()
        self._refused: dict[str, str] = {}  # why, by the names of partitions
        self._missing: dict[str, set[str]] = {}  # of them those of each entry
        # A server's connections lock one another out when two alter or drop partitions of a table (seen: 2.3 on Derby).
        self._changing = threading.Lock()

    def take(self, plan: SyncPlan) -> tuple[SyncPlan, dict[str, int]]:
        """Applies the steps in order; returns the plan, with what the metastore refused of it, and counts by kind."""
        for step in plan.steps:
            self._take(step)
        return replace(plan, refused=tuple(dict.fromkeys([*plan.refused, *self._refused.values()]))), dict(self.counts)

    def _take(self, step: Step) -> None:
        match step:
            case AddDatabase(database):
                self._metastore.create_database(Database(database, "made by a table sync"), if_not_exists=True)
                self.counts["databases created"] += 1
            case CreateEntry(table):
                with _naming_lengths(table):
                    self._metastore.create_table(table)
                self.counts["tables created"] += 1
            case DropEntry(table):
                self._keep(table)
                self._metastore.drop_table(table.database, table.name)
                self.counts["tables dropped"] += 1
            case AddPartitions(table, partitions):
                with _naming_lengths(table):
                    self._in_batches("sync.add_partitions", table, partitions, self._add)
                self._find_hidden(table, partitions)
                self.counts["partitions added"] += len(partitions) - len(self._missing.get(table.name, ()))
            case MovePartitions(table, partitions):
                self._in_batches("sync.move_partitions", table, partitions, self._move, _ALTERED, "partitions moved")
            case WriteManifests(table, lists):
                self._in_batches("sync.write_manifests", table, lists, self._write_lists, counted="lists written")
            case TouchPartitions(table, partitions):
                self._in_batches(
                    "sync.touch_partitions", table, partitions, self._touch, _ALTERED, "partitions touched"
                )
            case AlignPartitions(table, _, columns):
                work = partial(self._align, columns=columns)
                aspect = step.aspects[0] if len(step.aspects) == 1 else "descriptors"
                self._in_batches("sync.cascade", table, step.names, work, _ALTERED, f"partitions' {aspect} corrected")
            case DropPartitions(table, names):
                self._in_batches("sync.drop_partitions", table, names, self._drop, counted="partitions dropped")
            case ChangeIndexes(table, changes):
                self._metastore.change_indexes(table, changes)
                self.counts["partition indexes changed"] += len(changes.add) + len(changes.drop)
            case AlterEntry(table=table):
                # Where partitions are missing the next sync has to look for them again.
                alteration = step.without_markers() if table.name in self._missing else step
                if alteration is not None:
                    with _naming_lengths(table):
                        self.alter(alteration)
                    self.counts["tables altered"] += 1

    def alter(self, step: AlterEntry) -> None:
        """Alters an entry, after keeping a copy and the cascade. EntryChangedError when another sync was faster."""
        table = step.table
        if table.origin is None:
            # Created by this plan: the server has added parameters that a sync must keep.
            made = self._metastore.table(table.database, table.name)
            table = replace(made, parameters={**made.parameters, **table.parameters})
        elif any(change.what not in MARKERS for change in step.changes):
            before = self._metastore.table(table.database, table.name)
            self._check_marker(before, step)
            self._keep(before)
            if step.reorder and self._metastore.compares_columns:
                self._reorder(step, before, table)
                return
            compares = self._metastore.compares_columns
            if compares and step.cascade and refused(before.storage.columns, table.storage.columns):
                # The server may refuse the columns: it alters entry and partitions in one call, or neither.
                self._alter(step, table, cascade=True)
                return
        self._cascade(step, table)
        self._alter(step, table, cascade=False)

    def _cascade(self, step: AlterEntry, table: TableEntry) -> None:
        if step.cascade:
            names = self._metastore.partition_names(table.database, table.name)
            work = partial(self._align, columns=self._options.cascade is Cascade.ALL)
            self._in_batches("sync.cascade", table, names, work, _ALTERED)
        if step.cascade_to:
            self._in_batches("sync.cascade", table, step.cascade_to, self._align, _ALTERED)

    def _reorder(self, step: AlterEntry, before: TableEntry, table: TableEntry) -> None:
        """Columns in another order: a metastore compares old and new ones by position and refuses, but accepts fewer
        columns, and then more. After a kill between the two, the next sync adds what is missing."""
        pairs = zip(before.storage.columns, table.storage.columns, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: accepted(pair[0].type, pair[1].type), pairs))
        fewer = replace(before, storage=replace(before.storage, columns=table.storage.columns[:same]))
        self._alter(step, fewer, cascade=False)
        self._alter(step, table, cascade=False)
        self._cascade(step, table)

    def _check_marker(self, before: TableEntry, step: AlterEntry) -> None:
        """Servers without expected parameters would overwrite what another sync did meanwhile."""
        if step.expected is not None and before.parameters.get(step.expected[0]) != step.expected[1]:
            raise EntryChangedError(
                f"table {before.full_name} was synced by another meanwhile",
                table=before.full_name,
                found=before.parameters.get(step.expected[0]),
                expected=step.expected[1],
            )

    def _alter(self, step: AlterEntry, table: TableEntry, *, cascade: bool) -> None:
        try:
            self._metastore.alter_table(
                step.table.database, step.table.name, table, cascade=cascade, expected=step.expected
            )
        except CatalogError as error:
            if "incompatible" not in error.message:
                raise
            changed = "; ".join(str(change) for change in step.changes if change.what.startswith("column"))
            raise CatalogError(
                f"{error.message} (wanted: {changed})",
                hint=f"it compares columns by position; {SETTING} on the metastore lifts that",
                **error.fields,
            ) from error
        self._events.emit("sync.altered", table=table.full_name, cascade=step.cascade, expected=step.expected)

    def _keep(self, table: TableEntry) -> None:
        """Keeps a copy of the entry. A copy that can't be written (to a read-only folder) is only reported."""
        try:
            kept = backup.keep(self._storage, self._metastore.uri, table)
        except (StorageError, OSError) as error:
            self._events.emit("sync.no_backup", table=table.full_name, error=str(error))
        else:
            self._events.emit("sync.backup", table=table.full_name, id=kept.id)

    # -- one batch each

    def _add(self, table: TableEntry, batch: Sequence[PartitionTarget]) -> None:
        """Where the metastore refuses the table's columns, partitions get those of the entry: columns that can't be
        registered delay no partition. (The alteration that follows is refused then.)"""
        try:
            self._add_as(table, batch)
        except MetastoreUnreachableError:
            raise
        except CatalogError:
            columns = self._metastore.table(table.database, table.name).storage.columns
            if columns and not same_columns(columns, table.storage.columns):
                table = replace(table, storage=replace(table.storage, columns=columns))
            self._add_accepted(table, batch)

    def _add_accepted(self, table: TableEntry, batch: Sequence[PartitionTarget]) -> None:
        """Adds all but those that the metastore refuses, which are found by halving: it takes or refuses a whole call.
        Where it takes none of many the fault is not theirs, and its error is raised."""
        waiting, added, refused = [batch], 0, 0
        while waiting:
            part = waiting.pop()
            try:
                self._add_as(table, part)
                added += len(part)
            except (MetastoreUnreachableError, AuthenticationError, NoSuchTableError):
                raise
            except CatalogError as error:
                if len(part) > 1:
                    waiting += [part[len(part) // 2 :], part[: len(part) // 2]]
                    continue
                refused += 1
                if not added and refused == _REFUSED:
                    raise
                self._refuse(table, part[0], f"partition {part[0].name!r}: {error.message}")

    def _refuse(self, table: TableEntry, target: PartitionTarget, reason: str) -> None:
        self._refused[target.name] = reason
        self._missing.setdefault(table.name, set()).add(target.name)

    def _find_hidden(self, table: TableEntry, partitions: Sequence[PartitionTarget]) -> None:
        """Partitions that the metastore passed over, because its database takes others of this step for them."""
        targets = alike([target.name for target in partitions], partitions)
        if not targets:
            return
        names = [target.name for target in targets]
        held = {p.values: p for p in self._metastore.partitions(table.database, table.name, names)}
        for target in targets:
            others = (o.name for o in targets if o.values in held and alike([o.name, target.name], [target]))
            if target.values not in held and (other := next(others, None)):
                self._refuse(table, target, hidden_by(target, other))

    def _add_as(self, table: TableEntry, batch: Sequence[PartitionTarget]) -> None:
        self._metastore.add_partitions(table.database, table.name, [_partition(table, target) for target in batch])

    def _drop(self, table: TableEntry, batch: Sequence[str]) -> None:
        with self._changing:
            self._metastore.drop_partitions(table.database, table.name, batch)

    def _move(self, table: TableEntry, batch: Sequence[PartitionTarget]) -> None:
        """Sets location and descriptor by one alteration."""
        locations = {target.values: target.location for target in batch}
        found = self._metastore.partitions(table.database, table.name, [target.name for target in batch])
        columns = self._options.cascade is Cascade.ALL
        moved = [(p, aligned(p.storage, table.storage, columns=columns)) for p in found]
        self._write(table, [replace(p, storage=replace(s, location=locations[p.values])) for p, s in moved])

    def _write_lists(self, _: TableEntry, batch: Sequence[Manifest]) -> None:
        for one in batch:
            self._storage.replace_atomic(one.path, "".join(f"{file}\n" for file in one.files).encode())

    def _touch(self, table: TableEntry, batch: Sequence[PartitionTarget]) -> None:
        found = self._metastore.partitions(table.database, table.name, [target.name for target in batch])
        parameters = [(p, {key: text for key, text in p.parameters.items() if key != _TIME}) for p in found]
        self._write(table, [replace(p, parameters=others) for p, others in parameters])

    def _align(self, table: TableEntry, batch: Sequence[str], *, columns: bool = True) -> None:
        """The table's descriptor for those of the batch that have another: an interrupted cascade is continued."""
        found = self._metastore.partitions(table.database, table.name, batch)
        pairs = [(partition, aligned(partition.storage, table.storage, columns=columns)) for partition in found]
        self._write(table, [replace(p, storage=storage) for p, storage in pairs if storage != p.storage])

    def _write(self, table: TableEntry, partitions: list[Partition]) -> None:
        if not partitions:
            return
        with self._changing:
            self._metastore.alter_partitions(table.database, table.name, partitions)

    def _in_batches(
        self,
        name: str,
        table: TableEntry,
        items: Sequence[T],
        work: Callable[[TableEntry, Sequence[T]], None],
        most: int = sys.maxsize,
        counted: str | None = None,
    ) -> None:
        """Batches on several connections, which count. The first error is raised when those under way have ended."""
        share = max(-(-len(items) // self._options.connections), _SHARE)
        size = min(self._options.batch_size, most, share)
        done, batches = 0, pieces(items, size)
        with ThreadPoolExecutor(min(self._options.connections, len(batches) or 1), "skep-sync") as pool:
            running = {pool.submit(work, table, batch): len(batch) for batch in batches}
            try:
                for future in as_completed(running):
                    future.result()
                    done += running[future]
                    self._events.progress(name, done, len(items), table=table.full_name)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        if counted is not None:
            self.counts[counted] += len(items)


@contextmanager
def _naming_lengths(table: TableEntry) -> Iterator[None]:
    """Names the texts that may be too long: the server's message is only a part of an SQL statement."""
    try:
        yield
    except (MetastoreUnreachableError, EntryChangedError, EntryExistsError):
        raise
    except CatalogError as error:
        unfit = may_be_too_long(table)
        if not unfit:
            raise
        raise CatalogError(
            f"{table.full_name} does not fit the metastore's database: {'; '.join(unfit)} ({error.message})",
            hint="2.3 on Derby has this limit; on another database, and from 3.0 on, there is none",
            **error.fields,
        ) from error


def _partition(table: TableEntry, target: PartitionTarget) -> Partition:
    """With the numbers of its files: the server would list the folder to find them."""
    files = target.files
    parameters = {} if files is None else {"numFiles": str(files.count), "totalSize": str(files.size_bytes)}
    return Partition(target.values, of_partition(table.storage, target.location), parameters)
