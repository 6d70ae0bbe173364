"""The tables of one metastore below one warehouse by their names, with writer, locks and sync."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from skep.base.arguments import checks_arguments
from skep.base.background import wait_for
from skep.base.keywords import takes_options
from skep.base.names import TableName
from skep.base.schemas import SchemaLike
from skep.base.shared_calls import SharedCalls
from skep.base.specs import Text, Version, check_same, table_spec
from skep.handles.new_tables import SIGN, is_left_over, new_table, remove_unwritten
from skep.handles.snapshots import Snapshots
from skep.handles.table import Table
from skep.metastore.entries import VIEWS, check_registered, hudi_entries, named_entry
from skep.metastore.locking import checked, lock_of
from skep.metastore.syncing import SYNC, TableSyncs, open_queue
from skep.query.spark import SparkHolder
from skep.services.runner import Services
from skep_catalog.addresses import is_of_glue
from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entries import View, is_hudi, view_of
from skep_format.errors import (
    InputError,
    NoSuchTableError,
    NotATableError,
    SkepError,
    TableExistsError,
    TableMismatchError,
)
from skep_format.options import Options, boolean, option
from skep_format.storage import Storage, open_storage
from skep_sync.planning.locations import registered_there, same_location
from skep_sync.targets import Clients, targets_of
from skep_table.commit.create import TableSpec
from skep_table.events import Events
from skep_table.lock import GuardedLock, Lock
from skep_table.query.options import QueryType
from skep_table.table import HudiTable
from skep_table.write.planning.settings import path_settings, settings_among

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from typing_extensions import Self

    from skep.handles.destination import Destination
    from skep_catalog.embedded import EmbeddedWhenNeeded
    from skep_catalog.entities import TableEntry as Entry
    from skep_sync.sync import SyncReport
    from skep_table.services.done import Done


BATCHED = option(
    "skep.write.batched",
    boolean,
    False,
    "Writes of one process to one table queue, and small ones that wait are committed together. Servers set it to true",
)


@checks_arguments
class LakeTables:
    """Tables by name. A context manager; `close` stops what was started for it, and only that."""

    def __init__(
        self,
        metastore: EntryCatalog,
        warehouse: str,
        spark: SparkHolder | None = None,
        database: str = "default",
        options: Options | None = None,
        events: Events | None = None,
    ) -> None:
        self.metastore = metastore
        self.warehouse = warehouse.rstrip("/") or "/"
        self.database = database.lower()
        self.options = options or Options()
        self.events = events or Events()
        self._spark = spark or SparkHolder()
        self._embedded: EmbeddedWhenNeeded | None = None  # which ends with it
        self._closed = False
        self._snapshots = Snapshots()
        self._lookups: SharedCalls[Entry | None] = SharedCalls()
        self._batches_writes = self.options.value(BATCHED)
        queue = partial(open_queue, self.options, self.warehouse)
        self._syncs = TableSyncs(
            targets_of(self.options, in_glue=is_of_glue(metastore)), Clients(metastore), queue, self.events
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metastore.uri}, {self.warehouse})"

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        try:
            full = TableName.parse(str(name), self.database)
        except InputError:
            return False
        self._ensure_open()
        entry = self.metastore.find_table(full.database, full.name)
        return entry is not None and is_hudi(entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the Spark session and the metastore that this lake started, once the services that run beside writes
        have ended. Calling it again is no error.

        Its tables can still be read here, without Spark; everything else is then an InputError. A write that another
        thread has under way fails and is rolled back.
        """
        with ExitStack() as stack:  # whatever fails of it, or is interrupted, the rest is done
            if self._embedded is not None:
                stack.callback(self._embedded.stop)
            stack.callback(self.metastore.close)
            stack.callback(self._syncs.clients.close)
            stack.callback(self._spark.stop)
            if (shared := sys.modules.get("skep.query.shared")) is not None:  # else there are none
                stack.callback(shared.SHARED.clear)
            stack.callback(setattr, self, "_closed", True)
            wait_for()

    def _ensure_open(self) -> None:
        if self._closed:
            raise InputError(f"the lake at {self.warehouse} is closed", hint="connect again: skep.connect(…)")

    @property
    def spark(self) -> SparkSession:
        """The session that was given, else one that is started now."""
        self._ensure_open()
        return self._spark.session

    # -- tables

    def tables(self, database: str | None = None) -> list[str]:
        """Full names of the Hudi tables of one database, or of all. Views of merge-on-read tables are not listed."""
        return [entry.full_name for entry in self.entries(database)]

    def entries(self, database: str | None = None) -> Iterator[Entry]:
        """The metastore's entries of these tables, in the order of their names."""
        self._ensure_open()
        return hudi_entries(self.metastore, database)

    def table(self, name: str, *, as_view: bool = False, entry: Entry | None = None) -> Table:
        """A table by its name. NoSuchTableError when the metastore has none; NotATableError when it is not Hudi's.

        By the name of a view (`t_ro`, `t_rt`) it is the same table; reads of `t_ro` are read-optimized unless they
        name another query type. With `as_view` those of `t` are too, where the sync gave the read-optimized view that
        name: as engines answer. `entry` is the metastore's, where it was just looked up.
        """
        self._ensure_open()
        full = TableName.parse(name, self.database)
        entry = entry or named_entry(self.metastore, full)
        options = Options(path_settings(entry.parameters)).with_values(self.options)
        hudi = self._snapshots.newest(self._location(full, entry), options)
        own = self._own_name(full, entry, hudi)
        is_optimized = (as_view or own != full) and view_of(entry, hudi.config) is View.READ_OPTIMIZED
        query = QueryType.READ_OPTIMIZED if is_optimized else QueryType.SNAPSHOT
        return self._table(own, hudi, registered=True if own == full else None, query=query)

    def entry(self, name: TableName) -> Entry | None:
        """The metastore's entry; None where it has none. Threads share a look-up."""
        return self._lookups.get(name, lambda: self.metastore.find_table(name.database, name.name))

    def _own_name(self, name: TableName, entry: Entry, hudi: HudiTable) -> TableName:
        """That of the table whose view an entry is: locks and syncs use it."""
        own = next((name.name.removesuffix(view) for view in VIEWS if name.name.endswith(view)), name.name)
        if own == name.name or not hudi.config.is_mor:
            return name
        if own != hudi.config.name.lower():
            other = self.metastore.find_table(name.database, own)
            if other is None or other.storage.location != entry.storage.location:
                return name
        return replace(name, name=own)

    def create_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        key: Text = (),
        ordering: Text | None = None,
        partition_by: Text = (),
        type: str | None = None,
        location: str | None = None,
        hive_style: bool | None = None,
        url_encode: bool | None = None,
        table_version: Version | None = None,
        changes: str | None = None,
        if_not_exists: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Makes a table and registers it in the metastore; a database that is not there is made too.

        `schema` is an Arrow, Spark or Avro schema, or a frame as an example. `key` names the columns that identify a
        row; of two rows with one key the one with the greater `ordering` value wins, without it the last one written.
        Of several `ordering` columns (table version 9) the first that differs decides.
        `partition_by` names the columns whose values make the folders; `type` is cow (the default) or mor, and
        `table_version` Hudi's table version, 6 (the default), 8 or 9, or newest: 9 with a metadata table
        (docs/versions.md). `changes` is what the table keeps of each change for CDC queries: data_before_after,
        data_before or op_key_only (docs/cdc.md). With `if_not_exists` a table that is there is taken as it is;
        TableMismatchError when it has another key, ordering, partitioning, type, version or location than the one
        described. Nothing is left behind when this fails.
        `hive_style` names folders `column=value`, `url_encode` encodes what is special in them. `properties` are
        Hudi's, or words of SQL (`primaryKey`); those with other names are the metastore entry's.
        """
        described: dict[str, Any] = {
            "key": key,
            "ordering": ordering,
            "partition_by": partition_by,
            "type": type,
            "hive_style": hive_style,
            "url_encode": url_encode,
            "table_version": table_version,
            "changes": changes,
            "properties": properties,
        }
        if if_not_exists and (found := self._same(name, location, described)) is not None:
            return found
        with self.new_table(name, schema, location=location, **described) as made:
            return made

    @takes_options
    def bootstrap(
        self,
        name: str,
        source: str,
        *,
        mode: str | None = None,
        matching: str | None = None,
        plan: bool = False,
        key: Text = (),
        ordering: Text | None = None,
        partition_by: Text = (),
        type: str | None = None,
        location: str | None = None,
        hive_style: bool | None = None,
        url_encode: bool | None = None,
        table_version: Version | None = None,
        properties: Mapping[str, str] | None = None,
        **options: object,
    ) -> list[Done]:
        """Makes a table of a folder of Parquet or ORC files, which stays as it is; see the page on bootstraps.

        By `mode` metadata_only, the default, the rows stay in the files of `source`, and the table has their keys; by
        full_record they are written into it. With `matching`, a regular expression, that is the mode of the folders
        whose whole path below the source matches; the others have the other one. `plan`: what would be read and
        written of each folder; nothing is. The table is made as by `create_table`, or is one without commits. Without
        `partition_by` a new one has the columns in the names of folders.
        """
        from skep.handles.bootstraps import bootstrap, with_mode

        self._ensure_open()
        described = {
            "key": key,
            "ordering": ordering,
            "partition_by": partition_by,
            "type": type,
            "hive_style": hive_style,
            "url_encode": url_encode,
            "table_version": table_version,
            "properties": properties,
        }
        given = with_mode(self.options.with_values(options), source, mode, matching)

        def describe(described: Mapping[str, Any]) -> Destination:
            there = self.destination(name, **described)
            there.make = partial(self.new_table, name, location=location, **described)
            return there

        return bootstrap(describe, described, given, self.events, plan=plan)

    def _same(self, name: str, location: str | None, described: Mapping[str, Any]) -> Table | None:
        """The table that is there. TableMismatchError where it differs."""
        self._ensure_open()
        full = TableName.parse(name, self.database)
        entry = self.metastore.find_table(full.database, full.name)
        if entry is None or self._is_left_over(entry):
            return None
        found = self.table(name)
        if location is not None and not same_location(open_storage(location, self.options).root, found.path):
            what = f"table {full} lies at {found.path}, not at {location}"
            raise TableMismatchError(what, option="location", found=found.path, expected=location)
        check_same(found.snapshot, **described)
        for key, value in settings_among(described["properties"] or {})[1].items():
            if (own := entry.parameters.get(key)) != value:
                what = f"table {full} has property {key} {'unset' if own is None else own}, not {value}"
                raise TableMismatchError(what, option=key, found=own, expected=value)
        return found

    @contextmanager
    def new_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        **described: Any,
    ) -> Iterator[Table]:
        """Makes a table as `create_table` does, for a block that writes its first rows: see `new_tables.new_table`."""
        self._ensure_open()
        full = TableName.parse(name, self.database)
        given = {"database": full.database, "options": self.options, "properties": properties, **described}
        spec = partial(table_spec, full.name, schema, **given)
        storage = open_storage(location or self._default_location(full), self.options)
        with self.making(full, storage, spec, settings_among(properties or {})[1]) as made:
            yield made

    @contextmanager
    def _database_of(self, name: TableName) -> Iterator[None]:
        """A block that may make the database. Where it fails, one that was not there before is dropped, if empty."""
        known = True
        try:
            self.metastore.database(name.database)
        except NoSuchTableError:
            known = False
        try:
            yield
        except BaseException:
            if not known:
                with suppress(SkepError):
                    self.metastore.drop_database(name.database)
            raise

    @contextmanager
    def making(
        self, name: TableName, storage: Storage, spec: Callable[[], TableSpec], parameters: Mapping[str, str]
    ) -> Iterator[Table]:
        """The same for a table whose settings are known; `parameters` are those of its entry."""
        entry = self.metastore.find_table(name.database, name.name)
        if entry is not None:
            if not self._is_left_over(entry):
                raise TableExistsError(f"table {name} exists, at {entry.storage.location}", table=str(name))
            left = open_storage(entry.storage.location or "", self.options)
            remove_unwritten(left, self.options, partial(self._drop_entries, name, left))
        made = new_table(storage, spec(), self.options, partial(self._drop_entries, name, storage))
        with self._database_of(name), made as hudi:
            self._sync(name, hudi)
            self.set_parameters(name, parameters)
            yield self._table(name, hudi)

    def destination(self, name: str, **described: Any) -> Destination:
        """The table of this name, which is made once there are rows for it; `described` is as of `create_table`."""
        from skep.handles.destination import Destination

        return Destination(name, partial(self.table, name), partial(self.new_table, name, **described), described)

    def is_left_over(self, name: TableName) -> bool:
        """Whether the maker of a table died before it was whole: a new one takes its place."""
        entry = self.metastore.find_table(name.database, name.name)
        return entry is not None and self._is_left_over(entry)

    def _is_left_over(self, entry: Entry) -> bool:
        if not is_hudi(entry) or not entry.storage.location:
            return False
        try:
            storage = open_storage(entry.storage.location, self.options)
            return storage.exists(SIGN) and is_left_over(HudiTable.open(storage, self.options))
        except (SkepError, OSError):
            return False

    def _entries_of(self, name: TableName, storage: Storage) -> Iterator[Entry]:
        """Those of a table that lies there, and of its views."""
        for view in ("", *VIEWS):
            found = self.metastore.find_table(name.database, name.name + view)
            if found is not None and registered_there(found.storage.location, storage.uri("")):
                yield found

    def _drop_entries(self, name: TableName, storage: Storage) -> None:
        for entry in self._entries_of(name, storage):
            self.metastore.drop_table(entry.database, entry.name)

    def set_parameters(self, name: TableName, changes: Mapping[str, str | None]) -> None:
        """Parameters of the metastore's entry; None removes one."""
        if not changes:
            return
        entry = self.metastore.table(name.database, name.name)
        parameters = {key: value for key, value in {**entry.parameters, **changes}.items() if value is not None}
        self.metastore.alter_table(name.database, name.name, replace(entry, parameters=parameters))

    def register(self, path: str, name: str | None = None) -> Table:
        """Puts a Hudi table that lies at `path` into the metastore, under its own name or another."""
        self._ensure_open()
        hudi = HudiTable.open(path, self.options)
        own = f"{hudi.config.database or self.database}.{hudi.config.name}"
        full = TableName.parse(name or own, self.database)
        self._sync(full, hudi)
        return self._table(full, hudi)

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Takes a table out of the metastore, its views too. `purge` also deletes its files, which can't be undone."""
        self._ensure_open()
        full = TableName.parse(name, self.database)
        entry = named_entry(self.metastore, full)
        storage = open_storage(self._location(full, entry), self.options)
        try:
            HudiTable.open(storage)
        except NotATableError:
            if not is_hudi(entry) or (purge and not _is_empty(storage)):
                raise
            purge = False  # only the entry is there
        self._drop_entries(full, storage)
        if purge:
            storage.delete_folder("")

    def rename_table(self, name: str, new_name: str) -> Table:
        """Renames the metastore's entry (and views). The files stay where they are, under the table's own name.

        Handles that were opened under the old name can't write any more.
        """
        self._ensure_open()
        old, new = TableName.parse(name, self.database), TableName.parse(new_name, self.database)
        entry = named_entry(self.metastore, old)
        if self.metastore.find_table(new.database, new.name) is not None:
            raise TableExistsError(f"table {new} exists", table=str(new))
        hudi = HudiTable.open(self._location(old, entry), self.options)
        # Writers lock the name: no commit is completed under the old one while the new one comes up.
        lock = self._lock_of(old, hudi, self._check_of(old, hudi))(self.options)
        with hudi.with_context(lock=lock).context.locked():
            for found in self._entries_of(old, hudi.storage):
                renamed = replace(found, database=new.database, name=new.name + found.name.removeprefix(old.name))
                self.metastore.alter_table(old.database, found.name, renamed)
        return self.table(str(new))

    @property
    def spark_holder(self) -> SparkHolder:
        """Provides the session, which is started when it is first needed."""
        return self._spark

    # -- how

    def _table(
        self,
        name: TableName,
        hudi: HudiTable,
        *,
        registered: bool | None = None,
        query: QueryType = QueryType.SNAPSHOT,
    ) -> Table:
        """`registered`: whether the metastore has an entry of this name, None when it has to be asked: options of the
        sync may leave it at the views of a merge-on-read table."""
        if registered is None:
            registered = self.metastore.find_table(name.database, name.name) is not None
        check = self._check_of(name, hudi) if registered else self._ensure_open
        hooks = [self._syncs.after_commit(str(name), check)] if self.options.value(SYNC) else []
        hudi = hudi.with_context(events=self.events)
        services = Services(self._lock_of(name, hudi, check), self._spark, hooks)
        sync, owner = partial(self._sync_now, name, hudi, check), (id(self._syncs), str(name))
        table = Table(hudi, services, name=str(name), sync=sync, query=query, owner=owner)
        return table.batched() if self._batches_writes else table

    def _check_of(self, name: TableName, hudi: HudiTable) -> Callable[[], None]:
        """A check for handles under this name: raises when the table has another name, or the lake is closed."""

        def check() -> None:
            self._ensure_open()
            check_registered(self.metastore, name, hudi.storage)

        return check

    def _lock_of(self, name: TableName, hudi: HudiTable, check: Callable[[], None]) -> Callable[[Options], Lock]:
        make = partial(lock_of, hudi.storage, name, metastore=self.metastore, default="metastore", events=self.events)

        def guarded(options: Options) -> Lock:
            self._ensure_open()
            return GuardedLock(make(options), check)

        return checked(guarded, self.options)

    def _sync(self, name: TableName, hudi: HudiTable) -> SyncReport:
        return self._syncs.sync(hudi, str(name))

    def _sync_now(self, name: TableName, hudi: HudiTable, check: Callable[[], None]) -> SyncReport:
        check()
        return self._sync(name, hudi.reload())

    def _default_location(self, name: TableName) -> str:
        """As Hive lays out a warehouse."""
        folder = "" if name.database == "default" else f"/{name.database}.db"
        return f"{self.warehouse}{folder}/{name.name}"

    def _location(self, name: TableName, entry: Entry) -> str:
        location = entry.storage.location
        if entry.table_type == "VIRTUAL_VIEW":
            raise NotATableError(f"{name} is a view, which queries read", table=str(name), found="view")
        other = _kind_of(entry)
        if other is not None:
            raise NotATableError(
                f"{name} is a table of {other}, and not of Hudi",
                hint=f"read and change it with {other}",
                table=str(name),
                found=other,
                expected="hudi",
            )
        if not location:
            raise NotATableError(f"table {name} has no location in the metastore", table=str(name))
        return location


def _kind_of(entry: Entry) -> str | None:
    """Whose table it is where its entry names another format: at its location a Hudi table may lie, too."""
    if is_hudi(entry):
        return None
    given = {key.lower(): value for key, value in entry.parameters.items()}
    if given.get("table_type", "").upper() == "ICEBERG":
        return "iceberg"
    found = given.get("spark.sql.sources.provider") or given.get("storage_handler")
    return None if found is None or "hudi" in found.lower() else found


def _is_empty(storage: Storage) -> bool:
    found = storage.list_folder("")
    return not found.files and not found.folders
