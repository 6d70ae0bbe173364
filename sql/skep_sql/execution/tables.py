"""CREATE, DROP, TRUNCATE and USE: tables and databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from skep_format.errors import InputError, NoSuchTableError, TableExistsError, UnsupportedError
from skep_format.options import Options, comma_list
from skep_format.schema.arrow import nullable, to_arrow
from skep_format.schema.types import META_FIELDS
from skep_format.table_config import MERGE_PROPERTY_PREFIX, TableConfig, keys
from skep_format.table_config.merging import PAYLOAD_OPTION
from skep_format.timeline.metadata import WriteOperation
from skep_sql.bind import Bound, look_up, refuse_view, table_to_change
from skep_sql.execution.insert import InsertedColumn, columns_in_order, constant, in_order, put_in_order
from skep_sql.names import column_of
from skep_sql.parsing.statements import CreateDatabase, CreateTable, Drop, Name, PartitionSpec, Truncate, Use
from skep_sql.protocols import QueryEngine, TableCatalog, TargetTable
from skep_sql.session import Session
from skep_sql.types import arrow_field
from skep_table.keys import KeyGenerator
from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, PARTITION_STATS
from skep_table.metadata_write.drop import dropped_indexes
from skep_table.table import METADATA_ENABLE, HudiTable
from skep_table.write.output.replaced import NamedPartitions, matching_partitions
from skep_table.write.planning.settings import BASE_FILE_FORMAT, HIVE_STYLE, SQL_NAMES, URL_ENCODE, path_settings
from skep_table.write.result import WriteResult

_KEY: Final = ("primarykey", "hoodie.table.recordkey.fields", "hoodie.datasource.write.recordkey.field")
_ORDERING: Final = (
    "precombinefield",
    "orderingfields",
    "hoodie.table.precombine.field",
    "hoodie.table.ordering.fields",
    "hoodie.datasource.write.precombine.field",
)
_TYPE: Final = ("type", "hoodie.table.type", "hoodie.datasource.write.table.type")
_VERSION: Final = ("hoodie.write.table.version", "hoodie.table.version")
_OWN: Final = (*_KEY, *_ORDERING, *_TYPE, *_VERSION)
_TAKEN: Final = (*_OWN, *SQL_NAMES)
_TYPES: Final = {"cow": "cow", "mor": "mor", "copy_on_write": "cow", "merge_on_read": "mor"}


def create_table(session: Session, statement: CreateTable) -> WriteResult | None:
    """TableExistsError where the name is taken. A table whose first rows are refused does not stay."""
    catalog, name = session.catalog, str(statement.name)
    if statement.provider is not None and statement.provider not in ("hudi", "org.apache.hudi"):
        raise UnsupportedError(
            f"CREATE TABLE … USING {statement.provider}: tables are Hudi's", found=statement.provider
        )
    if len(statement.name.parts) > 2:
        raise InputError(f"tables are named database.table, found {name}", found=name)
    facts = catalog.taken(name)
    if facts is not None:
        if statement.if_not_exists:
            return None
        raise TableExistsError(f"table {name} already exists, at {facts.location}", table=name, path=facts.location)
    location = statement.location
    if statement.like is not None:
        _create_like(catalog, statement, statement.like)
        return None
    if location is not None and catalog.holds_table(location):
        if statement.query is not None:
            raise TableExistsError(
                f"CREATE TABLE … AS: there is a Hudi table at {location}",
                hint="CREATE TABLE … LOCATION without AS registers it; INSERT INTO adds rows",
                path=location,
            )
        catalog.register(location, name, _described(statement))
        _describe(catalog, name, statement, path_settings(statement.properties))
        return None
    bound = session.bound(statement.query) if statement.query is not None else None
    schema = _schema(statement, session.engine, bound)
    spec = _spec(statement, schema)
    spec["table_version"] = spec["table_version"] or _property(session.settings.hoodie, _VERSION)
    with catalog.new_table(name, schema, managed=location is None, location=location, **spec) as target:
        _describe(catalog, name, statement)
        return None if bound is None else _first_rows(session, target, schema, bound)


def _first_rows(session: Session, target: TargetTable, schema: pa.Schema, bound: Bound) -> WriteResult:
    given = session.engine.schema(bound.query, bound.relations).names
    columns = [InsertedColumn(field.name, field.type, given.index(field.name)) for field in schema]
    frame = put_in_order(session, columns, bound, target.name)
    return target.write(WriteOperation.BULK_INSERT, frame, session.settings.hoodie)


def _schema(statement: CreateTable, engine: QueryEngine, bound: Bound | None) -> pa.Schema:
    """The columns, partition columns last."""
    name = str(statement.name)
    if bound is not None:
        if statement.columns:
            raise InputError.of_table(name, "CREATE TABLE … AS takes its columns from the query")
        found = engine.schema(bound.query, bound.relations)
        # a literal or a count has no nulls, and later rows may: Hudi's columns may be null, too
        fields = list(nullable(pa.schema([each.remove_metadata() for each in found if each.name not in META_FIELDS])))
        for field in fields:
            if pa.types.is_null(field.type):
                problem = f"column {field.name} of the query is null all through and has no type"
                hint = f"CAST(null AS string) AS {field.name}"
                raise InputError.of_table(name, problem, hint=hint, column=field.name)
    else:
        fields = [arrow_field(column) for column in statement.columns if column.name not in META_FIELDS]
    if not fields:
        raise InputError(
            f"table {name} has no columns",
            hint="name them: CREATE TABLE t (id BIGINT, …), or the LOCATION of a Hudi table",
        )
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise InputError.of_table(name, f"column {field.name} occurs twice", column=field.name)
        seen.add(field.name.lower())
    names = [field.name for field in fields]
    last = [column_of(each, names, name) for each in statement.partition_by]
    if len(last) == len(fields):
        raise InputError.of_table(name, "not all columns can be partition columns", found=", ".join(last))
    return pa.schema(in_order(fields, last))


def _property(properties: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    found = {key: value for key, value in properties.items() if key.lower() in names}
    if len(set(found.values())) > 1:
        raise InputError(f"{' and '.join(found)} differ: {', '.join(found.values())}", found=found)
    return next(iter(found.values()), None)


def _described(statement: CreateTable) -> dict[str, Any]:
    """Key, ordering, partitioning and type, as far as they are given. InputError for an unknown type."""
    properties = statement.properties
    key, ordering = _property(properties, _KEY), _property(properties, _ORDERING)
    kind = _property(properties, _TYPE)
    if kind is not None and kind.lower() not in _TYPES:
        raise InputError(
            f"'type' must be 'cow' or 'mor', found {kind!r}", option="type", found=kind, expected="cow or mor"
        )
    return {
        "key": comma_list(key or ""),
        "ordering": None if ordering is None else comma_list(ordering),
        "partition_by": statement.partition_by,
        "type": _TYPES[kind.lower()] if kind else None,
        "table_version": _property(properties, _VERSION),  # which there are is the catalog's matter
    }


def _spec(statement: CreateTable, schema: pa.Schema) -> dict[str, Any]:
    name, names = str(statement.name), schema.names
    found = _described(statement)
    found["key"] = tuple(_known(each, names, "primaryKey", name) for each in found["key"])
    if found["ordering"] is not None:
        found["ordering"] = tuple(_known(each, names, "preCombineField", name) for each in found["ordering"])
    found["partition_by"] = tuple(column_of(each, names, name) for each in found["partition_by"])
    properties = _hoodie_properties(statement)
    return {**found, "hive_style": None if HIVE_STYLE.key in properties else True, "properties": properties}


def _hoodie_properties(statement: CreateTable) -> dict[str, str]:
    """The properties that are Hudi's, but for those that have arguments of their own."""
    given = statement.properties.items()
    spelled = {key.lower(): value for key, value in given}
    named = {option: spelled[name] for name, option in SQL_NAMES.items() if name in spelled and name not in _OWN}
    own = {key: value for key, value in given if key.startswith("hoodie.") and key.lower() not in _TAKEN}
    return {**named, **own}


