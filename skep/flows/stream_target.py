"""The target of a stream as `skep` provides it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa

from skep.base.background import wait_for
from skep.handles.bootstraps import format_setting, found_source, written
from skep.handles.by_path import handle_of
from skep.handles.destination import Destination, made_at
from skep.handles.frame_writer import OPERATION, FrameWriter
from skep.handles.table import Table
from skep.handles.writing import writer_for
from skep.query.spark import SparkHolder
from skep_format.errors import SkepError
from skep_format.options import Options
from skep_format.schema.arrow import from_arrow, nullable, to_arrow
from skep_format.schema.types import Schema
from skep_format.storage import open_storage
from skep_format.timeline.instant import Action
from skep_format.timeline.metadata import WriteOperation
from skep_format.versions import MergeSource, StreamerKeys, format_of, format_of_version
from skep_stream.options import ERROR_FAILURE, ERROR_NAME, ERROR_PATH, ERROR_TABLE, PARTIAL_UPDATES, WriteFailure
from skep_stream.protocols import ErrorTable, StreamTarget
from skep_stream.shares import SharedTurns, Work
from skep_table.commit.create import check_empty, planned_table
from skep_table.events import Events
from skep_table.table import HudiTable
from skep_table.write.partial import SetColumns
from skep_table.write.planning.merge_options import MERGE_MODE, ORDERING, PAYLOAD, STRATEGY
from skep_table.write.planning.plan import plan_write
from skep_table.write.planning.row_check import RowCheck
from skep_table.write.planning.settings import RECORD_KEY, TABLE_NAME, TABLE_VERSION, check_settings, spec_of
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.result import WriteResult

log = logging.getLogger("skep.stream")
_ORDERING_OF_0_15: Final = "ts"
_PAYLOAD_OF_0_15: Final = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"


class OtherNameWarning(UserWarning):
    """The target table has another name than the one given."""


class DescribedTarget(StreamTarget):
    """A table as it is, or as it is described: with its lock, services and syncs."""

    def __init__(self, destination: Destination, version: int) -> None:
        self._destination = destination
        self._version = version
        self._sets_some = False  # rows have only the columns that are set
        self._known: HudiTable | None = None

    def table(self) -> HudiTable | None:
        """See `StreamTarget`. TableMismatchError where it differs from what is described."""
        if self._known is not None:
            self._known = self._known.reload()
        elif (found := self._destination.table()) is not None:
            self._known = found.snapshot
        return self._known

    def checkpoint_keys(self) -> StreamerKeys:
        return (format_of_version(self._version) if self._known is None else self._known.format).streamer_keys

    def check(self, operation: WriteOperation, schema: Schema) -> None:
        table = self._known
        if table is not None and operation is not WriteOperation.DELETE_PARTITION:
            settings = WriteSettings.of(self._options_for(table))
            columns = nullable(to_arrow(schema))
            plan_write(table, operation, columns, settings, sets=self._sets(columns))

    def _sets(self, columns: pa.Schema) -> SetColumns | None:
        return SetColumns(frozenset(columns.names), only=True) if self._sets_some else None

    def write(
        self,
        operation: WriteOperation,
        frame: pa.Table,
        schema: Schema | None,
        extra: Mapping[str, str],
        batch_id: str | None = None,
    ) -> WriteResult:
        """See `StreamTarget`. TableMismatchError where the table there has other settings."""
        table = self.table()
        if table is not None:
            frame = frame.cast(nullable(frame.schema))  # rows that are there have no value in a column that is new
        with self._destination.for_rows(schema or frame.schema) as made:
            table = table or made.snapshot
            writer = writer_for(frame, table.with_options(self._options_for(table)), made.services())
            if operation is WriteOperation.DELETE_PARTITION:
                result = writer.delete_partitions(writer.partitions_of(frame), extra_metadata=extra, batch_id=batch_id)
            else:
                some = self._sets_some
                result = writer.write(operation, frame, partial=some, extra_metadata=extra, batch_id=batch_id)
        self._known = (result.table or table).in_context_of(table)
        return result

    def _options_for(self, table: HudiTable) -> Options:
        return table.options


class TableTarget(DescribedTarget):
    """The target table at a path: made by the first commit, then written with the settings that it has."""

    def __init__(
        self, path: str, options: Options, spark: SparkHolder, events: Events, turns: SharedTurns | None = None
    ) -> None:
        """With `turns` its services in the background take turns with rounds."""
        super().__init__(Destination(path, self._opened, self._made), options.value(TABLE_VERSION))
        self._turns = turns
        self._sets_some = options.value(PARTIAL_UPDATES)
        self.path = path
        self.options = options
        self._spark = spark
        self._events = events

    def _opened(self) -> Table:
        return self._in_turns(handle_of(HudiTable.open(self.path, self.options), self._events, self._spark))

    def _in_turns(self, table: Table) -> Table:
        if self._turns is None:
            return table
        turns = {work.value: partial(self._turns.turn, work) for work in (Work.COMPACTION, Work.CLUSTERING)}
        return table.with_services(replace(table.services(), turns=turns))

    @contextmanager
    def _made(self, schema: Any, settings: Mapping[str, str] | None = None) -> Iterator[Table]:
        name = self.options.value(TABLE_NAME)
        columns = schema if isinstance(schema, Schema) else from_arrow(schema, name)
        options = self._options_of_new(columns).with_values(settings or {})
        storage = open_storage(self.path, options)
        check_empty(storage, name)
        with made_at(storage, spec_of(options, name, columns), options, events=self._events, spark=self._spark) as made:
            yield self._in_turns(made)

    def check_of(self, operation: WriteOperation, columns: pa.Schema, schema: Schema | None) -> RowCheck:
        """What refuses rows of these columns that `write` could not write. InputError where no such rows could be."""
        table = self.table()
        if table is None:
            made = schema or from_arrow(columns, self.options.value(TABLE_NAME))
            options = self._options_of_new(made)
            spec = spec_of(options, options.value(TABLE_NAME), made)
            table = planned_table(open_storage(self.path, options), spec, options)
        # the values of a partition that is dropped make its path, as those of an insert do
        kind = WriteOperation.INSERT if operation is WriteOperation.DELETE_PARTITION else operation
        columns = nullable(columns)
        return RowCheck(table, kind, columns, WriteSettings.of(self._options_for(table)), self._sets(columns))

    def bootstrap(self, extra: Mapping[str, str]) -> list[WriteResult]:
        """Makes the table of the folder that the options name. `extra` goes into the commits."""
        table = self.table()
        keys = self.options.value(RECORD_KEY)
        source = found_source(self.options, keys, self._events)
        settings = format_setting(source, self.options)
        with self._destination.for_rows(to_arrow(source.columns), settings) as made:
            results = written(made, source, self._options_for(table or made.snapshot), extra)
        self._known = results[-1].table
        return results

    def wait_for_services(self, compactions: int, clusterings: int) -> None:
        """Waits for the services in the background where so many plans are pending; 0 waits for all."""
        table = self.table()
        if table is None:
            return
        pending = table.timeline.pending()
        most = ((compactions, (Action.COMPACTION,)), (clusterings, (Action.CLUSTERING, Action.REPLACE_COMMIT)))
        if any(len(pending.of(*actions)) >= limit for limit, actions in most):
            if self._turns is not None:
                self._turns.rest()
            wait_for(table.storage.root)

    def _options_for(self, table: HudiTable) -> Options:
        """As given; the name is the table's, and its payload class, where it could name one and does not, Hudi's."""
        config, given = table.config, self.options
        more: dict[str, object] = {}
        if given.value(TABLE_NAME) != config.name:
            warnings.warn(
                f"the table at {self.path} is {config.name}, not {given.value(TABLE_NAME)}",
                OtherNameWarning,
                stacklevel=4,
            )
            more[TABLE_NAME.key] = config.name
        by_class = format_of(config).merge_source is MergeSource.PAYLOAD_CLASS
        if by_class and config.payload_class is None and not _merges(given):
            more[PAYLOAD.key] = _PAYLOAD_OF_0_15
        options = given.with_values(more)
        check_settings(config, table.storage.root, options)
        return options

    def _options_of_new(self, schema: Schema) -> Options:
        given = self.options
        more: dict[str, object] = {}
        if not given.is_set(ORDERING) and _ORDERING_OF_0_15 in schema.names():
            more[ORDERING.key] = _ORDERING_OF_0_15
        by_class = format_of_version(given.value(TABLE_VERSION)).merge_source is MergeSource.PAYLOAD_CLASS
        if by_class and not _merges(given):
            more[PAYLOAD.key] = _PAYLOAD_OF_0_15
        return given.with_values(more)


def _merges(options: Options) -> bool:
    """Whether the options state how rows merge."""
    return options.is_set(PAYLOAD) or options.is_set(MERGE_MODE) or options.is_set(STRATEGY)


class RejectedRecords(ErrorTable):
    """The error table of a stream: records without a key, made with the first of them."""

    def __init__(self, path: str, name: str, options: Options, target: str) -> None:
        self._path = path
        self._target = target
        storage = {key: value for key, value in options.items() if not key.startswith(("hoodie.", "skep."))}
        self._options = Options({**storage, TABLE_NAME.key: name})
        self._logs = options.value(ERROR_FAILURE) is WriteFailure.LOG_ERROR

    def write(self, rejected: pa.Table, batch_id: str) -> None:
        writer = FrameWriter(rejected).options(**self._options).option(OPERATION.key, "insert").mode("append")
        try:
            writer.save(self._path, batch_id=f"{self._target} {batch_id}")
        except SkepError:
            if not self._logs:
                raise
            log.exception("%d rejected records can't be kept at %s", rejected.num_rows, self._path)


def error_table(options: Options, target: str) -> RejectedRecords | None:
    """The error table that the options name. OptionError for one without a folder."""
    if not options.value(ERROR_TABLE):
        return None
    path = options.needed(ERROR_PATH, f"{ERROR_TABLE.key} needs")
    return RejectedRecords(path, options.value(ERROR_NAME) or f"{options.value(TABLE_NAME)}_errors", options, target)
