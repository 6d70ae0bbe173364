"""Definitions of indexes, which tables from version 8 on keep beside the metadata table (format guide 16.8).

They decide which columns an index has and how its keys are spread, whatever the options of a writer are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from skep_format.errors import MetadataTableError, NotATableError, OptionError, SchemaError
from skep_format.options import warn_ineffective
from skep_format.schema.types import Schema
from skep_format.storage import Storage
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import IndexPlan
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.definitions import (
    DEFINITIONS,
    INDEX_DEFINITIONS,
    SHARDED_BY_VALUE,
    IndexDefinition,
    definitions_document,
    definitions_path,
    read_definitions,
)
from skep_table.metadata_table.keys import record_index_groups
from skep_table.metadata_table.partitions import (
    COLUMN_STATS,
    EXPRESSION,
    RECORD_INDEX,
    SECONDARY,
    STATISTICS,
    unbuilt_partitions,
)
from skep_table.metadata_table.records.column_stats import ALWAYS_INDEXED, indexable
from skep_table.metadata_table.records.expression_index import ExpressionIndex, expression_index, known_expressions
from skep_table.metadata_table.records.secondary_index import has_known_texts
from skep_table.metadata_table.records.summaries import Columns
from skep_table.metadata_write.options import (
    COLUMN_STATS_COLUMNS,
    COLUMN_STATS_MOST_COLUMNS,
    SECONDARY_COLUMN,
    SECONDARY_NAME,
    is_partitioned_by_options,
)
from skep_table.preview import Preview
from skep_table.slices.history import in_files
from skep_table.table import HudiTable

IS_PARTITIONED: Final = "isPartitioned"
IDENTITY: Final = "identity"

PLANNED_COLUMNS: Final = "skep.columns"
"""In the plan of an indexing action: the columns of new statistics, as JSON."""


def write_definitions(
    storage: Storage, definitions: Mapping[str, IndexDefinition], path: str = INDEX_DEFINITIONS
) -> None:
    """Replaces the definitions in one step; without any the file is deleted. Members that only others know stay.

    For the holder of the table's lock. FormatError where the file that is there is damaged.
    """
    if not definitions:
        storage.delete(path)
        return
    document = definitions_document(storage, path)
    before = document.get(DEFINITIONS, {})
    stated = {name: {**before.get(name, {}), **printed_definition(each)} for name, each in definitions.items()}
    storage.replace_atomic(path, json.dumps({**document, DEFINITIONS: stated}, indent=2).encode())


def definitions_of(table: HudiTable) -> Mapping[str, IndexDefinition]:
    """The definitions of a table, where its settings name them. FormatError for a damaged file."""
    return read_definitions(table.storage, definitions_path(table.config))


def index_types(table: HudiTable) -> Mapping[str, str]:
    """What the definitions state of the types of indexes, by metadata partition; nothing of a table without any."""
    return {name: each.index_type for name, each in definitions_of(table).items()}


def is_partitioned_record_index(table: HudiTable) -> bool:
    """Whether the record index has file groups of its own for each partition of the table."""
    defined = definitions_of(table).get(RECORD_INDEX)
    return defined is not None and is_partitioned(defined)


def is_partitioned(definition: IndexDefinition) -> bool:
    """Whether a record index of this definition has file groups of its own for each partition of the table."""
    return definition.options.get(IS_PARTITIONED, "false").strip().lower() == "true"


def groups_of_partition(table: HudiTable, partition_path: str) -> str:
    """The `group_set` that a partitioned record index has for a partition of the table.

    MetadataTableError for a path with a dot: Hudi leaves it as it is, and then takes no file of that name for a log.
    """
    if "." not in partition_path:
        return record_index_groups(partition_path)
    raise table.error(
        MetadataTableError,
        f"Hudi reads no partitioned record index of partition {partition_path!r}",
        hint="a global record index has no names of partitions; drop this one, or choose partition values without dots",
        found=partition_path,
        expected="a partition path without dots",
    )


def stats_columns(table: HudiTable, earlier: IndexDefinition | None = None) -> Columns:
    """The columns that column statistics have, with the types of the table's: those of the definition, where there is
    one, else those of an `earlier` one, else those that records are there of, else those that the options name for a
    new index.

    A column of the definition that the table has no more is left out, and so are those that no file holds.
    SchemaError where the table has no columns yet.
    """
    schema, release = in_files(table, table.stored_schema()), table.format.metadata.release
    defined = definitions_of(table).get(COLUMN_STATS, earlier)
    if defined is not None:
        return indexable(schema, defined.source_fields, release)
    planned = _planned_columns(table)
    if planned is not None:
        return indexable(schema, planned, release)
    kept = _kept_statistics(table)
    if kept is not None:
        able = indexable(schema, None, release)
        found = {name: kind for name, kind in able.items() if kept.has_statistics(name)}
        if found:  # an index that was made before the first write has no records yet
            return found
    return indexable(schema, new_stats_columns(table), release)


def columns_for(table: HudiTable, partitions: Collection[str]) -> Columns:
    """As `stats_columns`, if one of these partitions of the metadata table has statistics of columns; else none."""
    return {} if STATISTICS.isdisjoint(partitions) else stats_columns(table)


def definition_of_statistics(
    table: HudiTable, columns: Columns | None = None, version: str | None = None
) -> IndexDefinition:
    """The definition of column statistics, of the columns that a table's have if no others are given."""
    columns = stats_columns(table) if columns is None else columns
    return IndexDefinition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, tuple(columns), {}, version)


