"""The metastore's typed client: frozen values in and out, time-outs on every call, retries where they are safe.

It supports Hive Metastores from 2.3 on: where a newer server has dropped a call, the request-style one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from skep_catalog.catalogs import EntryCatalog
from skep_catalog.entities import (
    ColumnStatistics,
    Database,
    LockAnswer,
    LockInfo,
    LockState,
    Partition,
    TableEntry,
)
from skep_catalog.settings import ConnectionSettings
from skep_format.batching import pieces
from skep_format.errors import (
    CatalogError,
    EntryExistsError,
    MetastoreUnreachableError,
    NoSuchTableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from skep_catalog.connection import Connections
    from skep_catalog.kept_entries import KeptEntries

_BATCH: Final = 1000
_TABLES: Final = 200  # in one answer
_COUNTS: Final = frozenset({"numFiles", "totalSize"})
_ERASURE_CODED: Final = "numFilesErasureCoded"
_HAVE_ANOTHER_WAY: Final = ("get_table_req", "get_table_objects_by_name_req")


class Metastore(EntryCatalog):
    """A client of one metastore (or several equal ones). Threads may share it.

    Databases and tables are named as in Hive, case-insensitively. Errors name server, call and table; see CatalogError.
    """

    def __init__(self, connections: Connections) -> None:
        # The generated code is large: it is imported with the first connection, not with this module.
        from hmsclient.genthrift.hive_metastore import ttypes

        from skep_catalog import thrift_codec

        self._connections = connections
        self._types: Any = ttypes
        self._codec = thrift_codec
        self._has_get_table_req = True
        self._version: str | None = None

    @classmethod
    def connect(
        cls,
        uris: str | Sequence[str] | None,
        settings: ConnectionSettings | Mapping[str, object] | None = None,
        *,
        revived: Callable[[], str] | None = None,
        kept: Callable[[], KeptEntries | None] | None = None,
        **over: Any,
    ) -> Metastore:
        """`uris`: `thrift://host:port`, several separated by commas. No connection is opened before the first call.

        `settings` may be option keys (`skep.metastore.*`); `over` are fields of ConnectionSettings, which win.
        `revived` is called when no server answers, and returns the address of one that
        it brought up (see EmbeddedMetastore.revived). Without `uris` the first call has it bring one up that
        what `kept` returns can't answer (see EmbeddedWhenNeeded.kept).
        """
        from skep_catalog.connection import Connections, parse_addresses

        known = settings if isinstance(settings, ConnectionSettings) else ConnectionSettings.of(settings)
        addresses = () if uris is None and revived is not None else parse_addresses(uris or ())
        return cls(Connections(addresses, replace(known, **over), revived, kept))

    @property
    def uri(self) -> str:
        """The addresses of the servers, separated by commas."""
        return self._connections.uri

    @property
    def user(self) -> str:
        """Whom servers that don't authenticate take the caller for."""
        return self._connections.user

    @property
    def calls(self) -> int:
        return self._connections.calls

    @property
    def version(self) -> str:
        """As the server reports it; servers before 4 all report 3.0."""
        if self._version is None:
            self._version = str(self._read("getVersion"))
        return self._version

    def setting(self, name: str, default: str) -> str:
        """A setting of the server, by its name in hive-site.xml. CatalogError for settings that it keeps private."""
        return str(self._read("get_config_value", name, default))

    def own_connection(self) -> Metastore:
        """A client of the same servers that shares no connection with this one: for heartbeats."""
        from skep_catalog.connection import Connections

        mine = self._connections
        return Metastore(Connections(mine.addresses, mine.settings, mine.revived, mine.kept))

    def close(self) -> None:
        self._connections.close()

    # -- databases and tables

    def databases(self) -> list[str]:
        return sorted(self._read("get_all_databases"))

    def database(self, name: str) -> Database:
        return self._codec.database_of(self._read("get_database", name, of=name))

    def new_database(self, database: Database) -> None:
        self._write("create_database", self._codec.database_to(database), of=database.name)

    def drop_database(self, name: str, *, cascade: bool = False) -> None:
        if cascade:
            for table in self.tables(name):
                self.drop_table(name, table)
        self._write("drop_database", name, False, False, of=name)

    def tables(self, database: str) -> list[str]:
        return sorted(self._read("get_all_tables", database, of=database))

    def table(self, database: str, name: str) -> TableEntry:
        from skep_catalog.connection import UnknownMethodError

        full_name = f"{database}.{name}"
        if self._has_get_table_req:
            request = self._types.GetTableRequest(dbName=database, tblName=name)
            try:
                return self._codec.table_of(self._read("get_table_req", request, of=full_name).table)
            except UnknownMethodError:
                self._has_get_table_req = False
        return self._codec.table_of(self._read("get_table", database, name, of=full_name))

    def find_tables(self, database: str, names: Sequence[str]) -> dict[str, TableEntry | None]:
        try:
            found = {entry.name: entry for entry in self.tables_of(database, names)} if len(names) > 1 else {}
        except MetastoreUnreachableError:
            raise
        except CatalogError:  # some releases refuse the call for a database that is not there
            found = {}
        return {name: found.get(name.lower()) or self.find_table(database, name) for name in names}

    def tables_of(self, database: str, names: Sequence[str] | None = None) -> Iterator[TableEntry]:
        from skep_catalog.connection import UnknownMethodError

        for batch in pieces(self.tables(database) if names is None else list(names), _TABLES):
            request = self._types.GetTablesRequest(dbName=database, tblNames=list(batch))
            try:
                answer = self._read("get_table_objects_by_name_req", request, of=database)
            except UnknownMethodError:
                yield from filter(None, (self.find_table(database, name) for name in batch))
            else:
                yield from map(self._codec.table_of, answer.tables)

    def rename_table(self, database: str, name: str, new_database: str, new_name: str) -> None:
        """Renames the entry; the data of an external table stays where it is. EntryExistsError for a name in use."""
        if self.find_table(new_database, new_name) is not None:
            raise EntryExistsError(
                f"table {new_database}.{new_name} exists in metastore {self.uri}",
                uri=self.uri,
                call="alter_table",
                table=f"{new_database}.{new_name}",
            )
        self.alter_table(
            database, name, replace(self.table(database, name), database=new_database.lower(), name=new_name.lower())
        )

    def create_table(self, table: TableEntry) -> None:
        raw = self._codec.table_to(table)
        try:
            self._write("create_table", raw, of=table.full_name)
        except CatalogError as error:
            # An unknown database is refused as an "invalid object" whose text is the name.
            if error.fields.get("error") == "InvalidObjectException" and table.database not in self.databases():
                raise NoSuchTableError(
                    f"table {table.full_name}: metastore {self.uri} has no database {table.database}",
                    **error.fields,  # type: ignore[arg-type]
                ) from error
            raise

    def alter_table(
        self,
        database: str,
        name: str,
        table: TableEntry,
        *,
        cascade: bool = False,
        expected: tuple[str, str] | None = None,
    ) -> None:
        """Writes `table` over the entry `database.name` (another name in it renames).

        `cascade` takes changed columns to all partitions. `expected` is a parameter's key and value that the entry must
        still have: servers that support it (2.3.10, 4.x) refuse with EntryChangedError otherwise, older ones ignore it.
        """
        properties = {"CASCADE": "true"} if cascade else {}
        if expected is not None:
            properties["expected_parameter_key"], properties["expected_parameter_value"] = expected
        raw = self._codec.table_to(table)
        context = self._types.EnvironmentContext(properties=properties)
        self._write("alter_table", database, name, raw, context, of=f"{database}.{name}", long=cascade)

    def drop_table(self, database: str, name: str) -> None:
        self._write("drop_table", database, name, False, of=f"{database}.{name}", long=True)

    # -- partitions

    def partition_names(self, database: str, name: str) -> list[str]:
        try:
            names: list[str] = self._read("get_partition_names", database, name, -1, of=f"{database}.{name}", long=True)
        except CatalogError as error:
            if error.fields.get("error") != "TApplicationException":
                raise
            self.table(database, name)  # old servers fail like this, without a reason, for a missing table
            raise
        if not names:
            self.table(database, name)  # new servers report no partitions for a missing table
        return names

    def partitions(self, database: str, name: str, names: Sequence[str] | None = None) -> Iterator[Partition]:
        full_name = f"{database}.{name}"
        if names is None:
            names = self.partition_names(database, name)
        for batch in pieces(names, _BATCH):
            raws = self._read("get_partitions_by_names", database, name, list(batch), of=full_name, long=True)
            yield from map(self._codec.partition_of, raws)

    def add_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        parts = [self._codec.partition_to(self._counted(partition), database, name) for partition in partitions]
        request = self._types.AddPartitionsRequest(
            dbName=database, tblName=name, parts=parts, ifNotExists=True, needResult=False
        )
        self._read("add_partitions_req", request, of=f"{database}.{name}", long=True)

    def _counted(self, partition: Partition) -> Partition:
        """From 4 on the server lists folders unless it gets this third number too."""
        if not partition.parameters.keys() >= _COUNTS or not self.version.startswith("4"):
            return partition
        return replace(partition, parameters={_ERASURE_CODED: "0", **partition.parameters})

    def alter_partitions(self, database: str, name: str, partitions: Sequence[Partition]) -> None:
        raw = [self._codec.partition_to(partition, database, name) for partition in partitions]
        context = self._types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
        self._read("alter_partitions", database, name, raw, context, of=f"{database}.{name}", long=True)

    def drop_partitions(self, database: str, name: str, names: Sequence[str]) -> None:
        request = self._types.DropPartitionsRequest(
            dbName=database,
            tblName=name,
            parts=self._types.RequestPartsSpec(names=list(names)),
            deleteData=False,
            ifExists=True,
            needResult=False,
        )
        try:
            self._read("drop_partitions_req", request, of=f"{database}.{name}", long=True)
        except NoSuchTableError:
            # Servers refuse a call in which a name is missing, ifExists or not: what is there goes one by one.
            self.table(database, name)
            for each in names:
                with suppress(NoSuchTableError):
                    self._write("drop_partition_by_name", database, name, each, False, of=f"{database}.{name}")

    # -- statistics

    def statistics(self, database: str, name: str, columns: Sequence[str]) -> dict[str, ColumnStatistics]:
        """Those of an unpartitioned table's columns, by column; a column without any is left out."""
        request = self._types.TableStatsRequest(dbName=database, tblName=name, colNames=list(columns))
        answer = self._read("get_table_statistics_req", request, of=f"{database}.{name}")
        return {raw.colName: self._codec.statistics_of(raw) for raw in answer.tableStats}

    def partition_statistics(
        self, database: str, name: str, columns: Sequence[str], partitions: Sequence[str]
    ) -> dict[str, dict[str, ColumnStatistics]]:
        """The same of partitions: by partition name, then by column."""
        found: dict[str, dict[str, ColumnStatistics]] = {}
        for batch in pieces(partitions, _BATCH):
            request = self._types.PartitionsStatsRequest(
                dbName=database, tblName=name, colNames=list(columns), partNames=list(batch)
            )
            answer = self._read("get_partitions_statistics_req", request, of=f"{database}.{name}", long=True)
            for partition, raws in answer.partStats.items():
                found[partition] = {raw.colName: self._codec.statistics_of(raw) for raw in raws}
        return found

    def set_statistics(
        self, database: str, name: str, statistics: Iterable[ColumnStatistics], *, partition: str | None = None
    ) -> None:
        """Those of columns of a table, or of one partition by its name. Columns that are not named keep theirs."""
        types = self._types
        description = types.ColumnStatisticsDesc(
            isTblLevel=partition is None, dbName=database, tableName=name, partName=partition
        )
        raw = types.ColumnStatistics(description, [self._codec.statistics_to(one) for one in statistics])
        level = "table" if partition is None else "partition"
        self._read(f"update_{level}_column_statistics", raw, of=f"{database}.{name}")

    # -- locks

    def lock(
        self, database: str, table: str, *, agent_info: str, user: str, host: str, partition: str | None = None
    ) -> LockAnswer:
        """Requests the exclusive lock of a table (or of one partition). The table need not exist."""
        types = self._types
        component = types.LockComponent(
            type=types.LockType.EXCLUSIVE,
            level=types.LockLevel.TABLE if partition is None else types.LockLevel.PARTITION,
            dbname=database,
            tablename=table,
            partitionname=partition,
            operationType=types.DataOperationType.NO_TXN,
            isAcid=False,
        )
        request = types.LockRequest(component=[component], user=user, hostname=host, agentInfo=agent_info)
        return self._answer(self._write("lock", request, of=f"{database}.{table}"))

    def check_lock(self, lock_id: int) -> LockAnswer:
        """The state of a lock. NoSuchLockError when it no longer exists. Counts as a heartbeat."""
        request = self._types.CheckLockRequest(lockid=lock_id)
        return self._answer(self._read("check_lock", request))

    def heartbeat(self, lock_id: int) -> None:
        """Keeps a lock alive, a waiting one too. NoSuchLockError when it no longer exists."""
        request = self._types.HeartbeatRequest(lockid=lock_id)
        self._read("heartbeat", request)

    def unlock(self, lock_id: int) -> None:
        """Releases a lock. NoSuchLockError when it no longer exists."""
        request = self._types.UnlockRequest(lockid=lock_id)
        self._write("unlock", request)

    def locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """The locks held and waited for, oldest first."""
        request = self._types.ShowLocksRequest(dbname=database, tablename=table)
        answer = self._read("show_locks", request, of=database and f"{database}.{table or '*'}")
        found = [self._codec.lock_of(raw) for raw in answer.locks or ()]
        return sorted(found, key=lambda lock: lock.lock_id)

    def _answer(self, raw: Any) -> LockAnswer:
        return LockAnswer(raw.lockid, LockState(raw.state))

    # -- how

    def _read(self, name: str, *arguments: object, of: str | None = None, long: bool = False) -> Any:
        """Of a read, or another call that may be repeated; `of` names the table in errors."""
        return self._call(name, arguments, of, idempotent=True, long=long)

    def _write(self, name: str, *arguments: object, of: str | None = None, long: bool = False) -> Any:
        return self._call(name, arguments, of, idempotent=False, long=long)

    def _call(self, name: str, arguments: Sequence[object], of: str | None, *, idempotent: bool, long: bool) -> Any:
        from skep_catalog.connection import UnknownMethodError

        settings = self._connections.settings
        method = f"{name}_with_environment_context" if name.startswith("alter_") else name
        try:
            return self._connections.call(
                name,
                lambda client: getattr(client, method)(*arguments),
                table=of,
                idempotent=idempotent,
                timeout=settings.long_timeout if long else settings.timeout,
            )
        except UnknownMethodError as error:
            if name in _HAVE_ANOTHER_WAY:
                raise
            raise UnsupportedError(
                f"metastore {self.uri} does not have the call {name}", uri=self.uri, call=name
            ) from error
