"""Messages of Avro as rows: Confluent's form, whose schema is in a registry, or plain records of one schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from skep_stream.kafka import messages
from skep_stream.kafka.confluent import HEADER, NO_HEADER, Rows, Values
from skep_stream.registry import Registry
from skep_stream.rejected import Rejected
from skep_table.avro.decode import decode_records
from skep_table.avro.types import parse_record
from skep_table.errors import CorruptFileError, InputError, SchemaError, SkepError
from skep_table.schema.evolve import project
from skep_table.schema.types import Schema, StructType

PlaceOf = Callable[[int], messages.Place]


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

    def __call__(self, topic: str, batch: pa.RecordBatch) -> tuple[pa.Table, pa.RecordBatch]:
        """The rows, and their messages.

        InputError names topic, partition and offset of a message that can't be read; with `rejected` it is left out.
        """
        values, place_of = Values.of(batch.column("value")), messages.place_of(topic, batch)
        tables, taken = [], [np.zeros(0, np.int64)]
        for writer, rows in self._by_schema(values, place_of):
            for found, kept in self._read(values, writer, rows, place_of):
                tables.append(pa.Table.from_batches([found]))
                taken.append(kept)
        kept = np.concatenate(taken)
        rows = self._united(tables)
        order = np.argsort(kept, kind="stable")
        return rows.take(order), batch.take(pa.array(kept[order]))

    def _by_schema(self, values: Values, place_of: PlaceOf) -> list[tuple[StructType, Rows]]:
        if isinstance(self.writers, StructType):
            return [(self.writers, np.arange(len(values.starts)))]
        numbers = values.schema_ids()
        groups = []
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            if number < 0:
                self._refuse(rows, values, place_of, NO_HEADER)
                continue
            try:
                groups.append((self.writers.schema(number), rows))
            except SchemaError as error:
                self._refuse(rows, values, place_of, error.message, error)
        return groups

    def _read(
        self, values: Values, writer: StructType, rows: Rows, place_of: PlaceOf
    ) -> list[tuple[pa.RecordBatch, Rows]]:
        """Those that can be read: where a part of them can't, each half by itself."""
        header = 0 if isinstance(self.writers, StructType) else HEADER
        try:
            starts = values.starts[rows] + header
            return [(decode_records(writer, values.data, starts, values.ends[rows] - starts), rows)]
        except CorruptFileError as error:
            if len(rows) == 1:
                self._refuse(rows, values, place_of, error.message.partition(": ")[2] or error.message, error)
                return []
        half = len(rows) // 2
        return [found for part in (rows[:half], rows[half:]) for found in self._read(values, writer, part, place_of)]

    def _refuse(self, rows: Rows, values: Values, place_of: PlaceOf, why: str, cause: SkepError | None = None) -> None:
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
