"""What an administrator does with a metadata table and its indexes: looks at them, makes and drops them.

Indexes have kinds and names: the partitions of the metadata table, as people call them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from skep_format.errors import (
    EntryExistsError,
    FormatError,
    InputError,
    MetadataTableError,
    NotATableError,
    SchemaError,
    UnsupportedError,
)
from skep_format.instant_time import InstantTime
from skep_table.commit.concurrency.indexing_executors import refuse_reserved
from skep_table.commit.parts.metadata_table import keeps_metadata_table, metadata_clock, name_dropped
from skep_table.commit.plaintext import check_plaintext
from skep_table.commit.writable import check_writable, take_lock_over
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.definitions import IndexDefinition, definitions_path
from skep_table.metadata_table.entries import alive, latest
from skep_table.metadata_table.keys import ALL_PARTITIONS, NON_PARTITIONED
from skep_table.metadata_table.partitions import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    EXPRESSION,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY,
    SINGLE,
    STATISTICS,
    STATS_MEMBER,
    kind_of,
    member_of,
    short_name,
    with_led,
)
from skep_table.metadata_table.records.column_stats import indexable
from skep_table.metadata_table.records.expression_index import FUNCTION
from skep_table.metadata_write.compaction.compact import delta_commits_to_compact, last_compaction
from skep_table.metadata_write.definitions import (
    IDENTITY,
    definition_of_statistics,
    definitions_of,
    index_types,
    is_partitioned_record_index,
    new_expression_index,
    new_secondary_index,
    secondary_indexes,
    write_definitions,
)
from skep_table.metadata_write.drop import delete_metadata_table, drop_indexes, dropped_indexes
from skep_table.metadata_write.making.create import create_metadata_table, waits_for
from skep_table.metadata_write.options import (
    COLUMN_STATS_COLUMNS,
    is_partitioned_by_options,
    makes_partition_stats,
    partitions_of_options,
)
from skep_table.metadata_write.own import (
    MetadataPartition,
    building_partitions,
    has_metadata_table,
    open_own,
    partition_sizes,
)
from skep_table.table import METADATA_ENABLE, HudiTable

log = logging.getLogger("skep.services")
KINDS: Final = (*(name for name in SINGLE if name != FILES), SECONDARY.name)
"""The kinds of indexes, by Hudi's names. A table has one of each, any number of secondary ones, and of such over
expressions, which are of the kinds column_stats and bloom_filters."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class MetadataSummary:
    """A metadata table and how far it has come.

    `is_current`: it has all completed writes of the table. `delta_commits`: so many since the last compaction.
    `pending` are instants of its own timeline.
    """

    table: str
    is_current: bool
    partitions: tuple[MetadataPartition, ...]
    last_instant: InstantTime | None
    last_compaction: InstantTime | None
    delta_commits: int
    pending: tuple[InstantTime, ...]


@dataclass(frozen=True, slots=True)
class IndexRecords:
    """The records of a partition of the metadata table, and how evenly its file groups have them."""

    name: str
    file_groups: int
    records: int
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class ListedPartition:
    """A partition of the table as the metadata table lists it; `bytes` of all its files."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MetadataStatistics:
    """What a metadata table holds."""

    indexes: tuple[IndexRecords, ...]
    partitions: tuple[ListedPartition, ...]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A metadata table that was rebuilt: the partitions that it has, and those that it lost."""

    kept: tuple[str, ...]
    lost: tuple[str, ...] = ()


def show_metadata_table(table: HudiTable) -> MetadataSummary:
    """Partitions, file groups and files. InputError where the table has no metadata table."""
    own = _own(table)
    last = own.timeline.completed().instants
    compacted = last_compaction(own)
    return MetadataSummary(
        table=table.config.name,
        is_current=table.metadata_table() is not None,
        partitions=tuple(partition_sizes(table, own)),
        last_instant=last[-1].requested_time if last else None,
        last_compaction=compacted.requested_time if compacted else None,
        delta_commits=len(delta_commits_to_compact(own)),
        pending=tuple(each.requested_time for each in own.timeline.pending()),
    )


