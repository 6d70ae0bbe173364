"""The metastore entry that a Hudi table should have: a pure function of the table's settings, schema and options.

Registered as Hudi's own tool does it where engines look: classes, serde, the parameters that Spark reads. A
copy-on-write table is one entry; a merge-on-read table has up to three views:

    T_ro    base files only          HoodieParquetInputFormat            hoodie.query.as.ro.table=true
    T_rt    log files merged in      HoodieParquetRealtimeInputFormat    false
    T       the same as T_rt         HoodieParquetRealtimeInputFormat    false
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from skep_catalog.entities import Column, StorageDescriptor, TableEntry
from skep_catalog.entry_options import EntryOptions, HiveBuckets, Strategy
from skep_catalog.lengths import METASTORE_LENGTHS, Lengths, with_short_comments
from skep_catalog.type_text import hive_columns, pieces, spark_schema
from skep_format.errors import OptionError, SchemaError, UnsupportedError
from skep_format.names import BaseFormat
from skep_format.options import Options
from skep_format.schema.policy import OPERATION_FIELD
from skep_format.schema.types import DataType, Field, LongType, Schema, StringType, TimestampType
from skep_format.table_config import TableConfig

MARKER: Final = "last_commit_time_sync"
COMPLETION_MARKER: Final = "last_commit_completion_time_sync"
READ_OPTIMIZED: Final = "hoodie.query.as.ro.table"
PROVIDER: Final = "spark.sql.sources.provider"
OWNED_BY: Final = "skep.sync.table"
"""The table for which skep made a view: only such views are dropped when the strategy changes."""
SCHEMA_PARTS: Final = "spark.sql.sources.schema."
"""Below this prefix lie the parts of Spark's schema. Parts beyond the last one are stale, and are removed."""
_SQL_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")


class View(Enum):
    """How an entry's readers see the table."""

    COPY_ON_WRITE = "copy on write"
    READ_OPTIMIZED = "read optimized"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """One view and what its entry should be. `table` has no markers: these belong to a sync."""

    view: View
    table: TableEntry


