"""Plan and apply: looks at table and metastore, plans, takes the steps under the sync's lock, reports."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, ClassVar

from skep_catalog.client import Metastore
from skep_catalog.entities import Database, Partition, Table
from skep_catalog.entries import MARKER, Wanted, WantedEntry, wanted_entries
from skep_catalog.lock import HmsLock
from skep_sync.changes import Changes, History
from skep_sync.options import SyncOptions
from skep_sync.plan import Layout, entry_steps, marker_of, partition_steps
from skep_sync.steps import (
    AddPartitions,
    AlterEntry,
    CreateDatabase,
    CreateEntry,
    DropPartitions,
    MovePartitions,
    PartitionTarget,
    Step,
    SyncPlan,
)
from skep_sync.values import Extractor, values_of_name
from skep_table.clock import SYSTEM_CLOCK
from skep_table.errors import (
    CatalogError,
    EntryChangedError,
    EntryExistsError,
    InputError,
    LockTimeoutError,
    NoSuchTableError,
    SkepError,
    SyncError,
    TableMismatchError,
)
from skep_table.events import NO_EVENTS, Events
from skep_table.table import HudiTable
from skep_table.table_config import TimelineZone

_ATTEMPTS = 3  # when other syncs keep changing the entries meanwhile


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did. `steps` counts by kind; `calls` is how many calls the metastore got."""

    plan: SyncPlan
    seconds: float
    calls: int
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return bool(self.plan.steps)

    def __str__(self) -> str:
        did = ", ".join(f"{count} {what}" for what, count in self.counts.items()) or "nothing to do"
        return f"{self.plan.full_name}: {did} ({self.calls} calls, {self.seconds:.2f} s)"

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "applied": dict(self.counts),
            "calls": self.calls,
            "seconds": round(self.seconds, 3),
        }


def target_of(table: HudiTable, database: str | None = None, name: str | None = None) -> tuple[str, str]:
    """Where a table is registered: as asked for, else by its own database and name, else in `default`."""
    return (database or table.config.database or "default").lower(), (name or table.config.name).lower()


def plan_sync(
    table: HudiTable,
    metastore: Metastore,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    full: bool = False,
) -> SyncPlan:
    """What a sync would do; changes nothing. `full` compares all partitions, whatever the markers say."""
    settings = options if isinstance(options, SyncOptions) else SyncOptions.of(options)
    database, name = target_of(table, database, name)
    with _as_sync_error(table, database, name):
        return _Planner(table, metastore, database, name, settings, full or not settings.incremental).plan()


def sync_table(
    table: HudiTable,
    metastore: Metastore,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    full: bool = False,
    events: Events = NO_EVENTS,
) -> SyncReport:
    """Makes the metastore say what the table is. SyncError when it can't; what was done so far is then well-formed, and
    doing it again goes on from there. Syncs of one table take turns; when there is nothing to do none is waited for."""
    settings = options if isinstance(options, SyncOptions) else SyncOptions.of(options)
    database, name = target_of(table, database, name)
    start, calls = time.monotonic(), metastore.calls
    plan = plan_sync(table, metastore, database, name, settings, full=full)
    counts: dict[str, int] = {}
    if plan:
        with _as_sync_error(table, database, name), _turn(metastore, database, name, settings, events):
            for attempt in range(_ATTEMPTS):
                plan = plan_sync(table.reload(), metastore, database, name, settings, full=full)
                try:
                    counts = _take(plan, metastore, settings, events)
                    break
                except (EntryChangedError, EntryExistsError):
                    if attempt == _ATTEMPTS - 1:
                        raise
    report = SyncReport(plan, time.monotonic() - start, metastore.calls - calls, counts)
    events.emit("sync.done", table=plan.full_name, calls=report.calls, seconds=report.seconds, **counts)
    return report


