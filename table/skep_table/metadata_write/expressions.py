"""The indexes over expressions that a table has, and those that it can have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from skep_table.metadata_table.definitions import IndexDefinition
from skep_table.metadata_table.expressions import ExpressionIndex, expression_index, known_expressions
from skep_table.metadata_table.partitions import EXPRESSION_INDEX_PREFIX
from skep_table.metadata_write.definitions import definitions_of
from skep_table.slices.history import in_files
from skep_table.table import HudiTable


def expression_indexes(table: HudiTable) -> Sequence[ExpressionIndex]:
    """Those that the table has, or builds, and whose entries can be computed as Spark does."""
    names = [name for name in table.config.metadata_partitions if name.startswith(EXPRESSION_INDEX_PREFIX)]
    if not names or not table.format.metadata.defines_indexes:
        return ()
    schema, version = in_files(table, table.stored_schema()), table.format.metadata.column_stats_version
    return tuple(known_expressions(definitions_of(table), names, schema, version))


def new_expression_index(table: HudiTable, definition: IndexDefinition) -> ExpressionIndex:
    """That of a definition, for a table that is to have it. Raises as `expression_index`."""
    return expression_index(definition, in_files(table, table.stored_schema()))


def definition_of_expression(table: HudiTable, definition: IndexDefinition) -> IndexDefinition:
    """The definition in the version of the table's indexes."""
    return replace(definition, version=table.format.metadata.column_stats_version)