def new_stats_columns(table: HudiTable) -> Sequence[str]:
    """The names of the columns that the options give new column statistics. SchemaError as `stats_columns`.

    Warns of those that the options name and that have none.
    """
    schema, release = table.stored_schema(), table.format.metadata.release
    named = table.options.value(COLUMN_STATS_COLUMNS)
    defines = table.format.metadata.defines_indexes
    data = tuple(indexable(schema if defines else in_files(table, schema), named or None, release))
    if without := [name for name in named if name not in data and name not in ALWAYS_INDEXED]:
        warn_ineffective(
            f"option {COLUMN_STATS_COLUMNS.key}: table {table.config.name} has no column {', '.join(without)} that can"
            " have statistics"
        )
    if not defines:
        return data
    data = data[: None if named else table.options.value(COLUMN_STATS_MOST_COLUMNS)]
    meta = ALWAYS_INDEXED if table.config.populate_meta_fields else ()
    return tuple(dict.fromkeys((*meta, *data)))


@dataclass(frozen=True)
class SecondaryIndex:
    """A secondary index of one column. `by_value`: all keys of a value are in one file group."""

    partition: str
    column: str
    by_value: bool


def secondary_indexes(table: HudiTable) -> Sequence[SecondaryIndex]:
    """Those secondary indexes that the table has and whose entries can be written: of values with known texts.

    None where a record key may be in several partitions:
    an entry has no place for the partition, and would end with the first of the rows.
    """
    names = SECONDARY.among(table.config.metadata_partitions)
    defined = definitions_of(table) if names else {}
    if not names or (RECORD_INDEX in defined and is_partitioned(defined[RECORD_INDEX])):
        return ()
    schema, found = table.stored_schema(), []
    for name in names:
        index = known_secondary(name, defined.get(name), schema)
        if index is not None:
            found.append(index)
    return tuple(found)


def new_secondary_index(table: HudiTable, partition: str, definition: IndexDefinition) -> SecondaryIndex | None:
    """A secondary index of that definition, in the layout of the table's version; None where it can't be made.

    SchemaError where the table has no columns yet.
    """
    if not SECONDARY.fits(table.config, table.format.metadata):
        return None
    version = table.format.metadata.column_stats_version
    return known_secondary(partition, replace(definition, version=version), table.stored_schema())