def metadata_statistics(table: HudiTable) -> MetadataStatistics:
    """Reads all of the metadata table, a file group at a time. InputError where the table has none."""
    _own(table)
    metadata = MetadataTable.open(table)
    if metadata is None:
        raise _without(table)
    indexes, types = [], index_types(table)
    for name in table.config.metadata_partitions:
        member = member_of(name, types.get(name)) or STATS_MEMBER  # those of expressions without a definition, too
        live = (alive(*latest(group.entries(column=member), member)) for group in metadata.group_readers(name))
        counts = [len(keys) for keys, _ in live]
        indexes.append(IndexRecords(name, len(counts), sum(counts), min(counts), max(counts)))
    grouped = metadata.all_files().group_by("key").aggregate([("name", "count"), ("size", "sum")])
    rows = zip(*(grouped[name].to_pylist() for name in ("key", "name_count", "size_sum")), strict=True)
    files = {"" if key == NON_PARTITIONED else key: (count, size) for key, count, size in rows if key != ALL_PARTITIONS}
    paths = sorted({*metadata.partitions(), *files})
    return MetadataStatistics(tuple(indexes), tuple(ListedPartition(path, *files.get(path, (0, 0))) for path in paths))


def rebuild_metadata_table(table: HudiTable) -> Rebuilt:
    """Makes the metadata table again, or for the first time, under the lock: with the indexes that it has, as they are
    defined, and those that the options enable.

    MetadataTableError where it has to wait for pending actions; the old one then stays. Also for a key that lies in
    several file groups, where a record index has one place for it: the table then has no metadata table.
    """
    check_writable(table.config, table.storage.root)
    check_plaintext(table, logs=False)
    with table.context.locked():
        table = take_lock_over(table)
        check_quiet(table)
        noted = dropped_indexes(table.config)
        before = tuple(dict.fromkeys((*table.config.metadata_partitions, *noted)))
        kinds = {*SINGLE, *(index.partition for index in secondary_indexes(table)), *noted}
        names = {*before, *partitions_of_options(table)} & kinds
        defined = {name: each for name, each in _definitions(table).items() if name in names}
        again: dict[str, IndexDefinition | None] = {**dict.fromkeys(names), **noted}
        if COLUMN_STATS in table.config.metadata_partitions:  # where no file defines them
            again[COLUMN_STATS] = definition_of_statistics(table)
        again |= defined
        refuse_reserved(table, again)
        delete_metadata_table(table.storage, again)
        write_definitions(table.storage, defined, definitions_path(table.config))
        definitions = {name: each for name, each in again.items() if each is not None}
        try:
            made = create_metadata_table(table.reload(), metadata_clock(table), names, definitions)
        except MetadataTableError:
            name_dropped(table.reload(), {})  # the next attempt would fail, too
            raise
        made = name_dropped(made, {})
    kept = made.config.metadata_partitions
    lost = tuple(name for name in before if name not in kept)
    if lost:
        log.warning("table %s: the indexes %s are not rebuilt", table.config.name, ", ".join(lost))
    return Rebuilt(kept, lost)


def _definitions(table: HudiTable) -> Mapping[str, IndexDefinition]:
    """The definitions of indexes; none where their file is damaged: they are rebuilt from the options."""
    try:
        return definitions_of(table)
    except FormatError as error:
        log.warning("table %s: %s", table.config.name, error.message)
        return {}


def drop_metadata(table: HudiTable, indexes: Sequence[str] | None = None) -> tuple[str, ...]:
    """Drops the metadata table, or only these of its indexes, under the lock. Returns the names of what was dropped.

    InputError where there is no such one, and for `files` alone: all others depend on it.
    """
    check_writable(table.config, table.storage.root)
    with table.context.locked():
        table = take_lock_over(table)
        noted = dropped_indexes(table.config)
        if not (has_metadata_table(table.config) or noted):
            raise _without(table)
        there = tuple(dict.fromkeys((*table.config.metadata_partitions, *building_partitions(table.config), *noted)))
        if indexes is None:
            delete_metadata_table(table.storage)
            dropped = there
        else:
            _check_droppable(table, indexes, there)
            dropped = tuple(with_led(indexes, there))
            left = {name: each for name, each in noted.items() if name not in dropped}
            drop_indexes(table, [name for name in there if name not in dropped], left)
    log.info("table %s: %s dropped from its metadata table", table.config.name, ", ".join(dropped))
    table.context.events.emit("metadata_table.dropped", table=table.config.name, partitions=dropped)
    return dropped


