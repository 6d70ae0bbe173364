"""The columns of a write: what arrives, compared with what the table stores."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from skep_format.errors import SchemaError
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.exact import Casts
from skep_format.schema.policy import Missing
from skep_format.schema.reconcile import check_fixed, reconcile
from skep_format.schema.types import META_FIELDS, OPERATION, DoubleType, Field, FloatType, Schema, StringType
from skep_format.schema.untyped import typed
from skep_table.table import HudiTable
from skep_table.write.input.conform import plain_schema
from skep_table.write.planning.operation import Traits
from skep_table.write.planning.write_settings import WriteSettings


class MetaColumnWarning(UserWarning):
    """Columns of a frame were left out because they have the names of Hudi's meta columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """`schema` is the table's after the write, `in_files` the part of it that files hold.

    `keyed` are the data columns of the rows that are written.
    """

    schema: Schema
    in_files: Schema
    keyed: pa.Schema


@dataclass(frozen=True, slots=True)
class Arriving:
    """The data columns that a frame brings (`given`, each with a type), and those of the table (`stored`)."""

    given: pa.Schema
    stored: Schema

    @classmethod
    def of(cls, table: HudiTable, incoming: pa.Schema, traits: Traits, settings: WriteSettings) -> Arriving:
        """Without meta columns, of which rows that are not read from a table may have some: a warning.

        SchemaError for a column without a type that can't be left out.
        """
        if not (traits.deletes or traits.prepped):
            _warn_of_meta_columns(incoming.names)
        stored = _with_operation(table.schema(), settings)
        given = plain_schema(pa.schema([field for field in incoming if field.name not in META_FIELDS]))
        return cls(typed(given, to_arrow(stored), drop=traits.deletes or settings.drop_untyped), stored)


def columns_of_rows(
    table: HudiTable, arriving: Arriving, casts: Casts, settings: WriteSettings, *, partial: bool = False
) -> Columns:
    """Of rows with their content: the table's columns, evolved as the options allow. SchemaError.

    `partial`: the columns that the rows lack are kept as they are.
    """
    stored = arriving.stored
    incoming = _with_operation(from_arrow(arriving.given, stored.name, stored.namespace), settings)
    # paths are made of a dropped column as it arrives: what it is read back as does not matter
    dropped = incoming.select(tuple(name for name in table.config.dropped_columns if name in incoming))
    _refuse_floats(dropped)
    before = table.without_dropped(stored)
    policy = replace(settings.policy, missing=Missing.KEPT) if partial else settings.policy
    in_files = reconcile(before, table.without_dropped(incoming), policy, casts)
    settings.files.value_filters.check(to_arrow(in_files.with_meta()))
    brought = in_files.select(tuple(n for n in in_files.names() if n in incoming)) if partial else in_files
    keyed = to_arrow(replace(brought, fields=brought.fields + dropped.fields))
    return Columns(table.with_dropped(in_files), in_files, keyed)


def columns_of_deletes(table: HudiTable, arriving: Arriving, fields: Sequence[str]) -> Columns:
    """Of rows that delete by their key and partition `fields`: the table keeps its columns. SchemaError."""
    given, stored, dropped = arriving.given, arriving.stored, table.config.dropped_columns
    wanted = {name.partition(".")[0] for name in fields}.intersection(given.names)
    keyed = pa.schema(
        [
            given.field(field.name) if field.name in dropped else field
            for field in to_arrow(stored)
            if field.name in wanted
        ]
    )
    found, in_files = from_arrow(pa.schema([given.field(name) for name in keyed.names])), table.without_dropped(stored)
    check_fixed(in_files, found, tuple(fields))
    _refuse_floats(found.select(tuple(name for name in dropped if name in found)))
    return Columns(stored, in_files, keyed)


def _with_operation(schema: Schema, settings: WriteSettings) -> Schema:
    if not settings.operation_field or OPERATION in schema:
        return schema
    return replace(schema, fields=(*schema.fields, Field(OPERATION, StringType(), default=None)))


def _warn_of_meta_columns(names: Sequence[str]) -> None:
    """All of them come with rows that were read from a Hudi table; a few may be a user's own columns."""
    given = [name for name in META_FIELDS if name in names]
    if given and len(given) < len(META_FIELDS):
        warnings.warn(
            f"{', '.join(given)} of the rows: not written, as Hudi's meta columns have these names; rename the columns"
            " to keep them",
            MetaColumnWarning,
            stacklevel=7,
        )


def _refuse_floats(dropped: Schema) -> None:
    """Nothing records the type of a partition column that files leave out: `2024` and `2024.0` would be two paths."""
    for field in dropped.fields:
        if isinstance(field.type, (FloatType, DoubleType)):
            raise SchemaError(
                f"column {field.name}: the rows have floats, of which paths such as 2024.0 are made",
                hint="cast the column to the type that the partition paths show: int, or string",
                column=field.name,
                found="double" if isinstance(field.type, DoubleType) else "float",
                expected="text, whole numbers or dates",
            )