def secondary_of_options(table: HudiTable) -> Mapping[str, IndexDefinition]:
    """The secondary index that the options of a writer have made, by its partition, where the column has none yet.

    It waits for the table's columns. OptionError where the table can't have it.
    """
    column = table.options.value(SECONDARY_COLUMN)
    defined = definitions_of(table) if column else {}
    there = set(SECONDARY.among(table.config.metadata_partitions))
    if not column or any(defined[name].source_fields == (column,) for name in there & defined.keys()):
        return {}
    name = f"{SECONDARY.prefix}{table.options.value(SECONDARY_NAME) or column.replace('.', '_')}"
    definition = IndexDefinition(name, SECONDARY.name, IDENTITY, (column,))
    try:
        can_be = new_secondary_index(table, name, definition) is not None
    except SchemaError:
        return {}
    by_partition = is_partitioned_record_index(table) or is_partitioned_by_options(table)
    if not can_be or by_partition or name in there:
        raise OptionError(
            f"option {SECONDARY_COLUMN.key}: table {table.config.name} can't have the index {name} of {column}",
            hint="versions 8 and 9 have them, of types that Hudi's releases write alike, with a global record index",
            option=SECONDARY_COLUMN.key,
            table=table.config.name,
            column=column,
        )
    return {name: definition}


def definition_of_secondary(index: SecondaryIndex) -> IndexDefinition:
    """The definition of a new secondary index."""
    version = SHARDED_BY_VALUE if index.by_value else None
    return IndexDefinition(index.partition, SECONDARY.name, IDENTITY, (index.column,), {}, version)


def expression_indexes(table: HudiTable) -> Sequence[ExpressionIndex]:
    """Those that the table has, or builds, and whose entries can be computed as Spark does."""
    names = EXPRESSION.among(table.config.metadata_partitions)
    if not names or not EXPRESSION.fits(table.config, table.format.metadata):
        return ()
    schema, version = in_files(table, table.stored_schema()), table.format.metadata.column_stats_version
    return tuple(known_expressions(definitions_of(table), names, schema, version))


def new_expression_index(table: HudiTable, definition: IndexDefinition) -> ExpressionIndex:
    """That of a definition, for a table that is to have it. Raises as `expression_index`."""
    return expression_index(definition, in_files(table, table.stored_schema()))


def known_secondary(partition: str, definition: IndexDefinition | None, schema: Schema) -> SecondaryIndex | None:
    """The index of that definition, if its entries can be written: of values with known texts."""
    if definition is None or len(definition.source_fields) != 1:
        return None
    (column,) = definition.source_fields
    if column not in schema or not has_known_texts(schema[column].type, by_value=definition.is_by_value):
        return None
    return SecondaryIndex(partition, column, definition.is_by_value)


def _planned_columns(table: HudiTable) -> Sequence[str] | None:
    """The columns of statistics that an indexing action is building, where no definition states them."""
    if COLUMN_STATS not in unbuilt_partitions(table.config):
        return None
    for instant in table.timeline.pending().of(Action.INDEXING):
        plan = table.requested_plan(IndexPlan, instant)
        for info in (plan.index_partition_infos or ()) if plan is not None else ():
            named = (info.extra_metadata or {}).get(PLANNED_COLUMNS)
            if info.metadata_partition_path == COLUMN_STATS and named is not None:
                return [str(name) for name in json.loads(named)]
    return None


def _kept_statistics(table: HudiTable) -> MetadataTable | None:
    """The metadata table where it has column statistics, current or not."""
    if COLUMN_STATS not in table.config.metadata_partitions:
        return None
    table = table.before if isinstance(table, Preview) else table  # the write adds no column to what is kept
    try:
        return table.metadata_table() or MetadataTable.open(table)  # the one that is open has read its files
    except NotATableError:
        return None


def printed_definition(definition: IndexDefinition) -> dict[str, Any]:
    """A definition as its file has it."""
    version = {} if definition.version is None else {"version": definition.version}
    return {
        "indexName": definition.name,
        "indexType": definition.index_type,
        "indexFunction": definition.function,
        "sourceFields": list(definition.source_fields),
        "indexOptions": dict(definition.options),
        **version,
    }