def _check_droppable(table: HudiTable, names: Sequence[str], there: Sequence[str]) -> None:
    for name in names:
        if name not in there:
            problem = f"its metadata table has no index {name}"
            raise table.error(InputError, problem, found=name, expected=", ".join(there))
    if FILES in names:
        problem = f"{FILES} is dropped with all indexes only"
        raise table.error(InputError, problem, hint="drop the whole metadata table", found=FILES)


def check_quiet(table: HudiTable) -> None:
    """MetadataTableError where something pending keeps a partition of the metadata table from being made."""
    first = waits_for(table)
    if first is not None:
        raise table.error(
            MetadataTableError,
            f"{first.action.value} {first.requested_time} is pending, and a metadata table of this table version is"
            " made only while nothing is",
            hint="finish it (skep maintain) or roll it back (skep rollback)",
            instant=first.requested_time,
        )


def _own(table: HudiTable) -> HudiTable:
    if not has_metadata_table(table.config):
        raise _without(table)
    try:
        return open_own(table)
    except NotATableError as error:
        problem, hint = "its settings name a metadata table, and there is none", "skep metadata rebuild makes it again"
        raise table.error(MetadataTableError, problem, hint=hint, path=str(error.fields.get("path", ""))) from error


def _without(table: HudiTable) -> InputError:
    return InputError(
        f"table {table.config.name} has no metadata table",
        hint="skep metadata rebuild makes one",
        table=table.config.name,
    )


@dataclass(frozen=True, slots=True)
class TableIndex:
    """An index that a table has. `partition` is that of the metadata table; `columns` are those that it is defined
    of."""

    name: str
    kind: str
    columns: tuple[str, ...]
    partition: str


def index_named(
    kind: str, name: str | None = None, columns: Sequence[str] = (), expression: Mapping[str, str] | None = None
) -> IndexDefinition:
    """The definition of an index that is to be made. A secondary one is named by its column where it has no name.

    `expression`: the options of an index over an expression, `expr` the function among them; column_stats or
    bloom_filters is its kind, and it has to have a name. InputError for an unknown kind, and for a name that such an
    index can't have.
    """
    if kind not in KINDS:
        raise InputError(f"{kind} is no kind of index", found=kind, expected=", ".join(KINDS))
    if expression is not None:
        return _over_expression(kind, name, columns, expression)
    if kind != SECONDARY.name:
        if name not in (None, kind):
            raise InputError(
                f"index {name}: a table has one index of the kind {kind}, and that is its name",
                hint=f"name it {kind}",
                found=name,
                expected=kind,
            )
        return IndexDefinition(kind, kind, "", tuple(columns))
    if len(columns) != 1:
        found = ", ".join(columns) or "none"
        raise InputError(f"a secondary index is of one column, found {found}", found=found, expected="one column")
    name = name or columns[0].replace(".", "_")
    _check_name(name)
    return IndexDefinition(f"{SECONDARY.prefix}{name}", SECONDARY.name, IDENTITY, tuple(columns))


def _over_expression(
    kind: str, name: str | None, columns: Sequence[str], expression: Mapping[str, str]
) -> IndexDefinition:
    """Hudi finds an index of a query by its definition: the name of the function is in small letters there."""
    if kind not in (COLUMN_STATS, BLOOM_FILTERS):
        raise InputError(
            f"an index over an expression is of the kind {COLUMN_STATS} or {BLOOM_FILTERS}, not {kind}",
            found=kind,
            expected=f"{COLUMN_STATS}, {BLOOM_FILTERS}",
        )
    if name is None:
        raise InputError("an index over an expression needs a name", found="none", expected="a name")
    _check_name(name)
    function = expression.get(FUNCTION, "").strip().lower()
    options = {**expression, FUNCTION: function}
    return IndexDefinition(f"{EXPRESSION.prefix}{name}", kind, function, tuple(columns), options)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() in (FILES, *KINDS):
        raise InputError(
            f"{name!r} is no name of an index",
            found=name,
            expected="letters, digits, underscores and dashes, and no kind of index",
        )


