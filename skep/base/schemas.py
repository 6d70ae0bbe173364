"""A new table's columns from Arrow, Avro and Spark schemas, or a frame as an example."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import skep_writer
from skep_format.errors import InputError, SchemaError
from skep_format.schema.arrow import from_arrow, from_arrow_type, to_arrow
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import DataType, Schema, parse_columns, parse_type, record_names
from skep_format.schema.untyped import typed
from skep_table.write.input.conform import plain_schema
from skep_table.write.input.given import arrow_schema

SchemaLike: TypeAlias = Schema | pa.Schema | str | Mapping[str, Any] | object


def schema_of(given: SchemaLike, table_name: str, *, drop_untyped: bool = False) -> Schema:
    """The data columns. InputError (SchemaError for a column's type) when `given` has no schema.

    `drop_untyped` leaves out columns whose type is null, as Arrow has it where all values are.
    """
    if isinstance(given, Schema):
        return given.without_meta()
    if isinstance(given, str) or (isinstance(given, Mapping) and given.get("type") == "record"):
        return parse_avro(given if isinstance(given, str) else dict(given)).without_meta()
    name, namespace = record_names(table_name)
    return from_arrow(typed(plain_schema(_arrow_schema(given)), drop=drop_untyped), name, namespace).without_meta()


def schema_text(text: str) -> pa.Schema:
    """Columns from text: as SQL writes them (`id bigint, name string`), or the path of a file with an Avro schema.

    InputError for text that is neither.
    """
    path = Path(text)
    if path.suffix.lower() in (".avsc", ".json"):
        try:
            return to_arrow(parse_avro(path.read_text(encoding="utf-8")).without_meta())
        except (OSError, ValueError) as error:
            raise InputError(f"{path} can't be read as an Avro schema: {error}", path=str(path)) from error
    return to_arrow(Schema(parse_columns(text)))


def type_of(given: pa.DataType | str, column: str) -> DataType:
    """The type of a column from Arrow's, or as SQL writes it: `decimal(12,2)`. InputError for text that is none."""
    if isinstance(given, str):
        return parse_type(given, column)
    if not isinstance(given, pa.DataType):
        raise InputError(f"column {column}: {given!r} is no type", column=column, found=type(given).__name__)
    return from_arrow_type(given, column)


def _arrow_schema(given: object) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return given
    if type(given).__module__.startswith("pyspark."):
        is_frame = hasattr(given, "mapInArrow")
        return skep_writer.frame_schema(given) if is_frame else skep_writer.arrow_schema(given)
    try:
        return arrow_schema(given)
    except SchemaError:
        raise
    except InputError as error:
        raise InputError(
            f"a {type(given).__module__}.{type(given).__qualname__} has no schema",
            hint=error.hint,
            found=type(given).__qualname__,
            expected="a pyarrow.Schema, a Spark StructType, an Avro schema as JSON, or a frame as an example",
        ) from error