def _known(column: str, names: list[str], what: str, table: str) -> str:
    head, dot, rest = column.partition(".")
    try:
        return column_of(head, names, table) + dot + rest
    except InputError as error:
        raise InputError.of_table(
            table,
            f"there is no column {column}, which is to be {what}",
            hint=error.hint,
            column=column,
            option=what,
            found=column,
            expected=", ".join(names),
        ) from error


def _describe(
    catalog: TableCatalog, name: str, statement: CreateTable, settings: Mapping[str, str] | None = None
) -> None:
    """Comment, properties that are not Hudi's, and those among `settings`, in the catalog's entry."""
    own: dict[str, str | None] = {
        key: value
        for key, value in statement.properties.items()
        if not key.startswith("hoodie.") and key.lower() not in _TAKEN
    }
    own.update(settings or {})
    if statement.comment:
        own["comment"] = statement.comment
    if own:
        catalog.set_parameters(name, own)


def _create_like(catalog: TableCatalog, statement: CreateTable, like: Name) -> None:
    source = catalog.table(look_up(catalog, like)).hudi
    config = source.config
    own, stated = _described(statement), _hoodie_properties(statement)
    formats = {} if Options(stated).is_set(BASE_FILE_FORMAT) else {BASE_FILE_FORMAT.key: config.base_format.value}
    spec = {
        "key": own["key"] or config.record_key_fields,
        "ordering": own["ordering"] or config.ordering_fields or None,
        "partition_by": config.partition_fields,
        "type": own["type"] or ("mor" if config.is_mor else "cow"),
        "hive_style": None if HIVE_STYLE.key in stated else config.hive_style,
        "url_encode": None if URL_ENCODE.key in stated else config.url_encode,
        "table_version": own["table_version"] or (config.version if source.format.is_written else None),
        "properties": {**_kept_like(config), **formats, **stated},
        "metadata": _metadata_like(config, Options(stated), own["table_version"]),
    }
    place, managed = statement.location, statement.location is None
    with catalog.new_table(str(statement.name), columns_in_order(source), managed=managed, location=place, **spec):
        pass