@dataclass(frozen=True, slots=True)
class WantedEntries:
    """All entries of a table, in the order of their sync, and what to report about them."""

    entries: tuple[WantedEntry, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Classes:
    input: str
    realtime: str
    output: str
    serde: str


_PARQUET_OUTPUT: Final = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_PARQUET_SERDE: Final = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_ORC: Final = "org.apache.hadoop.hive.ql.io.orc."
_ORC_WARNING: Final = (
    "base files are ORC, for which Hudi has no input format of its own: engines that read entries by Hive's (all but"
    " Spark) see every version of a file until it is cleaned, and no log files"
)
_CLASSES: Final = {
    BaseFormat.PARQUET: _Classes(
        "org.apache.hudi.hadoop.HoodieParquetInputFormat",
        "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat",
        _PARQUET_OUTPUT,
        _PARQUET_SERDE,
    ),
    BaseFormat.HFILE: _Classes(
        "org.apache.hudi.hadoop.HoodieHFileInputFormat",
        "org.apache.hudi.hadoop.realtime.HoodieHFileRealtimeInputFormat",
        _PARQUET_OUTPUT,
        _PARQUET_SERDE,
    ),
    BaseFormat.ORC: _Classes(
        _ORC + "OrcInputFormat", _ORC + "OrcInputFormat", _ORC + "OrcOutputFormat", _ORC + "OrcSerde"
    ),
}
_PRE_APACHE: Final = _Classes(
    "com.uber.hoodie.hadoop.HoodieInputFormat",
    "com.uber.hoodie.hadoop.realtime.HoodieRealtimeInputFormat",
    _PARQUET_OUTPUT,
    _PARQUET_SERDE,
)


def wanted_entries(
    config: TableConfig,
    schema: Schema,
    location: str,
    database: str,
    name: str,
    options: EntryOptions | None = None,
    *,
    owner: str | None = None,
    lengths: Lengths = METASTORE_LENGTHS,
) -> WantedEntries:
    """The entries for a table at `location`, registered as `database.name`. `schema` holds the data columns.

    SchemaError when columns or entry names clash; UnsupportedError for classes that a base format does not have.
    """
    options = options or EntryOptions()
    fields = _all_fields(config, schema, options)
    keys = _partition_fields(config, fields, options)
    key_names = {key.name.lower() for key in keys}
    data = tuple(field for field in fields if field.name.lower() not in key_names)
    fields_of_keys = config.partition_fields if options.partition_fields is None else options.partition_fields
    folders = (
        replace(key, type=_folder_type(config, field, key.type, options))
        for key, field in zip(keys, fields_of_keys, strict=True)
    )
    columns = hive_columns((*data, *folders), timestamps=options.timestamps, comments=options.comments)
    classes, buckets = _classes(config, options), _buckets(config, data, options)
    external = {} if options.managed else {"EXTERNAL": "TRUE"}
    of_spark = _spark_parameters(data, keys, options) if options.as_datasource else {}

    def entry(name: str, view: View) -> TableEntry:
        datasource = {"path": location, READ_OPTIMIZED: str(view is View.READ_OPTIMIZED).lower()}
        return TableEntry(
            database=database.lower(),
            name=name,
            owner=owner,
            table_type="MANAGED_TABLE" if options.managed else "EXTERNAL_TABLE",
            partition_keys=_lowered(columns[len(data) :]),
            parameters={**options.table_properties, **external, **of_spark},
            storage=StorageDescriptor(
                columns=_lowered(columns[: len(data)]),
                location=location,
                input_format=classes.realtime if view is View.SNAPSHOT else classes.input,
                output_format=classes.output,
                serde_library=classes.serde,
                serde_parameters={
                    **options.serde_properties,
                    **(datasource if options.as_datasource else {}),
                    "serialization.format": "1",
                },
                bucket_columns=buckets.columns,
                num_buckets=buckets.count,
            ),
        )

    views, warnings = _views(config, name, options)
    entries = tuple(WantedEntry(view, entry(each, view)) for each, view in views)
    if config.base_format is BaseFormat.ORC:
        warnings = (*warnings, _ORC_WARNING)
    return _with_fitting_comments(WantedEntries(entries, warnings), lengths)


def _with_fitting_comments(wanted: WantedEntries, lengths: Lengths) -> WantedEntries:
    """Comments that no metastore would hold are cut: an entry with shorter comments is better than none."""
    entries, cut = [], dict[str, None]()
    for entry in wanted.entries:
        table = entry.table
        columns, long_ones = with_short_comments(table.storage.columns, lengths.comment, lengths)
        keys, long_keys = with_short_comments(table.partition_keys, lengths.key_comment, lengths)
        cut |= dict.fromkeys([*long_ones, *long_keys])
        storage = replace(table.storage, columns=columns)
        entries.append(replace(entry, table=replace(table, storage=storage, partition_keys=keys)))
    if not cut:
        return wanted
    most, most_of_keys = f"{lengths.comment:,}", f"{lengths.key_comment:,}"
    warning = (
        f"the comment of column {', '.join(cut)} is longer than the {most} characters that a metastore has room for "
        f"(of a partition key, {most_of_keys}): it is shortened there, and whole in Spark's schema and in the table's "
        "own"
    )
    return WantedEntries(tuple(entries), (*wanted.warnings, warning))


def _views(config: TableConfig, name: str, options: EntryOptions) -> tuple[list[tuple[str, View]], tuple[str, ...]]:
    name = name.lower()
    if not config.is_mor:
        return [(name, View.COPY_ON_WRITE)], ()
    if options.strategy is Strategy.RO:
        return [(name, View.READ_OPTIMIZED)], ()
    if options.strategy is Strategy.RT:
        return [(name, View.SNAPSHOT)], ()
    if not options.skip_ro_suffix:
        views = [(f"{name}_ro", View.READ_OPTIMIZED), (f"{name}_rt", View.SNAPSHOT)]
        return views + ([(name, View.SNAPSHOT)] if options.snapshot_under_table_name else []), ()
    # Hudi's tool registers one entry as both views in turn: it flips twice in every sync.
    warning = (
        f"the plain name {name} was asked for twice, for the read-optimized view (skip_ro_suffix) and for the snapshot "
        "(sync_snapshot_with_table_name): it is the read-optimized view"
    )
    return (
        [(name, View.READ_OPTIMIZED), (f"{name}_rt", View.SNAPSHOT)],
        (warning,) if options.snapshot_under_table_name else (),
    )


def view_of(entry: TableEntry, config: TableConfig) -> View:
    """How the readers of a registered entry see the table, as Spark and Hive decide it: by its serde property, else by
    its input format.
    """
    if not config.is_mor:
        return View.COPY_ON_WRITE
    read_optimized = entry.storage.serde_parameters.get(READ_OPTIMIZED, "").lower()
    if read_optimized in ("true", "false"):
        return View.READ_OPTIMIZED if read_optimized == "true" else View.SNAPSHOT
    is_realtime = "realtime" in (entry.storage.input_format or "").lower()
    return View.SNAPSHOT if is_realtime else View.READ_OPTIMIZED


def _all_fields(config: TableConfig, schema: Schema, options: EntryOptions) -> tuple[Field, ...]:
    if options.omit_metadata_fields:
        return schema.without_meta().fields
    return schema.with_meta(operation=Options(config.raw).value(OPERATION_FIELD)).fields


def _partition_fields(config: TableConfig, fields: tuple[Field, ...], options: EntryOptions) -> tuple[Field, ...]:
    """The partition keys, in their order; one that is no column (made by a key generator) is a string."""
    names = config.partition_fields if options.partition_fields is None else options.partition_fields
    known = {field.name.lower(): field for field in fields}
    for name in names:
        if "." in name and name.lower() not in known:
            known[name.lower()] = Field(name.rsplit(".", 1)[-1], StringType(), nullable=False)
    keys = tuple(known.get(name.lower(), Field(name, StringType(), nullable=False)) for name in names)
    if len({key.name.lower() for key in keys}) != len(keys):
        raise SchemaError(f"two partition fields have one name: {', '.join(names)}", found=names)
    return keys


def _folder_type(config: TableConfig, name: str, kind: DataType, options: EntryOptions) -> DataType:
    """The type that the names of a key's folders are of, for engines that read its values from them alone: Hudi's key
    generators write timestamps as numbers, or any column as a formatted time."""
    if name not in config.formatted_times:
        return LongType() if isinstance(kind, TimestampType) and not options.texts_of_timestamps else kind
    import pyarrow as pa  # takes longer to load than most syncs work

    from skep_format.schema.arrow import arrow_type
    from skep_table.keys.partition_path import value_of
    from skep_table.keys.timebased import TimestampFormat

    try:
        (sample,) = TimestampFormat.of(config.raw).format(pa.array([0]), name).to_pylist()
        value_of(sample.replace("/", "-"), arrow_type(kind))
    except OptionError:
        return StringType()
    except pa.ArrowException:
        return LongType() if sample.isdigit() else StringType()
    if isinstance(kind, TimestampType) and not _SQL_TIMESTAMP.fullmatch(sample):
        return LongType() if sample.isdigit() else StringType()
    return kind


def _buckets(config: TableConfig, data: tuple[Field, ...], options: EntryOptions) -> HiveBuckets:
    if options.buckets is None:
        return HiveBuckets((), 0)
    names = tuple(name.lower() for name in options.buckets.columns or config.record_key_fields)
    known = {field.name.lower() for field in data}
    if missing := [name for name in names if name not in known]:
        problem = f"bucket column {missing[0]} is not among its columns"
        raise SchemaError.of_table(config.name, problem, column=missing[0], found=names)
    return HiveBuckets(names, options.buckets.count)


def _lowered(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Metastores keep names in lower case; Spark's schema keeps them as they are."""
    return tuple(Column(column.name.lower(), column.type, column.comment) for column in columns)


def _classes(config: TableConfig, options: EntryOptions) -> _Classes:
    if not options.pre_apache_input_format:
        return _CLASSES[config.base_format]
    if config.base_format is not BaseFormat.PARQUET:
        problem = f"use_pre_apache_input_format is for Parquet, not {config.base_format.value}"
        raise UnsupportedError.of_table(config.name, problem)
    return _PRE_APACHE


def _spark_parameters(data: tuple[Field, ...], keys: tuple[Field, ...], options: EntryOptions) -> dict[str, str]:
    parts = pieces(spark_schema((*data, *keys), comments=options.comments), options.schema_piece_length)
    parameters = {PROVIDER: "hudi"}
    if options.spark_version:
        parameters["spark.sql.create.version"] = options.spark_version
    parameters[f"{SCHEMA_PARTS}numParts"] = str(len(parts))
    parameters |= {f"{SCHEMA_PARTS}part.{index}": part for index, part in enumerate(parts)}
    if keys:
        parameters[f"{SCHEMA_PARTS}numPartCols"] = str(len(keys))
        parameters |= {f"{SCHEMA_PARTS}partCol.{index}": key.name for index, key in enumerate(keys)}
    return parameters


def is_hudi(entry: TableEntry) -> bool:
    """Whether an entry is for a Hudi table, by any writer."""
    return (
        "hudi" in (entry.storage.input_format or "")
        or "com.uber.hoodie" in (entry.storage.input_format or "")
        or entry.parameters.get("spark.sql.sources.provider", "").lower() == "hudi"
        or MARKER in entry.parameters
    )
