"""A table handle: the methods that users call. Each write is one commit; each read uses a new snapshot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import skep.base.known_options  # noqa: F401 - the options that reading does not need are known all the same
import skep_writer
from skep.base.arguments import checks_arguments
from skep.base.display import facts_html
from skep.base.history import Commit, commit_of
from skep.base.keywords import takes_options
from skep.base.schemas import type_of
from skep.base.specs import Text, texts
from skep.base.times import Moment, range_text, time_text
from skep.query.rows import Rows
from skep.services.metadata import MetadataMethods
from skep.services.methods import ServiceMethods
from skep.services.repairs import RepairMethods
from skep.services.runner import Services
from skep_format.errors import InputError, SkepError
from skep_format.options import Options
from skep_format.schema.change import (
    AddColumn,
    AllowNull,
    ChangeType,
    ColumnChange,
    CommentColumn,
    DropColumn,
    MoveColumn,
    RenameColumn,
)
from skep_format.schema.types import Schema
from skep_format.timeline.metadata import WriteOperation
from skep_table.events import Events
from skep_table.query.options import COMMITS_OF_BATCH, INCREMENTAL_FORMAT, START_OFFSET, QueryType
from skep_table.query.request import ReadRequest
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult

if TYPE_CHECKING:
    import polars
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from skep.handles.batches import Batches
    from skep.handles.changes import MergeBuilder
    from skep_sync.feed import Fed
    from skep_sync.sync import SyncReport
    from skep_table.write.flow import TableWriter
    from skep_table.write.planning.planned import PlannedDelete, PlannedDrop


@checks_arguments
class Table(ServiceMethods, MetadataMethods, RepairMethods):
    """A Hudi table. `Lake.table` and `Lake.create_table` hand these out; `skep.open_table` does for a path."""

    def __init__(
        self,
        hudi: HudiTable,
        services: Services,
        *,
        name: str | None = None,
        sync: Callable[[], SyncReport] | None = None,
        query: QueryType = QueryType.SNAPSHOT,
        batches: Batches | None = None,
        owner: Hashable = None,
    ) -> None:
        self._query = query
        self._batches, self._owner = batches, owner
        self._hudi = hudi
        self._services = services
        self._sync = sync
        self.name = name or hudi.config.name

    def __repr__(self) -> str:
        return f"Table({self.name!r} at {self.path})"

    def __len__(self) -> int:
        return self.read().count()

    def __bool__(self) -> bool:
        return True  # a handle; whether it has rows would take a read

    def _repr_html_(self) -> str:
        config = self._hudi.config
        facts = {
            "path": self.path,
            "type": config.type.value,
            "table version": config.version,
            "record key": ", ".join(self.key) or "none",
            "ordering": ", ".join(config.ordering_fields) or "none",
            "partitioned by": ", ".join(self.partition_by) or "nothing",
        }
        return facts_html(self.name, facts.items(), self.schema)

    # -- what it is

    @property
    def path(self) -> str:
        """The base path."""
        return self._hudi.storage.root

    @property
    def hudi(self) -> HudiTable:
        """A new snapshot of the table: its timeline, settings and file groups."""
        return self._hudi.reload()

    @property
    def snapshot(self) -> HudiTable:
        """That with which the handle was made."""
        return self._hudi

    @property
    def schema(self) -> Schema:
        """The data columns as of the latest commit."""
        return self.hudi.schema()

    @property
    def key(self) -> tuple[str, ...]:
        """The record key columns."""
        return self._hudi.config.record_key_fields

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return self._hudi.config.partition_fields

    def history(self, limit: int | None = None) -> list[Commit]:
        """The completed writes of the active timeline, oldest first; the last `limit` of them."""
        table = self.hudi
        instants = table.timeline.data().completed().instants
        return [commit_of(table, instant) for instant in (instants[-limit:] if limit else instants)]

    # -- writing

    @takes_options
    def upsert(
        self, frame: object, *, partial: bool = False, batch_id: str | None = None, **options: object
    ) -> WriteResult:
        """Updates the rows whose key is there, by the table's merge rule, and adds the others.

        `frame`: Spark, pandas or polars frame, or an Arrow table. `partial`: the columns of the table that it lacks
        stay as they are, and are null in rows that are added; it has the key, the ordering column and what it sets. A
        `batch_id` that a commit already has makes the call a no-op. `options` are Hudi's: `**{"hoodie.…": …}`.
        """
        return self.write(WriteOperation.UPSERT, frame, options, partial=partial, batch_id=batch_id)

    @takes_options
    def insert(self, frame: object, *, batch_id: str | None = None, **options: object) -> WriteResult:
        """Adds rows without looking for their keys; small files are filled up."""
        return self.write(WriteOperation.INSERT, frame, options, batch_id=batch_id)

    @takes_options
    def bulk_insert(self, frame: object, *, batch_id: str | None = None, **options: object) -> WriteResult:
        """Adds rows as new files without looking at what is there: for first loads."""
        return self.write(WriteOperation.BULK_INSERT, frame, options, batch_id=batch_id)

    @takes_options
    def insert_overwrite(
        self,
        frame: object,
        *,
        partition: Mapping[str, object] | None = None,
        batch_id: str | None = None,
        **options: object,
    ) -> WriteResult:
        """Replaces all rows of the partitions that `frame` has rows of, or of those that `partition` names.

        `partition={"day": "2026-01-01"}` replaces what has these values in partition columns, also by no rows. `frame`
        may lack the columns named there.
        """
        return self.write(WriteOperation.INSERT_OVERWRITE, frame, options, partition, batch_id=batch_id)

    @takes_options
    def insert_overwrite_table(self, frame: object, *, batch_id: str | None = None, **options: object) -> WriteResult:
        """Replaces all rows of the table by those of `frame`, which may be read from the table itself."""
        return self.write(WriteOperation.INSERT_OVERWRITE_TABLE, frame, options, batch_id=batch_id)

    @overload
    def delete(
        self,
        keys: object = None,
        *,
        where: str | None = None,
        batch_id: str | None = None,
        dry_run: Literal[False] = False,
        **options: object,
    ) -> WriteResult: ...

    @overload
    def delete(
        self,
        keys: object = None,
        *,
        where: str | None = None,
        batch_id: str | None = None,
        dry_run: Literal[True],
        **options: object,
    ) -> PlannedDelete: ...

    @takes_options
    def delete(
        self,
        keys: object = None,
        *,
        where: str | None = None,
        batch_id: str | None = None,
        dry_run: bool = False,
        **options: object,
    ) -> WriteResult | PlannedDelete:
        """Deletes rows by key (a frame with the key and partition columns), or those that a SQL predicate names.

        `where` may name any column; it is the way to delete rows of a table without record key, too. `dry_run`: counts
        the rows that would be deleted and changes nothing.
        """
        if (keys is None) == (where is None):
            raise InputError("delete takes keys or where, one of them", hint='delete(frame) or delete(where="a = 1")')
        if where is not None:
            return self._delete_where(where, batch_id, dry_run, options)
        if dry_run:
            from skep.handles.writing import in_process
            from skep_table.write.planning.planned import plan_delete

            return plan_delete(self._on_services(options), in_process(keys))
        return self.write(WriteOperation.DELETE, keys, options, batch_id=batch_id)

    def _delete_where(
        self, where: str, batch_id: str | None, dry_run: bool, options: Mapping[str, object]
    ) -> WriteResult | PlannedDelete:
        from skep.query.conditions import rows_to_delete
        from skep_table.write.joint import RemovalPart
        from skep_table.write.planning.planned import plan_delete_computed

        compute = rows_to_delete(self, where, self._services.spark)
        if dry_run:
            return plan_delete_computed(self._on_services(options), compute)
        if batch_id is None:
            return self.commit(RemovalPart(compute), options)
        return self.commit(lambda writer: writer.delete_computed(compute, batch_id=batch_id), options)

    @takes_options
    def update(self, *, set: Mapping[str, object], where: str | None = None, **options: object) -> WriteResult:
        """New values in the rows for which `where` holds, in one commit based on one snapshot.

        `set` gives each column a SQL expression as text (`{"price": "price * 2"}`), or a constant of another type.
        InputError for key and partition columns, and where the stored row would win by the table's merge rule.
        """
        from skep.handles.changes import update

        return update(self, self._services.spark, set, where, options)

    @takes_options
    def merge(
        self,
        source: object,
        on: Text,
        *,
        target_alias: str = "target",
        source_alias: str = "source",
        **options: object,
    ) -> MergeBuilder:
        """Joins a frame with the table: see `MergeBuilder` for what becomes of the rows, by one commit.

        `on` names the columns that are equal in both, or is a condition: `"target.id = source.key"`.
        """
        from skep.handles.changes import MergeBuilder

        return MergeBuilder(self, self._services.spark, source, on, (target_alias, source_alias), options)

    @overload
    def delete_partitions(
        self, *partitions: str, batch_id: str | None = None, dry_run: Literal[False] = False, **options: object
    ) -> WriteResult: ...

    @overload
    def delete_partitions(
        self, *partitions: str, batch_id: str | None = None, dry_run: Literal[True], **options: object
    ) -> PlannedDrop: ...

    @takes_options
    def delete_partitions(
        self, *partitions: str, batch_id: str | None = None, dry_run: bool = False, **options: object
    ) -> WriteResult | PlannedDrop:
        """Drops whole partitions by their paths; `*` stands for any text. The next clean deletes the files.

        `dry_run`: returns the partitions that would be dropped and changes nothing.
        """
        if dry_run:
            from skep_table.write.planning.planned import plan_drop

            return plan_drop(self._on_services(options), partitions)
        return self.commit(lambda writer: writer.delete_partitions(partitions, batch_id=batch_id), options)

    # -- columns, see docs/schema.md

    def rename_column(self, column: str, name: str) -> WriteResult:
        """A new name, the same values: `rename_column("address.zip", "postcode")`. One commit, no file is rewritten."""
        return self._alter([RenameColumn(column, name)])

    def drop_columns(self, *columns: str) -> WriteResult:
        """Takes columns out of the table. A column that is added later by the same name is another one."""
        return self._alter([DropColumn(column) for column in columns])

    def change_type(self, column: str, type: pa.DataType | str) -> WriteResult:
        """A type that holds the values of the old one, as Arrow type or in SQL's words: `"decimal(12,2)"`.

        int → long → float → double → decimal → string, decimals with more digits, date to string and back.
        """
        return self._alter([ChangeType(column, type_of(type, column))])

    def add_column(
        self, column: str, type: pa.DataType | str, *, after: str | None = None, comment: str | None = None
    ) -> WriteResult:
        """A column without values so far. `after` names the column before it; `""` is the first place in a struct."""
        return self._alter([AddColumn(column, type_of(type, column), comment, after)])

    def move_column(self, column: str, after: str) -> WriteResult:
        """Another place in the order of columns; `after` as of `add_column`."""
        return self._alter([MoveColumn(column, after)])

    def comment_column(self, column: str, comment: str) -> WriteResult:
        """A comment on a column."""
        return self._alter([CommentColumn(column, comment)])

    def allow_null(self, column: str) -> WriteResult:
        """A column that was never null may be null from now on."""
        return self._alter([AllowNull(column)])

    def _alter(self, changes: Sequence[ColumnChange]) -> WriteResult:
        return self.commit(lambda writer: writer.alter(changes), {})

    # -- what statements call, see skep_sql.protocols.TargetTable

    def rows(self, snapshot: HudiTable | None = None, **request: Any) -> Rows:
        """The rows of a snapshot, None for the newest; `request` are fields of a ReadRequest."""
        request.setdefault("query", self._query)
        is_shared = snapshot is self._hudi
        return Rows(snapshot or self.hudi, ReadRequest(**request), self._services.spark, is_shared=is_shared)

    def write(
        self,
        operation: WriteOperation,
        frame: object,
        options: Mapping[str, object],
        partitions: Mapping[str, object] | None = None,
        *,
        partial: bool = False,
        batch_id: str | None = None,
    ) -> WriteResult:
        """One commit of an operation; `partitions` as of `insert_overwrite`, `partial` as of `upsert`."""
        if partitions is not None:
            from skep.handles.writing import with_constants

            frame = with_constants(frame, partitions, self.hudi)
        how: Any = {"partitions": partitions, "partial": partial, "batch_id": batch_id}
        if self._batches is not None and not any(how.values()):
            from skep.handles.writing import part_of

            if (part := part_of(operation, frame)) is not None:
                return self.commit(part, options, part.frame)
        return self.commit(lambda writer: writer.write(operation, frame, **how), options, frame)

    def commit(
        self, write: Callable[[TableWriter], WriteResult], options: Mapping[str, object], frame: object = None
    ) -> WriteResult:
        """One commit, by what `write` does with a writer of this table, which is one for rows of `frame`.

        The next write of this handle plans on the snapshot that this one ended with, while that is recent. What Spark
        raises of a frame or of its own is an error of skep, see `engine_errors`. Where writes are batched, one that is
        a `Part` may be committed together with others.
        """
        from skep.handles.writing import writer_for

        def alone() -> WriteResult:
            return write(writer_for(frame, self._hudi.with_options(options), self._services))

        try:
            if self._batches is None:
                result = alone()
            else:
                result = self._batches.commit(self._hudi, self._services, write, options, alone)
        except SkepError:
            raise
        except Exception:
            from skep.query.engine_errors import engine_errors  # which knows the parser of SQL

            with engine_errors():
                raise
        if result.table is not None:
            self._hudi = result.table.in_context_of(self._hudi)
        return result

    @property
    def options(self) -> Options:
        """Those that all reads and writes of this table share."""
        return self._hudi.options

    @property
    def events(self) -> Events:
        """The events of writes and services of this table; `listen` adds a listener."""
        return self._hudi.context.events

    def with_services(self, services: Services) -> Table:
        """The same table, whose services run in another way."""
        batches = None if self._batches is None else replace(self._batches, owner=(self._batches.owner, id(services)))
        return self._with(services, batches)

    def batched(self) -> Table:
        """The same table, for many threads that write a little each: their writes queue, and small ones that wait while
        another is committed are one commit, in which each call has its own counts and its own error.

        All batched tables of this process share the queue of their path, in the order of their calls: none fails since
        another changed the same rows. Writes with options, a `batch_id`, or by Spark are commits of their own.
        """
        from skep.handles.batches import Batches

        return self._with(self._services, Batches.of(self._hudi, self._owner))

    def _with(self, services: Services, batches: Batches | None) -> Table:
        other = copy(self)
        other._services, other._batches = services, batches
        return other

    # -- reading

    def read(
        self,
        *,
        columns: Text | None = None,
        where: str | None = None,
        as_of: Moment | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        max_commits: int | None = None,
        query: str | None = None,
        limit: int | None = None,
    ) -> Rows:
        """The table's rows: all, `where` a SQL predicate holds, `as_of` an earlier time, or changed `since` an instant.

        Times are commits (what a write returned, an entry of `history`, an instant), dates and times of Python, or
        their texts; from table version 8 on other times of a range are compared with when commits completed.
        `max_commits` keeps the first so many commits behind `since`. `query`: snapshot, read_optimized, incremental or
        cdc.
        """
        table, spark = self.hudi, self._services.spark
        is_range = any(each is not None for each in (since, until, max_commits))
        kind = query or ("incremental" if is_range else self._query)
        request = ReadRequest(
            query=kind,  # type: ignore[arg-type]
            as_of=time_text(as_of, "as_of"),
            since=range_text(table, since, "since"),
            until=range_text(table, until, "until"),
            max_commits=max_commits,
            columns=None if columns is None else texts(columns),
            where=where,
            limit=limit,
        )
        if where is not None and request.query is not QueryType.CDC:
            from skep.query.conditions import MatchingRead, is_for_engine

            if is_for_engine(where, table, spark):
                return MatchingRead(table, request, spark)
        return Rows(table, request, spark)

    def head(self, limit: int = 5) -> pa.Table:
        """The first rows that are found, without Hudi's meta columns."""
        return self.read(columns=self.schema.names(), limit=limit).to_arrow()

    def to_pyarrow_dataset(self) -> ds.Dataset:
        """The table as it is now, as a dataset of pyarrow; `read(…).to_pyarrow_dataset()` is that of some rows."""
        return self.read().to_pyarrow_dataset()

    def scan_polars(self) -> polars.LazyFrame:
        """The table as it is now, as a lazy frame of Polars."""
        return self.read().scan_polars()

    def changes(
        self,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        max_commits: int | None = None,
        cdc: bool = False,
    ) -> Rows:
        """Rows inserted or updated after an instant, as they are now, or after the first `max_commits` commits.

        With `cdc` each change: its operation (i, u, d), its instant, and the row before and after it as JSON.
        """
        return self.read(query="cdc" if cdc else "incremental", since=since, until=until, max_commits=max_commits)

    @takes_options
    def read_stream(
        self,
        spark: SparkSession | None = None,
        *,
        since: Moment | None = None,
        max_commits: int | None = None,
        cdc: bool = False,
        **options: object,
    ) -> DataFrame:
        """A streaming frame of what commits insert or update, for `writeStream`; its checkpoint has the position.

        The first batch has the whole table, or begins behind `since`: a time, or `latest`. `max_commits` are those of a
        batch at most; `cdc` as of `changes`. UnsupportedError where Spark takes no such source.
        """
        kind, table = "cdc" if cdc else None, self.hudi
        start = range_text(table, since, "since")
        named = {START_OFFSET.key: start, COMMITS_OF_BATCH.key: max_commits, INCREMENTAL_FORMAT.key: kind}
        asked = {key: value for key, value in named.items() if value is not None} | options
        return skep_writer.stream_changes(spark or self._services.spark.session, table, self.options.with_values(asked))

    def send_changes(self, to: str, *, consumer: str | None = None, since: Moment | None = None) -> list[Fed]:
        """Sends what commits changed to a receiver: a folder, http(s)://… or kafka://servers/topic; - is stdout.

        The next call goes on behind the last commit that the receiver has, or the one of a `consumer` by its name;
        `since` begins after another time. SyncError when the receiver fails: the commit is sent again by the next call.
        """
        from skep_sync.feed import feed, receiver_of

        table = self.hudi
        receiver = receiver_of(to, table.options, lambda: sys.stdout.buffer)
        return list(feed(table, receiver, consumer=consumer, since=range_text(table, since, "since")))

    # -- the metastore

    def sync(self) -> SyncReport:
        """Brings the metastore up to the table's state. InputError for a table that belongs to no lake."""
        if self._sync is None:
            raise InputError(
                f"table {self.name} was opened by its path, no metastore is known", hint="use skep.connect(…).table(…)"
            )
        return self._sync()
