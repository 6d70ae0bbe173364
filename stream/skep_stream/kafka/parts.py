"""Messages that are decoded in parts, each by its own schema: what can't be read is refused, the rest united."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.errors import SchemaError, SkepError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.evolve import project
from skep_format.schema.types import Schema
from skep_stream.kafka import messages
from skep_stream.kafka.confluent import NO_HEADER, Rows, Values
from skep_stream.united import united

Read = Callable[[npt.NDArray[np.uint8], Rows, Rows], pa.RecordBatch]
"""Messages, by where each begins and ends in the bytes of all, as rows. SkepError where one can't be read."""
Found = TypeVar("Found")
_NOTHING: Final = pa.table({})


class MessagePart(NamedTuple):
    """Messages, by their numbers in a batch, that are read in one way, behind a header of so many bytes."""

    read: Read
    header: int
    rows: Rows


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

    @property
    def every(self) -> Rows:
        """The numbers of all messages."""
        return np.arange(len(self.values.starts))

    def refuse(self, rows: Rows, why: str, cause: SkepError | None = None) -> None:
        """InputError names topic, partition and offset of the first."""
        messages.refuse(self.topic, self.batch.take(pa.array(rows)), why, self.rejected, cause)

    def by_id(self) -> Iterator[tuple[int, Rows]]:
        """Messages in Confluent's form by the ids of their schemas; others are refused."""
        numbers = self.values.schema_ids()
        self.refuse(np.flatnonzero(numbers < 0), NO_HEADER)
        for number in np.unique(numbers[numbers >= 0]).tolist():
            yield number, np.flatnonzero(numbers == number)

    def fitting(self, rows: Rows, find: Callable[[], Found]) -> Found | None:
        """What reads messages; where a SchemaError is in its place they are refused."""
        try:
            return find()
        except SchemaError as error:
            self.refuse(rows, error.message, error)
            return None

    def rows(self, parts: Iterable[MessagePart], target: Schema | None) -> tuple[pa.Table, pa.RecordBatch]:
        """The rows of all parts in the order of their messages, and these: as rows of `target`, or of all columns."""
        tables, taken = [], [np.zeros(0, np.int64)]
        for part in parts:
            for found, kept in self._read(part):
                tables.append(pa.Table.from_batches([found]))
                taken.append(kept)
        kept = np.concatenate(taken)
        order = np.argsort(kept, kind="stable")
        return _united(tables, target).take(order), self.batch.take(pa.array(kept[order]))

    def _read(self, part: MessagePart) -> list[tuple[pa.RecordBatch, Rows]]:
        """Those that can be read: where a part of them can't, each half by itself."""
        rows = part.rows
        try:
            return [(part.read(self.values.data, self.values.starts[rows] + part.header, self.values.ends[rows]), rows)]
        except SkepError as error:
            if len(rows) == 1:
                self.refuse(rows, error.message, error)
                return []
        half = len(rows) // 2
        return [found for some in (rows[:half], rows[half:]) for found in self._read(part._replace(rows=some))]


def _united(tables: Sequence[pa.Table], target: Schema | None) -> pa.Table:
    if target is not None:
        return pa.concat_tables([project(each, target) for each in tables] or [project(_NOTHING, target)])
    return united(tables, "messages") if tables else _NOTHING
