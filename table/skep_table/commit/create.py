"""Making a table: its settings checked and written, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from skep_table.errors import KeyFieldError, OptionError
from skep_table.keys.generator import KeyGenerator, infer_key_generator, parse_key_generator
from skep_table.keys.own import has_own
from skep_table.schema.arrow import from_arrow, to_arrow
from skep_table.schema.avro import avro_text
from skep_table.schema.types import Schema, record_names
from skep_table.storage import Storage
from skep_table.table import HudiTable
from skep_table.table_config import (
    DEFAULT_PAYLOAD,
    KEY_GENERATOR_CLASS,
    OVERWRITE_WITH_LATEST,
    USER_PROVIDED,
    MergeMode,
    TableConfig,
    TableType,
    TimelineZone,
    create_table_config,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a new table is to be. `ordering` names the column whose greater value wins; without it the last write wins.

    `partition_by` may carry types (`at:timestamp`), which makes the key generator CUSTOM. `properties` are further
    table properties, the settings of timestamp key generators for instance.
    """

    name: str
    schema: Schema | pa.Schema
    record_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    ordering: str | None = None
    database: str | None = None
    type: TableType = TableType.COPY_ON_WRITE
    hive_style: bool = False
    url_encode: bool = False
    key_generator: str | None = None
    payload_class: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


def create_table(storage: Storage, spec: TableSpec) -> HudiTable:
    """Writes the settings of a new table. TableExistsError when one is there; InputError when `spec` makes no sense."""
    create_table_config(storage, table_config(spec))
    return HudiTable.open(storage)


def table_config(spec: TableSpec) -> TableConfig:
    """The settings that `spec` comes to; nothing is written. InputError when it makes no sense."""
    schema = _schema_of(spec)
    config = _config_of(spec, schema)
    arrow = to_arrow(schema)
    for name in config.ordering_fields:
        if name.partition(".")[0] not in arrow.names:
            raise KeyFieldError(
                f"table {spec.name}: ordering column {name} is not among {', '.join(arrow.names)}", column=name
            )
    generator = KeyGenerator.of(config, spec.properties)
    generator.check(arrow)
    # columns that make no text are refused before the table is there
    empty = arrow.empty_table()
    if generator.record_fields:
        generator.record_keys(empty)
    generator.partition_paths(empty)
    return config


def _schema_of(spec: TableSpec) -> Schema:
    if isinstance(spec.schema, Schema):
        return spec.schema.without_meta()
    name, namespace = record_names(spec.name)
    return from_arrow(spec.schema, name, namespace).without_meta()


def _config_of(spec: TableSpec, schema: Schema) -> TableConfig:
    if not spec.name:
        raise OptionError("a table needs a name", option="name")
    named = spec.key_generator
    own = named is not None and has_own(named)
    kind = parse_key_generator(named) if named and not own else infer_key_generator(spec.record_key, spec.partition_by)
    fields = tuple(part.partition(":")[0] for part in spec.partition_by)
    typed = (
        {"hoodie.datasource.write.partitionpath.field": ",".join(spec.partition_by)}
        if fields != spec.partition_by
        else {}
    )
    event_time = spec.ordering is not None
    return TableConfig(
        name=spec.name,
        database=spec.database,
        type=spec.type,
        record_key_fields=spec.record_key,
        partition_fields=fields,
        ordering_fields=(spec.ordering,) if spec.ordering is not None else (),
        key_generator=USER_PROVIDED if own else kind.value,
        payload_class=spec.payload_class or (DEFAULT_PAYLOAD if event_time else OVERWRITE_WITH_LATEST),
        merge_mode=MergeMode.EVENT_TIME_ORDERING if event_time else MergeMode.COMMIT_TIME_ORDERING,
        hive_style=spec.hive_style,
        url_encode=spec.url_encode,
        timezone=TimelineZone.UTC,
        create_schema=avro_text(schema),
        raw={**spec.properties, **typed, **({KEY_GENERATOR_CLASS: named} if own and named else {})},
    )