def _metadata_like(config: TableConfig, stated: Options, version: object) -> frozenset[str]:
    """The listing and the statistics that the metadata table has, or is to have with the first write. Indexes are not
    copied, as those of no table are.
    """
    if stated.is_set(METADATA_ENABLE) and not stated.value(METADATA_ENABLE):
        return frozenset()
    of_any_version = {FILES, COLUMN_STATS}
    return frozenset((*config.metadata_partitions, *dropped_indexes(config))) & (
        of_any_version if version else {*of_any_version, PARTITION_STATS}
    )


def _kept_like(config: TableConfig) -> dict[str, str]:
    """The properties by which a table merges rows and keeps their changes, for one that is made like it."""
    legacy = config.raw.get(keys.LEGACY_PAYLOAD_CLASS)  # from which the others followed
    merging = () if legacy else (keys.PAYLOAD_CLASS, keys.MERGE_MODE, keys.MERGE_STRATEGY_ID, keys.PARTIAL_UPDATE_MODE)
    stated = {key: config.raw[key] for key in (*merging, keys.CDC_ENABLED, keys.CDC_MODE) if config.raw.get(key)}
    own = {key: text for key, text in config.raw.items() if key.startswith(MERGE_PROPERTY_PREFIX) and not legacy}
    return {**stated, **own, **({PAYLOAD_OPTION: legacy} if legacy else {})}


def create_database(session: Session, statement: CreateDatabase) -> None:
    """EntryExistsError when it is there."""
    name = _one(statement.name)
    session.catalog.create_database(name, statement.location, statement.comment, statement.if_not_exists)


