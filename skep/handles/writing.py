"""Chooses the writer of a frame, and combines it with lock and hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa

import skep_writer
from skep.query.over_rows import Queries
from skep.services.runner import Services
from skep_format.errors import InputError
from skep_format.options import Options
from skep_format.schema.arrow import to_arrow
from skep_format.timeline.metadata import WriteOperation
from skep_sync.callbacks import callback_hook
from skep_sync.callbacks.options import ON
from skep_sync.callbacks.senders import sender_of
from skep_table.events import Events
from skep_table.hooks import CommitHook
from skep_table.table import HudiTable
from skep_table.write.context import Memory
from skep_table.write.flow import TableWriter
from skep_table.write.input.given import row_input
from skep_table.write.input.row_input import RereadInput
from skep_table.write.joint import FramePart
from skep_table.write.local import LocalWriter
from skep_table.write.planning.settings import AUTO_UPGRADE, TABLE_VERSION
from skep_writer.session import is_spark_frame


def writer_for(
    frame: object,
    table: HudiTable,
    services: Services,
    create: Callable[[], object] | None = None,
) -> TableWriter:
    """A writer for one call, with a lock of its own and the services and hooks that follow its commit.

    Spark writes Spark frames, and all frames where the caller gave a session; others are written in this process.
    `create`: see TableWriter.
    """
    options, events = table.options, table.context.events
    options.check()
    hooks = (services.after_commit(table), *services.hooks, *_callback_hooks(options, events))
    session = frame.sparkSession if is_spark_frame(frame) else services.spark.given  # type: ignore[attr-defined]
    if create is None and options.value(AUTO_UPGRADE):
        from skep_table.upgrade import upgrade_to

        table = upgrade_to(services.on(table), options.value(TABLE_VERSION)).in_context_of(table)
    locked = table.with_context(lock=services.lock(options), queries=Queries(services.spark).query)
    if session is None:
        return LocalWriter(locked, hooks, create)
    return skep_writer.SparkWriter(locked, session, hooks, create)


def part_of(operation: WriteOperation, frame: object) -> FramePart | None:
    """A write of a frame as a part of a commit with others; None of a frame of Spark."""
    return None if is_spark_frame(frame) else FramePart(operation, frame)


def held(frame: object, options: Options) -> object:
    """A frame that can be read again: Spark's as it is, others as rows that are kept, beyond memory on disk."""
    memory = options.read(Memory)
    return frame if is_spark_frame(frame) else row_input(frame, memory.max_bytes, memory.folder)


def in_process(frame: object) -> object:
    """A frame that needs no Spark: the rows of one of Spark's, others as they are."""
    if not is_spark_frame(frame):
        return frame
    return skep_writer.collect_arrow(frame)


def with_constants(frame: object, values: Mapping[str, object], table: HudiTable) -> object:
    """The frame with a column for each value that it lacks, of the type that the table has."""
    schema, known = to_arrow(table.schema()), table.config.partition_fields
    for name in values:
        if name not in known:
            problem = f"{name} is no partition column"
            raise table.error(InputError, problem, column=name, found=name, expected=", ".join(known) or None)
    if is_spark_frame(frame):
        return skep_writer.with_constants(frame, values, schema)
    rows = row_input(frame)
    missing = [name for name in values if name not in rows.schema.names and name in schema.names]
    if not missing:
        return rows
    columns = {name: pa.scalar(values[name]).cast(schema.field(name).type) for name in missing}
    wide = pa.schema([*rows.schema, *(schema.field(name) for name in missing)])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows.batches():
            more = [pa.repeat(columns[name], batch.num_rows) for name in missing]
            yield pa.RecordBatch.from_arrays([*batch.columns, *more], schema=wide)

    return RereadInput(wide, batches)


def _callback_hooks(options: Options, events: Events) -> tuple[CommitHook, ...]:
    """The callback of a write; none where callbacks are off. Wrong settings are refused before the write."""
    if not options.value(ON):
        return ()
    sender = sender_of(options)
    return (callback_hook(lambda: sender, partial(HudiTable.open, options=options), events),)