def apply_plan(
    plan: SyncPlan,
    metastore: Metastore,
    options: SyncOptions | Mapping[str, object] | None = None,
    *,
    events: Events = NO_EVENTS,
) -> SyncReport:
    """Takes the steps of a plan. SyncError when the entries have moved on since it was made."""
    settings = options if isinstance(options, SyncOptions) else SyncOptions.of(options)
    start, calls = time.monotonic(), metastore.calls
    counts: dict[str, int] = {}
    if plan:
        with (
            _as_sync_error(None, plan.database, plan.name, plan.base_path),
            _turn(metastore, plan.database, plan.name, settings, events),
        ):
            for entry, marker in plan.markers.items():
                actual = metastore.find_table(plan.database, entry)
                found = actual and actual.parameters.get(MARKER)
                if found != marker:
                    raise EntryChangedError(
                        f"table {plan.database}.{entry} was synced by another since this plan was made",
                        table=f"{plan.database}.{entry}",
                        found=found,
                        expected=marker,
                    )
            counts = _take(plan, metastore, settings, events)
    return SyncReport(plan, time.monotonic() - start, metastore.calls - calls, counts)


class _Planner:
    """Collects what the pure planner needs, asking the metastore no more than it must."""

    def __init__(
        self,
        table: HudiTable,
        metastore: Metastore,
        database: str,
        name: str,
        options: SyncOptions,
        full: bool,
    ) -> None:
        self.table, self.metastore, self.options, self.full = table, metastore, options, full
        self.database, self.name = database, name
        self.base_path = table.storage.uri("")
        self.warnings: list[str] = []

    def plan(self) -> SyncPlan:
        history = History.of(self.table)
        wanted = wanted_entries(
            self.table.config, self.table.schema(), self.base_path, self.database, self.name, self.options.entry
        )
        self.warnings += wanted.warnings
        actual = {
            entry.table.name: self.metastore.find_table(self.database, entry.table.name) for entry in wanted.entries
        }
        if any(self._is_ahead(entry, history) for entry in actual.values()):
            # Someone synced a later commit than this look at the table knows of.
            self.table = self.table.reload()
            history, wanted = self.look()
        self.warnings += wanted.warnings
        steps: list[Step] = []
        if all(entry is None for entry in actual.values()) and not self._has_database():
            steps.append(self._create_database())
        complete = False
        for entry in wanted.entries:
            found = actual[entry.table.name]
            if found is not None:
                self._check_same(entry, found)
            entry_plan, entry_complete = self._entry(entry, found, history)
            steps += entry_plan
            complete |= entry_complete
        markers = {key: None if entry is None else entry.parameters.get(MARKER) for key, entry in actual.items()}
        return SyncPlan(
            self.base_path,
            self.database,
            self.name,
            history.point,
            tuple(steps),
            tuple(self.warnings),
            markers,
            complete,
        )

    def look(self) -> tuple[History, Wanted]:
        """What the table is now, and what it should be in the metastore."""
        schema = self.table.schema()
        entries = wanted_entries(
            self.table.config,
            schema,
            self.base_path,
            self.database,
            self.name,
            self.options.entry,
            owner=self.metastore.user,
        )
        return History.of(self.table), entries

    def _entry(self, entry: WantedEntry, actual: Table | None, history: History) -> tuple[list[Step], bool]:
        marker = marker_of(actual)
        point = history.point
        if actual is not None and self._is_ahead(actual, history):
            # Still ahead after a fresh look: that commit was rolled back or the table restored to an earlier one.
            self.warnings.append(
                f"table {actual.full_name} was synced up to {marker and marker.requested_time}, which is not on "
                "the timeline (rolled back or restored): all partitions are compared"
            )
        partitions: list[Step] = []
        complete = False
        keys = tuple(key.name for key in entry.table.partition_keys)
        if keys and self.options.partitions and point is not None and (self.full or marker != point):
            changes = history.changes_since(None if self.full else marker)
            complete = changes.complete
            layout = self._layout(keys)
            partitions = partition_steps(entry.table, changes, layout, self._registered(actual, changes, layout))
        steps = entry_steps(entry.table, actual, point, partitions, cascade=self.options.cascade)
        return steps, complete

    def _is_ahead(self, entry: Table | None, history: History) -> bool:
        marker, point = marker_of(entry), history.point
        return marker is not None and (point is None or marker.requested_time > point.requested_time)

    def _layout(self, keys: tuple[str, ...]) -> Layout:
        config = self.table.config
        extractor = self.options.extractor or Extractor.fitting(len(keys), hive_style=config.hive_style)
        return Layout(self.base_path, keys, extractor, decode=config.url_encode)

    def _registered(self, actual: Table | None, changes: Changes, layout: Layout) -> dict[tuple[str, ...], str | None]:
        """The entry's partitions: names of all for a full comparison, else those of the paths in question."""
        if actual is None:
            return {}
        database, name = actual.database, actual.name
        if changes.complete:
            return {values_of_name(text): None for text in self.metastore.partition_names(database, name)}
        names = sorted({layout.target(path).name for path in changes.live | changes.emptied})
        return {p.values: p.storage.location for p in self.metastore.partitions(database, name, names)}

    def _has_database(self) -> bool:
        try:
            self.metastore.database(self.database)
        except NoSuchTableError:
            return False
        return True

    def _create_database(self) -> Step:
        if not self.options.auto_create_database:
            raise NoSuchTableError(
                f"metastore {self.metastore.uri} has no database {self.database}",
                hint="create it, or set hoodie.datasource.hive_sync.auto_create_database=true",
                table=self.database,
            )
        return CreateDatabase(self.database)

    def _check_same(self, wanted: WantedEntry, actual: Table) -> None:
        """Another kind of table under the name is left alone."""
        if actual.table_type == "VIRTUAL_VIEW":
            raise TableMismatchError(f"{actual.full_name} is a view in the metastore", table=actual.full_name)
        if not _is_hudi(actual):
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


