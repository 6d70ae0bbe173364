"""Messages of Avro as rows: Confluent's form, whose schema is in a registry, or plain records of one schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_stream.kafka.messages import Place
from skep_stream.registry import Registry
from skep_stream.rejected import Rejected
from skep_table.avro.decode import decode_records
from skep_table.avro.types import parse_record
from skep_table.errors import CorruptFileError, InputError, SchemaError, SkepError
from skep_table.schema.evolve import project
from skep_table.schema.types import Schema, StructType

_HEADER: Final = 5
"""A zero and the id of the schema, in four bytes."""
Rows = npt.NDArray[np.int64]
PlaceOf = Callable[[int], Place]


@dataclass(frozen=True, slots=True)
class Confluent:
    """Schemas by the ids in messages."""

    registry: Registry
    _parsed: dict[int, StructType] = field(default_factory=dict, compare=False, repr=False)

    def schema(self, number: int) -> StructType:
        """The schema of an id. SchemaError for none, and for one that can't be read."""
        if number not in self._parsed:
            self._parsed[number] = parse_record(self.registry.schema(number))
        return self._parsed[number]


@dataclass(frozen=True, slots=True)
class AvroMessages:
    """How messages are read: by the schemas that they name, or `plain` ones by one; as rows of `target`."""

    writers: Confluent | StructType
    target: Schema | None
    rejected: Rejected | None = None

    def __call__(self, batch: pa.RecordBatch, place_of: PlaceOf) -> tuple[pa.Table, pa.RecordBatch]:
        """The rows, and their messages.

        InputError names topic, partition and offset of a message that can't be read; with `rejected` it is left out.
        """
        values = _Values.of(batch.column("value"))
        tables, taken = [], [np.zeros(0, np.int64)]
        for writer, rows in self._by_schema(values, place_of):
            for found, kept in self._read(values, writer, rows, place_of):
                tables.append(pa.Table.from_batches([found]))
                taken.append(kept)
        kept = np.concatenate(taken)
        rows = self._united(tables)
        order = np.argsort(kept, kind="stable")
        return rows.take(order), batch.take(pa.array(kept[order]))

    def _by_schema(self, values: _Values, place_of: PlaceOf) -> list[tuple[StructType, Rows]]:
        if isinstance(self.writers, StructType):
            return [(self.writers, np.arange(len(values.starts)))]
        numbers = values.schema_ids()
        groups = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            if number < 0:
                self._refuse(rows, values, place_of, "this is no message of Confluent's: it begins with no 0 and an id")
                continue
            try:
                groups.append((self.writers.schema(number), rows))
            except SchemaError as error:
                self._refuse(rows, values, place_of, error.message, error)
        return groups

    def _read(
        self, values: _Values, writer: StructType, rows: Rows, place_of: PlaceOf
    ) -> list[tuple[pa.RecordBatch, Rows]]:
        """Those that can be read: where a part of them can't, each half by itself."""
        header = 0 if isinstance(self.writers, StructType) else _HEADER
        try:
            starts = values.starts[rows] + header
            return [(decode_records(writer, values.data, starts, values.ends[rows] - starts), rows)]
        except CorruptFileError as error:
            if len(rows) == 1:
                self._refuse(rows, values, place_of, error.message.partition(": ")[2] or error.message, error)
                return []
        half = len(rows) // 2
        return [found for part in (rows[:half], rows[half:]) for found in self._read(values, writer, part, place_of)]

    def _refuse(self, rows: Rows, values: _Values, place_of: PlaceOf, why: str, cause: SkepError | None = None) -> None:
        for row in rows.tolist():
            place = place_of(row)
            if self.rejected is None:
                raise InputError(f"{place}: {why}", path=place.source, line=place.number) from cause
            self.rejected.add(place.source, place.number, values.text(row), why)

    def _united(self, tables: Sequence[pa.Table]) -> pa.Table:
        target = self.target
        if target is not None:
            return pa.concat_tables([project(each, target) for each in tables] or [project(_NOTHING, target)])
        if not tables:
            return _NOTHING
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"the messages of a round have schemas that don't fit each other: {error}") from error


_NOTHING: Final = pa.table({})


@dataclass(frozen=True, slots=True)
class _Values:
    """The bytes of all messages, and where each begins and ends."""

    data: npt.NDArray[np.uint8]
    starts: Rows
    ends: Rows

    @classmethod
    def of(cls, values: pa.Array) -> _Values:
        offsets = np.frombuffer(values.buffers()[1], np.int64, len(values) + 1, values.offset * 8)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        return cls(data, offsets[:-1].copy(), offsets[1:].copy())

    def schema_ids(self) -> Rows:
        """The id in each message; -1 where there is none."""
        has_header = self.ends - self.starts >= _HEADER
        numbers = np.full(len(self.starts), -1, np.int64)
        at = self.starts[has_header]
        found = sum(
            (self.data[at + 1 + place].astype(np.int64) << (24 - 8 * place) for place in range(4)), start=0 * at
        )
        numbers[has_header] = np.where(self.data[at] == 0, found, -1)
        return numbers

    def text(self, row: int) -> str:
        """A message for an error table."""
        return self.data[self.starts[row] : self.ends[row]].tobytes().decode("utf-8", "replace")