def indexes_of(table: HudiTable) -> list[TableIndex]:
    """The indexes that readers may use, by name."""
    if not has_metadata_table(table.config):
        return []
    defined = definitions_of(table)
    found = []
    for partition in sorted(set(table.config.metadata_partitions) - {FILES}):
        definition = defined.get(partition)
        columns = definition.source_fields if definition is not None else ()
        kind = (definition.index_type if definition is not None else None) or partition
        if kind_of(partition) is SECONDARY:
            kind = SECONDARY.name
        found.append(TableIndex(short_name(partition), kind, columns, partition))
    return found


def build_index(table: HudiTable, definition: IndexDefinition) -> HudiTable:
    """Makes an index under the table's lock, and the metadata table where there is none; the snapshot with it.

    A secondary index has the record index made with it. EntryExistsError where the table has it; UnsupportedError,
    InputError or MetadataTableError, and nothing is made, where it can't have it.
    """
    check_writable(table.config, table.storage.root)
    check_plaintext(table, logs=False, indexes=(definition.name,))
    with table.context.locked():
        table = take_lock_over(table)
        partition, name = definition.name, table.config.name
        if partition in table.config.metadata_partitions:
            raise EntryExistsError(
                f"table {name} already has an index {short_name(partition)}", table=name, found=partition
            )
        _check_kept(table)
        check_quiet(table)
        _check(table, definition)
        if partition == COLUMN_STATS:
            table = _without_definition(table, partition)
        columns = definition.source_fields if partition in STATISTICS else ()
        given = table.with_options({COLUMN_STATS_COLUMNS.key: ",".join(columns)} if columns else {})
        named = {} if partition in KINDS else {partition: definition}
        # writes make the statistics of partitions with those of columns
        both = partition == PARTITION_STATS or (partition == COLUMN_STATS and makes_partition_stats(table))
        names = set(STATISTICS) if both else {partition}
        refuse_reserved(table, names)
        made = create_metadata_table(given, metadata_clock(table), names, named)
        if partition not in made.config.metadata_partitions:
            problem = f"index {short_name(partition)} can't be made before the table has columns and files"
            raise table.error(MetadataTableError, problem, hint="write to the table first", found=partition)
    log.info("table %s: index %s is made", name, short_name(partition))
    return made.in_context_of(table)


def drop_index(table: HudiTable, name: str) -> tuple[str, ...]:
    """Drops the index of that name, and secondary ones with the record index; returns the names of all that went.

    InputError where there is none.
    """
    found = index_of(indexes_of(table.reload()), name)
    if found is None:
        raise InputError(f"table {table.config.name} has no index {name}", table=table.config.name, found=name)
    return tuple(map(short_name, drop_metadata(table, [found.partition])))


def index_of(indexes: Collection[TableIndex], name: str) -> TableIndex | None:
    """The index of that name or partition, in any case where none has it as it is written."""
    exact = (each for each in indexes if name in (each.partition, each.name))
    alike = (each for each in indexes if name.lower() in (each.partition.lower(), each.name.lower()))
    return next(exact, None) or next(alike, None)


def _without_definition(table: HudiTable, partition: str) -> HudiTable:
    """Without what a failed attempt, or a writer that dropped the index, has left: it would have other columns."""
    defined = definitions_of(table)
    if partition in defined:
        left = {name: each for name, each in defined.items() if name != partition}
        write_definitions(table.storage, left, definitions_path(table.config))
    return table.reload()


