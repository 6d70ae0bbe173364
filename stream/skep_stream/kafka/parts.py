"""Messages that are decoded in parts, each by its own schema: what can't be read is refused, the rest united."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from skep_format.errors import InputError, SkepError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.evolve import project
from skep_format.schema.types import Schema
from skep_stream.kafka import messages
from skep_stream.kafka.confluent import Rows, Values
from skep_stream.united import united

Read = Callable[[Rows], pa.RecordBatch]
"""Messages, by their numbers in a batch, as rows. Raises a SkepError where one can't be read."""
_NOTHING: Final = pa.table({})


@dataclass(frozen=True, slots=True)
class Parts:
    """The messages of one batch; refused ones are an error, or with `rejected` left out."""

    topic: str
    batch: pa.RecordBatch
    values: Values
    rejected: Rejected | None

    @classmethod
    def of(cls, topic: str, batch: pa.RecordBatch, rejected: Rejected | None) -> Parts:
        return cls(topic, batch, Values.of(batch.column("value")), rejected)

    def refuse(self, rows: Rows, why: str, cause: SkepError | None = None) -> None:
        """InputError names topic, partition and offset of the first."""
        place_of = messages.place_of(self.topic, self.batch)
        for row in rows.tolist():
            place = place_of(row)
            if self.rejected is None:
                raise InputError(f"{place}: {why}", path=place.source, line=place.number) from cause
            self.rejected.add(place.source, place.number, self.values.text(row), why)

    def rows(self, parts: Iterable[tuple[Read, Rows]], target: Schema | None) -> tuple[pa.Table, pa.RecordBatch]:
        """The rows of all parts in the order of their messages, and these: as rows of `target`, or of all columns."""
        tables, taken = [], [np.zeros(0, np.int64)]
        for read, rows in parts:
            for found, kept in self._read(read, rows):
                tables.append(pa.Table.from_batches([found]))
                taken.append(kept)
        kept = np.concatenate(taken)
        order = np.argsort(kept, kind="stable")
        return _united(tables, target).take(order), self.batch.take(pa.array(kept[order]))

    def _read(self, read: Read, rows: Rows) -> list[tuple[pa.RecordBatch, Rows]]:
        """Those that can be read: where a part of them can't, each half by itself."""
        try:
            return [(read(rows), rows)]
        except SkepError as error:
            if len(rows) == 1:
                self.refuse(rows, error.message, error)
                return []
        half = len(rows) // 2
        return [found for part in (rows[:half], rows[half:]) for found in self._read(read, part)]


def _united(tables: Sequence[pa.Table], target: Schema | None) -> pa.Table:
    if target is not None:
        return pa.concat_tables([project(each, target) for each in tables] or [project(_NOTHING, target)])
    return united(tables, "messages") if tables else _NOTHING
