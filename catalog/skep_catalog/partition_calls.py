"""A table's partitions in the metastore: by names, in batches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from skep_catalog.calls import batches
from skep_catalog.entities import Partition
from skep_catalog.table_calls import TableCalls
from skep_format.errors import CatalogError, NoSuchTableError

BATCH: Final = 1000
_COUNTS: Final = frozenset({"numFiles", "totalSize"})
_ERASURE_CODED: Final = "numFilesErasureCoded"


class PartitionCalls(TableCalls):
    """Partitions, besides their tables."""

    def partition_names(self, database: str, name: str) -> list[str]:
        """All partitions as `k=v/…`, values escaped as Hive does: much cheaper than the partitions themselves."""
        try:
            names: list[str] = self._read(
                "get_partition_names",
                lambda c: c.get_partition_names(database, name, -1),
                f"{database}.{name}",
                long=True,
            )
        except CatalogError as error:
            if error.fields.get("error") != "TApplicationException":
                raise
            self.table(database, name)  # old servers fail like this, without a reason, for a missing table
            raise
        if not names:
            self.table(database, name)  # new servers report no partitions for a missing table
        return names

    def partitions(self, database: str, name: str, names: Sequence[str] | None = None) -> Iterator[Partition]:
        """The partitions of these names (None: all), in batches. A name that is not there is passed over."""
        full_name = f"{database}.{name}"
        if names is None:
            names = self.partition_names(database, name)
        for batch in batches(names, BATCH):
            listed = list(batch)
            for raw in self._read(
                "get_partitions_by_names",
                lambda c, listed=listed: c.get_partitions_by_names(database, name, listed),
                full_name,
                long=True,
            ):
                yield self._codec.partition_of(raw)

    def add_partitions(
        self, database: str, name: str, partitions: Iterable[Partition], *, batch_size: int = BATCH
    ) -> Iterator[int]:
        """Adds in batches; those that exist are left as they are. Yields how many were sent after each batch.

        Partitions with the parameters numFiles and totalSize keep these; else the server lists their folders.
        """
        sent = 0
        for batch in batches([self._counted(partition) for partition in partitions], batch_size):
            request = self._types.AddPartitionsRequest(
                dbName=database,
                tblName=name,
                parts=[self._codec.partition_to(partition, database, name) for partition in batch],
                ifNotExists=True,
                needResult=False,
            )
            self._repeatable("add_partitions_req", lambda c, r=request: c.add_partitions_req(r), f"{database}.{name}")
            sent += len(batch)
            yield sent

    def _counted(self, partition: Partition) -> Partition:
        """From 4 on the server lists folders unless it gets this third number too."""
        if not partition.parameters.keys() >= _COUNTS or not self.version.startswith("4"):
            return partition
        return replace(partition, parameters={_ERASURE_CODED: "0", **partition.parameters})

    def alter_partitions(
        self, database: str, name: str, partitions: Iterable[Partition], *, batch_size: int = BATCH
    ) -> Iterator[int]:
        """Writes whole partitions over those of the same values, in batches."""
        sent = 0
        for batch in batches(list(partitions), batch_size):
            raw = [self._codec.partition_to(partition, database, name) for partition in batch]
            context = self._types.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
            self._repeatable(
                "alter_partitions",
                lambda c, raw=raw, context=context: c.alter_partitions_with_environment_context(
                    database, name, raw, context
                ),
                f"{database}.{name}",
            )
            sent += len(batch)
            yield sent

    def drop_partitions(
        self, database: str, name: str, names: Sequence[str], *, batch_size: int = BATCH
    ) -> Iterator[int]:
        """Drops the entries of these names, never the data, in batches. A name that is not there is passed over."""
        sent = 0
        for batch in batches(names, batch_size):
            request = self._types.DropPartitionsRequest(
                dbName=database,
                tblName=name,
                parts=self._types.RequestPartsSpec(names=list(batch)),
                deleteData=False,
                ifExists=True,
                needResult=False,
            )
            try:
                self._repeatable(
                    "drop_partitions_req", lambda c, r=request: c.drop_partitions_req(r), f"{database}.{name}"
                )
            except NoSuchTableError:
                # Servers refuse a batch in which a name is missing, ifExists or not: what is there goes one by one.
                self.table(database, name)
                for partition_name in batch:
                    self._drop_partition(database, name, partition_name)
            sent += len(batch)
            yield sent

    def _drop_partition(self, database: str, name: str, partition_name: str) -> None:
        with contextlib.suppress(NoSuchTableError):
            self._write(
                "drop_partition_by_name",
                lambda c: c.drop_partition_by_name(database, name, partition_name, False),
                f"{database}.{name}",
            )