def _is_hudi(entry: Table) -> bool:
    return (
        "hudi" in (entry.storage.input_format or "")
        or "com.uber.hoodie" in (entry.storage.input_format or "")
        or entry.parameters.get("spark.sql.sources.provider", "").lower() == "hudi"
        or MARKER in entry.parameters
    )


# ------------------------------------------------------------------------------------------------------------- applying


def _take(plan: SyncPlan, metastore: Metastore, options: SyncOptions, events: Events) -> dict[str, int]:
    """Takes the steps in order; answers what was done."""
    counts: dict[str, int] = {}
    for step in plan.steps:
        match step:
            case CreateDatabase(database):
                metastore.create_database(Database(database, "made by a table sync"), if_not_exists=True)
                _count(counts, "databases created", 1)
            case CreateEntry(table):
                metastore.create_table(table)
                _count(counts, "tables created", 1)
            case AddPartitions(table, partitions):
                added = (_partition(table, target) for target in partitions)
                sent = metastore.add_partitions(table.database, table.name, added, batch_size=options.batch_size)
                _progress(sent, len(partitions), "sync.add_partitions", table, events)
                _count(counts, "partitions added", len(partitions))
            case MovePartitions(table, partitions):
                _move(metastore, table, partitions, options)
                _count(counts, "partitions moved", len(partitions))
            case DropPartitions(table, names):
                sent = metastore.drop_partitions(table.database, table.name, names, batch_size=options.batch_size)
                _progress(sent, len(names), "sync.drop_partitions", table, events)
                _count(counts, "partitions dropped", len(names))
            case AlterEntry(table=table, cascade=cascade, expected=expected):
                _alter(metastore, step)
                _count(counts, "tables altered", 1)
                events.emit("sync.altered", table=table.full_name, cascade=cascade, expected=expected and expected[1])
    return counts


def _alter(metastore: Metastore, step: AlterEntry) -> None:
    table = step.table
    if table.origin is None:
        # Made by this very plan: the server has added to it what a sync must not take away.
        made = metastore.table(table.database, table.name)
        table = replace(made, parameters={**made.parameters, **table.parameters})
    try:
        metastore.alter_table(table.database, table.name, table, cascade=step.cascade, expected=step.expected)
    except CatalogError as error:
        if "incompatible" not in error.message:
            raise
        changed = "; ".join(str(change) for change in step.changes if change.what.startswith("column"))
        raise CatalogError(
            f"{error.message} (wanted: {changed})",
            hint="it compares columns by position; hive.metastore.disallow.incompatible.col.type.changes=false on the "
            "metastore lifts that",
            **error.fields,
        ) from error


def _move(metastore: Metastore, table: Table, partitions: tuple[PartitionTarget, ...], options: SyncOptions) -> None:
    locations = {target.values: target.location for target in partitions}
    found = metastore.partitions(table.database, table.name, [target.name for target in partitions])
    moved = (replace(p, storage=replace(p.storage, location=locations[p.values])) for p in found)
    for _ in metastore.alter_partitions(table.database, table.name, moved, batch_size=options.batch_size):
        pass


