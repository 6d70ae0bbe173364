"""One round of a stream: the checkpoint is read, a batch is fetched and transformed, and committed at once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import Schema
from skep_format.timeline.metadata import WriteOperation
from skep_stream.checkpoints import CheckpointSettings, Recorded, entries, newest, resumed, stated
from skep_stream.protocols import (
    Batch,
    ErrorTable,
    Follower,
    Position,
    SchemaProvider,
    Source,
    StreamTarget,
    Transformer,
)
from skep_stream.schemas.providers import to_target
from skep_stream.unfit import Check, joined, sifted
from skep_table.events import Events
from skep_table.write.result import WriteResult

log = logging.getLogger("skep.stream")
UNLIMITED = (1 << 63) - 1
CheckOf = Callable[[WriteOperation, pa.Schema, "Schema | None"], Check]
"""What refuses rows that a write can't take, by the columns of the rows and the stated schema of the target."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did. `result` is None where there was nothing to commit."""

    last: Position
    checkpoint: str | None
    rows: int = 0
    result: WriteResult | None = None
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """A source, what changes its rows, and the table that takes them.

    With a `name`, of several runs at the same time only one commits the round behind a checkpoint. Events name the
    `table`. With `sifts` rows that can't be written are rejected, as records that can't be read are, and the others
    are committed. `partial`: rows have only the columns that are set.
    """

    source: Source
    target: StreamTarget
    operation: WriteOperation = WriteOperation.UPSERT
    schemas: SchemaProvider | None = None
    transformers: Sequence[Transformer] = ()
    limit: int = UNLIMITED
    asked: CheckpointSettings = field(default_factory=CheckpointSettings)
    keeps_checkpoint: bool = True
    commits_unchanged: bool = False
    errors: ErrorTable | None = None
    sifts: CheckOf | None = None
    partial: bool = False
    name: str = ""
    table: str = ""
    events: Events = field(default_factory=Events)

    def run_once(self, asked: CheckpointSettings | None = None) -> Round:
        """One round. Its checkpoint is part of the commit: rows and progress are complete together, or neither is.

        SkepError where the source, a transformer or the write fails; the table is then as before.
        """
        with self.events.step("stream.round", table=self.table) as facts:
            done = self._done(asked or self.asked)
            facts.update(rows=done.rows, rejected=done.rejected, committed=done.result is not None)
        return done

    def _done(self, asked: CheckpointSettings) -> Round:
        found = newest(self.target.table(), asked.writer)
        last = resumed(found, asked)
        with self.events.step("stream.fetch", table=self.table, checkpoint=last.checkpoint) as facts:
            batch = self.source.fetch(last, self.limit)
            facts.update(rows=0 if batch.frame is None else batch.frame.num_rows, next=batch.checkpoint)
        if batch.checkpoint == last.checkpoint and not batch.advances and not self.commits_unchanged:
            self._check_schema()
            log.info("nothing new, the checkpoint is %s", last.checkpoint)
            return Round(last, last.checkpoint)
        return self._committed(batch, last, asked, found)

    def _check_schema(self) -> None:
        """As Hudi does before it finds that nothing is new: a schema that the table can't take is refused at once."""
        schema = self._stated_schema()
        if schema is not None:
            self.target.check(self.operation, schema)

    def _committed(self, batch: Batch, last: Position, asked: CheckpointSettings, found: Recorded | None) -> Round:
        source = f"the batch after {last.checkpoint}"
        rows, schema, unfit = self._rows(batch, source)
        rejected = joined(batch.rejected, unfit)
        if rows is None:  # no columns are known, so there is nothing that a commit could state
            log.info("nothing was read and no schema is known: nothing is committed")
            return Round(last, last.checkpoint)
        checkpoint = batch.checkpoint if self.keeps_checkpoint else None
        if rejected is not None and self.errors is not None:
            # first: a round that dies in between is repeated, and its batch is then known
            self.errors.write(rejected, f"{last.checkpoint}..{batch.checkpoint} {_digest(rejected)}")
        others = entries(self.target.table()) if asked.writer else {}
        extra = stated(self.target.checkpoint_keys(), checkpoint, batch.extra, asked, found, others)
        with self.events.step("stream.write", table=self.table, rows=rows.num_rows):
            result = self.target.write(self.operation, rows, schema, extra, self._batch_id(found))
        if result.repeated:
            log.info("another run has committed the round after %s meanwhile", last.checkpoint)
            return Round(last, last.checkpoint)
        if isinstance(self.source, Follower) and checkpoint is not None:
            self.source.committed(checkpoint)
        return Round(last, batch.checkpoint, rows.num_rows, result, 0 if rejected is None else rejected.num_rows)

    def _batch_id(self, found: Recorded | None) -> str | None:
        if not self.name:
            return None
        return f"{self.name} after {found.instant.requested_time if found else 'nothing'}"

    def _rows(self, batch: Batch, source: str) -> tuple[pa.Table | None, Schema | None, pa.Table | None]:
        """The rows to write, their schema, and what is rejected; no rows, but columns, where the batch is empty."""
        if batch.frame is None:
            schema = self._schema_without_rows()
            return (None if schema is None else to_arrow(schema).empty_table()), schema, None
        rows = batch.frame
        for transformer in self.transformers:
            rows = transformer(rows)
        in_target = partial(
            to_target, schemas=self.schemas, transformed=bool(self.transformers), fills=not self.partial
        )
        if self.sifts is None:
            return *in_target(rows), None
        empty, schema = in_target(rows.schema.empty_table())
        check = self.sifts(self.operation, empty.schema, schema)
        kept = [name for name in rows.schema.names if name in empty.schema.names]  # the others are warned about once
        fitting, rejected = sifted(rows, lambda some: check(in_target(some.select(kept))[0]), source)
        return *in_target(fitting.select(kept)), rejected

    def _stated_schema(self) -> Schema | None:
        return (self.schemas.target_schema() or self.schemas.source_schema()) if self.schemas else None

    def _schema_without_rows(self) -> Schema | None:
        table = self.target.table()
        return self._stated_schema() or (None if table is None else table.schema())


def _digest(rejected: pa.Table) -> str:
    """Stands for these very records: a round that is repeated may meet others."""
    return hashlib.sha256(repr(rejected.to_pydict()).encode("utf-8", "replace")).hexdigest()[:16]
