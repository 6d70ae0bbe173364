"""Record keys of the rows that a base file holds: its key column, or recomputed where the table keeps none."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_footer
from skep_format.options import Options
from skep_format.schema.types import RECORD_KEY, Schema
from skep_format.table_config import TableConfig
from skep_table.keys.generator import KeyGenerator, KeyGeneratorType
from skep_table.keys.text import single
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """`generator` is None where rows have their key in a meta column. `schema` is that of the columns to be read."""

    schema: Schema
    generator: KeyGenerator | None = None

    @classmethod
    def of(cls, config: TableConfig, schema: Schema) -> StoredKeys:
        """`schema` is that of the data columns."""
        if config.populate_meta_fields:
            return cls(schema.with_meta().select((RECORD_KEY,)))
        generator = KeyGenerator.of(config)
        heads = (name if name in schema else name.partition(".")[0] for name in generator.record_fields)
        return cls(schema.select(tuple(dict.fromkeys(heads))), generator)

    def of_rows(self, rows: pa.RecordBatch) -> pa.Array:
        """The record keys of rows of a base file, generated where the table has no meta columns."""
        if self.generator is None:
            return rows.column(RECORD_KEY)
        return single(self.generator.record_keys(rows))

    def filled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with their record key, generated where they have none."""
        if self.generator is None:
            return rows
        keys, at = self.of_rows(rows), rows.schema.get_field_index(RECORD_KEY)
        if at >= 0:
            return rows.set_column(at, rows.schema.field(at), pc.coalesce(rows.column(at), keys))
        schema = rows.schema.append(pa.field(RECORD_KEY, pa.string()))
        return pa.RecordBatch.from_arrays([*rows.columns, keys], schema=schema)


def generator_as_stored(table: HudiTable, options: Options) -> KeyGenerator:
    """The key generator of a write. Where Hudi's releases differ in how they write keys, a stored key decides."""
    generator = KeyGenerator.of(table.config, options)
    if generator.type is not KeyGeneratorType.COMPLEX or len(generator.record_fields) != 1:
        return generator
    for instant in reversed(table.timeline.data().completed().instants):
        for stat in table.commit_metadata(instant).stats:
            if stat.num_writes and not stat.is_log:
                try:
                    key = read_footer(table.storage, stat.path).min_key
                except FileNotFoundError:  # cleaned, or rolled back since
                    continue
                return generator.as_in(key) if key else generator
    return generator