def _check_kept(table: HudiTable) -> None:
    if not keeps_metadata_table(table.options):
        problem = f"with {METADATA_ENABLE.key}=false the next write would drop the index"
        hint = f"leave {METADATA_ENABLE.key} out, or set it to true"
        raise table.error(InputError, problem, hint=hint, option=METADATA_ENABLE.key)
    if has_metadata_table(table.config) and table.metadata_table() is None:
        problem = "its metadata table lacks completed writes, and an index is made beside a current one only"
        raise table.error(MetadataTableError, problem, hint="skep metadata rebuild makes it again")


def _check(table: HudiTable, definition: IndexDefinition) -> None:
    kind, config, rules = definition.index_type, table.config, table.format.metadata
    of = kind_of(definition.name)
    assert of is not None, definition.name
    if of.of_keys and not config.populate_meta_fields:
        raise UnsupportedError(
            f"table {config.name} does not keep its record keys (hoodie.populate.meta.fields=false), and a {kind} is"
            " made of these",
            table=config.name,
        )
    if of.is_defined and not rules.defines_indexes:
        what = "expression indexes" if of is EXPRESSION else kind
        raise UnsupportedError(
            f"table {config.name} has version {config.version}, and Hudi has {what} from version 8 on",
            hint="skep upgrade brings the table to a newer version",
            table=config.name,
            found=config.version,
        )
    if of is EXPRESSION:
        _check_expression(table, definition)
        return
    if kind == PARTITION_STATS and not config.partition_fields:
        raise InputError(f"table {config.name} is not partitioned, and has no statistics of partitions")
    if kind in (RECORD_INDEX, BLOOM_FILTERS):
        keys = (*config.record_key_fields, "_hoodie_record_key")
        _check_columns(definition, keys, f"the {kind} of table {config.name} is of its record key")
    if kind in STATISTICS and definition.source_fields:
        schema = table.stored_schema().with_meta()
        able = indexable(schema, definition.source_fields, rules.release)
        _check_columns(definition, tuple(able), f"table {config.name} has no column for statistics of that name")
    if kind == SECONDARY.name:
        _check_secondary(table, definition)


def _check_expression(table: HudiTable, definition: IndexDefinition) -> None:
    name, config = definition.name, table.config
    try:
        index = new_expression_index(table, definition)
    except (InputError, SchemaError, UnsupportedError) as error:
        raise type(error)(
            f"table {config.name}, index {short_name(name)}: {error.message}",
            hint=error.hint,
            table=config.name,
            column=",".join(definition.source_fields),
            found=error.fields.get("found"),
            expected=error.fields.get("expected"),
        ) from error
    if index.expression.zoned:
        log.warning(
            "table %s: index %s is of times in UTC; sessions of Spark that read or write the table need"
            " spark.sql.session.timeZone=UTC",
            config.name,
            short_name(name),
        )


def _check_columns(definition: IndexDefinition, known: Sequence[str], message: str) -> None:
    strange = [column for column in definition.source_fields if column not in known]
    if strange:
        raise SchemaError(message, column=strange[0], found=strange[0], expected=", ".join(known))


def _check_secondary(table: HudiTable, definition: IndexDefinition) -> None:
    (column,), schema, name = definition.source_fields, table.stored_schema(), table.config.name
    if column not in schema:
        known = ", ".join(field.name for field in schema.fields)
        raise SchemaError(f"table {name} has no column {column}", table=name, column=column, expected=known)
    if new_secondary_index(table, definition.name, definition) is None:
        found = type(schema[column].type).__name__.removesuffix("Type").lower()
        raise UnsupportedError.of_table(
            name,
            f"column {column} is a {found}, and tables of version {table.config.version} have no secondary indexes of"
            " these: not all releases of Hudi write their values alike, or take them",
            column=column,
        )
    there = RECORD_INDEX in table.config.metadata_partitions
    if is_partitioned_record_index(table) if there else is_partitioned_by_options(table):
        raise UnsupportedError.of_table(
            name,
            "a secondary index leads to a record index with one place for each key, and that of the table is to be"
            " partitioned",
            hint="drop the record index, then build the secondary one",
        )