def drop(session: Session, statement: Drop) -> None:
    """A managed table loses its files too, as in Spark."""
    catalog = session.catalog
    if statement.kind == "database":
        catalog.drop_database(_one(statement.name), statement.if_exists, statement.cascade)
        return
    refuse_view(session.views, statement.name)
    facts = catalog.facts(str(statement.name))
    if facts is not None:
        catalog.drop_table(f"{facts.database}.{facts.name}", purge=statement.purge or facts.is_managed)
    elif not statement.if_exists:
        look_up(catalog, statement.name)  # raises, with the nearest name


def use(session: Session, statement: Use) -> None:
    """NoSuchTableError for an unknown database."""
    session.catalog.database = known_database(session.catalog, _one(statement.name))


def known_database(catalog: TableCatalog, name: str) -> str:
    """NoSuchTableError for an unknown one."""
    known = catalog.databases()
    if name not in known:
        raise NoSuchTableError(f"there is no database {name}; there are: {', '.join(known)}", found=name)
    return name


def _one(name: Name) -> str:
    if len(name.parts) != 1:
        raise InputError(f"line {name.line}, column {name.column}: a database has a name of one part, found {name}")
    return name.parts[0].lower()


def truncate(session: Session, statement: Truncate) -> WriteResult | None:
    """All rows, by one commit that replaces them: unlike Hudi's, the timeline goes on, for readers and time travel."""
    target = table_to_change(session.scope, statement.name)
    if statement.partition is None:
        empty = to_arrow(target.hudi.schema()).empty_table()
        return target.write(WriteOperation.INSERT_OVERWRITE_TABLE, empty, session.settings.hoodie)
    return drop_partitions(session, statement.partition, target)


def drop_partitions(session: Session, partition: PartitionSpec, target: TargetTable) -> WriteResult | None:
    """Drops, by one commit, what a PARTITION clause names; None where that is nothing."""
    paths = _partitions_to_drop(partition, target.hudi, target.name)
    return target.commit(lambda writer: writer.delete_partitions(paths), session.settings.hoodie) if paths else None


def _partitions_to_drop(partition: PartitionSpec, table: HudiTable, name: str) -> list[str]:
    """The partitions that are there and have these values, of all partition columns; `*` in a text is any text.

    InputError where a column is missing: as in Hudi, no statement drops all that is below a folder without that `*`.
    """
    values = _values(partition, table, name)
    missing = [column for column in table.config.partition_fields if column not in values]
    if missing:
        raise InputError.of_table(
            name,
            f"PARTITION has no value for {', '.join(missing)}: all partition columns need one",
            hint=f"{missing[0]} = '*' means all of its values",
            column=missing[0],
            expected=", ".join(table.config.partition_fields),
        )
    if not any(isinstance(value, str) and "*" in value for value in values.values()):
        return partition_paths(partition, table, name)
    texts = {column: [None if value is None else str(value)] for column, value in values.items()}
    pattern = KeyGenerator.of(table.config, table.options).partition_paths(pa.table(texts)).to_pylist()
    return matching_partitions(pattern, table.view().partitions())


def partition_paths(partition: PartitionSpec, table: HudiTable, name: str) -> list[str]:
    """The partitions that are there and have these values. InputError for a column that is none of them."""
    values = _values(partition, table, name)
    named = NamedPartitions.of(KeyGenerator.of(table.config, table.options), to_arrow(table.schema()), values, name)
    return named.of_paths(table.view().partitions())


def _values(partition: PartitionSpec, table: HudiTable, name: str) -> dict[str, object]:
    known = table.config.partition_fields
    values: dict[str, object] = {}
    for column, value in partition.items():
        found = next((each for each in known if each.lower() == column.lower()), None)
        if found is None or value is None:
            problem = f"{column} is not a valid partition column with a value"
            raise InputError.of_table(name, problem, column=column, found=column, expected=", ".join(known) or None)
        values[found] = constant(value, found, name)
    return values
