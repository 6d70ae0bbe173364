"""The schemas of streams whose rows have other columns than their messages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skep_format.schema.types import DataType, Field, IntType, LongType, Schema, StringType
from skep_stream.kafka.messages import KEY, OFFSET, PARTITION, TIME
from skep_stream.protocols import SchemaProvider

_COLUMNS: tuple[tuple[str, DataType], ...] = (
    (OFFSET, LongType()),
    (PARTITION, IntType()),
    (TIME, LongType()),
    (KEY, StringType()),
)


@dataclass(frozen=True, slots=True)
class WithOffsets:
    """Schemas with the offset, partition, time and key of messages, which may be null: tables get them later, too."""

    given: SchemaProvider

    def source_schema(self) -> Schema | None:
        """The columns of the source, and of its messages."""
        return _extended(self.given.source_schema())

    def target_schema(self) -> Schema | None:
        """The columns of the target, and of the messages."""
        return _extended(self.given.target_schema())


@dataclass(frozen=True, slots=True)
class OfTarget:
    """The schema of the target alone: messages are envelopes of rows, which state their columns."""

    given: SchemaProvider

    @classmethod
    def of(cls, given: SchemaProvider | None) -> OfTarget | None:
        """None where the target's schema is not stated."""
        return None if given is None or given.target_schema() is None else cls(given)

    def source_schema(self) -> Schema | None:
        """The columns of the target, as far as rows without any are concerned."""
        return self.target_schema()

    def target_schema(self) -> Schema | None:
        """The columns of the target."""
        return self.given.target_schema()


def _extended(schema: Schema | None) -> Schema | None:
    if schema is None:
        return None
    known = {field.name for field in schema.fields}
    more = tuple(Field(name, kind, nullable=True, default=None) for name, kind in _COLUMNS if name not in known)
    return replace(schema, fields=(*schema.fields, *more))
