"""The metastore's typed client: frozen values in and out, time-outs on every call, retries where they are safe.

It supports Hive Metastores from 2.3 on: where a newer server has dropped a call, the request-style one is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from skep_catalog.calls import batches
from skep_catalog.entities import ColumnStatistics, LockAnswer, LockInfo, LockState
from skep_catalog.partition_calls import BATCH, PartitionCalls


class Metastore(PartitionCalls):
    """A client of one metastore (or several equal ones). Threads may share it.

    Databases and tables are named as in Hive, case-insensitively. Errors name server, call and table; see CatalogError.
    Adds column statistics and locks to the calls of its base classes.
    """

    # -- statistics

    def statistics(self, database: str, name: str, columns: Sequence[str]) -> dict[str, ColumnStatistics]:
        """Those of an unpartitioned table's columns, by column; a column without any is left out."""
        request = self._types.TableStatsRequest(dbName=database, tblName=name, colNames=list(columns))
        answer = self._read(
            "get_table_statistics_req", lambda c: c.get_table_statistics_req(request), f"{database}.{name}"
        )
        return {raw.colName: self._codec.statistics_of(raw) for raw in answer.tableStats}

    def partition_statistics(
        self, database: str, name: str, columns: Sequence[str], partitions: Sequence[str]
    ) -> dict[str, dict[str, ColumnStatistics]]:
        """The same of partitions: by partition name, then by column."""
        found: dict[str, dict[str, ColumnStatistics]] = {}
        for batch in batches(partitions, BATCH):
            request = self._types.PartitionsStatsRequest(
                dbName=database, tblName=name, colNames=list(columns), partNames=list(batch)
            )
            answer = self._read(
                "get_partitions_statistics_req",
                lambda c, r=request: c.get_partitions_statistics_req(r),
                f"{database}.{name}",
                long=True,
            )
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
        if partition is None:
            call, write = "update_table_column_statistics", lambda c: c.update_table_column_statistics(raw)
        else:
            call, write = "update_partition_column_statistics", lambda c: c.update_partition_column_statistics(raw)
        self._call(call, write, f"{database}.{name}", idempotent=True, long=False)

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
        return self._answer(self._write("lock", lambda c: c.lock(request), f"{database}.{table}"))

    def check_lock(self, lock_id: int) -> LockAnswer:
        """The state of a lock. NoSuchLockError when it no longer exists. Counts as a heartbeat."""
        request = self._types.CheckLockRequest(lockid=lock_id)
        return self._answer(self._read("check_lock", lambda c: c.check_lock(request)))

    def heartbeat(self, lock_id: int) -> None:
        """Keeps a lock alive, a waiting one too. NoSuchLockError when it no longer exists."""
        request = self._types.HeartbeatRequest(lockid=lock_id)
        self._read("heartbeat", lambda c: c.heartbeat(request))

    def unlock(self, lock_id: int) -> None:
        """Releases a lock. NoSuchLockError when it no longer exists."""
        request = self._types.UnlockRequest(lockid=lock_id)
        self._write("unlock", lambda c: c.unlock(request))

    def locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """The locks held and waited for, oldest first."""
        request = self._types.ShowLocksRequest(dbname=database, tablename=table)
        answer = self._read("show_locks", lambda c: c.show_locks(request), database and f"{database}.{table or '*'}")
        found = [self._codec.lock_of(raw) for raw in answer.locks or ()]
        return sorted(found, key=lambda lock: lock.lock_id)

    def _answer(self, raw: Any) -> LockAnswer:
        return LockAnswer(raw.lockid, LockState(raw.state))