def _partition(table: Table, target: PartitionTarget) -> Partition:
    """With the numbers of its files: the server would list the folder to find them."""
    files = target.files
    parameters = {} if files is None else {"numFiles": str(files.count), "totalSize": str(files.size_bytes)}
    return Partition(target.values, replace(table.storage, location=target.location), parameters)


def _progress(sent: Iterator[int], total: int, name: str, table: Table, events: Events) -> None:
    for done in sent:
        events.progress(name, done, total, table=table.full_name)


def _count(counts: dict[str, int], what: str, number: int) -> None:
    counts[what] = counts.get(what, 0) + number


@contextmanager
def _turn(metastore: Metastore, database: str, name: str, options: SyncOptions, events: Events) -> Iterator[None]:
    """One sync of a table at a time. Another name than the table's own: writers and queries are not held up.

    Servers without lock tables can't say whose turn it is; there the expected marker of the alteration has to do.
    """
    lock = HmsLock(metastore, database, f"{name}__sync", purpose="sync", events=events)
    try:
        lock.acquire(options.lock_wait_seconds)
    except LockTimeoutError:
        raise
    except CatalogError as error:
        if error.fields.get("call") != "lock" or "error" not in error.fields:
            raise
        events.emit("sync.unlocked", table=f"{database}.{name}", reason=error.message)
        yield
        return
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _as_sync_error(table: HudiTable | None, database: str, name: str, base_path: str | None = None) -> Iterator[None]:
    """Whatever goes wrong here is a failed sync of this table: the commits it follows stand."""
    try:
        yield
    except (SyncError, InputError):
        raise
    except SkepError as error:
        path = base_path or (table.storage.root if table is not None else None)
        raise SyncError(
            f"sync of {database}.{name} failed: {error.message}",
            hint=error.hint,
            table=f"{database}.{name}",
            path=path,
            cause=type(error).__name__,
        ) from error


@dataclass(frozen=True, slots=True)
class SyncStatus:
    """How far one entry is behind the table. `commits` and `seconds` are None where that can't be told."""

    entry: str
    registered: bool
    synced_to: str | None
    latest: str | None
    commits: int | None
    seconds: float | None

    COLUMNS: ClassVar = ("entry", "registered", "synced_to", "latest", "commits", "seconds")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.COLUMNS}


def sync_status(
    table: HudiTable,
    metastore: Metastore,
    database: str | None = None,
    name: str | None = None,
    options: SyncOptions | Mapping[str, object] | None = None,
) -> list[SyncStatus]:
    """Each entry's marker against the timeline. Reads no partitions."""
    settings = options if isinstance(options, SyncOptions) else SyncOptions.of(options)
    database, name = target_of(table, database, name)
    planner = _Planner(table, metastore, database, name, settings, full=False)
    with _as_sync_error(table, database, name):
        history, wanted = planner.look()
        entries = [(entry.table, metastore.find_table(database, entry.table.name)) for entry in wanted.entries]
        return [_status(wanted_entry, actual, history) for wanted_entry, actual in entries]


def _status(wanted: Table, actual: Table | None, history: History) -> SyncStatus:
    marker, point = marker_of(actual), history.point
    commits = seconds = None
    if marker is not None and point is not None:
        if history.knows(marker):
            behind = history.after(marker)
            commits = len(behind)
            seconds = _seconds_since(min(i.requested_time for i in behind), history) if behind else 0.0
    elif point is None and actual is not None:
        commits, seconds = 0, 0.0
    return SyncStatus(
        wanted.full_name,
        actual is not None,
        None if marker is None else marker.requested_time,
        None if point is None else point.requested_time,
        commits,
        seconds,
    )


def _seconds_since(requested_time: str, history: History) -> float:
    """How long a reader of the metastore has been missing the oldest commit that was not synced."""
    then = datetime.strptime(requested_time[:14], "%Y%m%d%H%M%S")
    utc = history.table.config.timezone is TimelineZone.UTC
    moment = then.replace(tzinfo=timezone.utc) if utc else then.astimezone()
    return round(max(0.0, (SYSTEM_CLOCK.now() - moment).total_seconds()), 3)
