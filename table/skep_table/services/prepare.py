"""The extra metadata of commits that services make."""

from __future__ import annotations

from skep_table.schema.avro import avro_text
from skep_table.schema.types import Schema
from skep_table.slices.history import schema_with_ids
from skep_table.table import HudiTable


def extra_of(table: HudiTable, schema: Schema) -> dict[str, str]:
    """The extra metadata of a commit that rewrites rows: the columns, which stay as they are."""
    return {**schema_with_ids(table), "schema": avro_text(schema)}
