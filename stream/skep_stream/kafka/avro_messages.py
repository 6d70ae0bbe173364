"""Messages of Avro as rows: Confluent's form, whose schema is in a registry, or plain records of one schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from skep_format.avro.decode import decode_records
from skep_format.avro.types import parse_record
from skep_format.errors import CorruptFileError, InputError, SchemaError
from skep_format.rowfiles.rejected import Rejected
from skep_format.schema.types import Schema, StructType
from skep_stream.kafka.confluent import HEADER, NO_HEADER, Rows
from skep_stream.kafka.parts import Parts, Read
from skep_stream.schemas.registry import SchemaRegistry


@dataclass(frozen=True, slots=True)
class Confluent:
    """Schemas by the ids in messages."""

    registry: SchemaRegistry
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
        parts = Parts.of(topic, batch, self.rejected)
        return parts.rows(self._by_schema(parts), self.target)

    def _by_schema(self, parts: Parts) -> Iterator[tuple[Read, Rows]]:
        if isinstance(self.writers, StructType):
            yield _reader(self.writers, parts, 0), np.arange(len(parts.values.starts))
            return
        numbers = parts.values.schema_ids()
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            if number < 0:
                parts.refuse(rows, NO_HEADER)
                continue
            try:
                writer = self.writers.schema(number)
            except SchemaError as error:
                parts.refuse(rows, error.message, error)
            else:
                yield _reader(writer, parts, HEADER), rows


def _reader(writer: StructType, parts: Parts, header: int) -> Read:
    values = parts.values

    def read(rows: Rows) -> pa.RecordBatch:
        starts = values.starts[rows] + header
        try:
            return decode_records(writer, values.data, starts, values.ends[rows] - starts)
        except CorruptFileError as error:
            raise InputError(error.message.partition(": ")[2] or error.message) from error

    return read
