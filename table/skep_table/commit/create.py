"""Creating a table: its settings are checked and written, nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from skep_format.errors import AlreadyExistsError, FolderInUseError, KeyFieldError, OptionError
from skep_format.names import META_FOLDER, BaseFormat
from skep_format.options import Options, boolean, one_of
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.avro import avro_text
from skep_format.schema.reconcile import check_new
from skep_format.schema.types import META_FIELDS, Schema, record_names
from skep_format.storage import Storage
from skep_format.table_config import (
    DROP_PARTITION_COLUMNS,
    KEY_GENERATOR_CLASS,
    POPULATE_META_FIELDS,
    USER_PROVIDED,
    MergeMode,
    PartialUpdateMode,
    TableConfig,
    TableType,
    TimelineZone,
    create_table_config,
)
from skep_format.table_config.keys import BACKUP_PATH, CDC_ENABLED, CDC_MODE, PROPERTIES_PATH, TIMELINE_FOLDER, CdcMode
from skep_format.table_config.merging import MergeRequest
from skep_format.timeline.instant import DATA_ACTIONS
from skep_format.timeline.timeline import Timeline, TimelineFiles
from skep_format.versions import DEFAULT, format_of, format_of_version
from skep_table.context import TableContext
from skep_table.keys.generator import KeyGenerator, KeyGeneratorType, has_own, infer_key_generator, parse_key_generator
from skep_table.table import HudiTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The settings of a new table. `ordering` names the column whose greater value wins; else the last write wins.

    Of several ordering columns the second decides between rows with equal values in the first, and so on. `merge_mode`,
    `merge_strategy_id` and `payload_class` name another way to merge, `merge_properties` what it needs beside.
    `partition_by` may carry types (`at:timestamp`), which makes the key generator CUSTOM. `properties` are further
    table properties, the settings of timestamp key generators for instance.
    """

    name: str
    schema: Schema | pa.Schema
    record_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    ordering: str | tuple[str, ...] | None = None
    database: str | None = None
    type: TableType = TableType.COPY_ON_WRITE
    hive_style: bool = False
    url_encode: bool = False
    base_format: BaseFormat = BaseFormat.PARQUET
    key_generator: str | None = None
    payload_class: str | None = None
    merge_mode: MergeMode | None = None
    merge_strategy_id: str | None = None
    partial_update_mode: PartialUpdateMode | None = None
    merge_properties: Mapping[str, str] = field(default_factory=dict)
    version: int = DEFAULT.version
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """The ordering columns, the one that is compared first at the front."""
        if isinstance(self.ordering, str):
            return (self.ordering,) if self.ordering else ()
        return tuple(self.ordering or ())


def create_table(storage: Storage, spec: TableSpec, options: Mapping[str, object] | None = None) -> HudiTable:
    """Writes the settings of a new table and opens it with `options`.

    TableExistsError when the folder holds a table, FolderInUseError when it holds commits without settings; InputError
    when `spec` is inconsistent.
    """
    context = TableContext(storage, Options(options)).of_table(spec.name)  # refuses before there is a table
    config = table_config(spec)
    _check_settings(storage, spec.name)
    config = create_table_config(storage, config)
    if (path := format_of(config).timeline_layout(config).placeholder) is not None:
        with contextlib.suppress(AlreadyExistsError):  # of a creator that died
            storage.create_exclusive(path, b"")
    return HudiTable.in_context(context)


def _check_settings(storage: Storage, name: str) -> None:
    """FolderInUseError for a table that has lost its settings: others would not be those of its rows."""
    meta = storage.list_folder(META_FOLDER)
    if {file.path for file in meta.files} & {PROPERTIES_PATH, BACKUP_PATH}:
        return
    ends = tuple(f".{action.value}" for action in DATA_ACTIONS)
    has_folder = TIMELINE_FOLDER.rpartition("/")[2] in meta.folders
    instants = [*meta.files, *(storage.list_folder(TIMELINE_FOLDER).files if has_folder else ())]
    found = next((file.path for file in instants if file.name.endswith(ends)), None)
    if found is not None:
        problem = f"{storage.root} holds {found}, and no settings"
        hint = "skep fsck finds lost settings of a table"
        raise FolderInUseError.of_table(name, problem, hint=hint, path=storage.root, found=found)


def check_empty(storage: Storage, name: str) -> None:
    """FolderInUseError for a folder without a table that holds files.

    Names that readers pass over, with `.` or `_`, do not count: checkpoints of streams, and what the first write of a
    table left that was taken back.
    """
    if PROPERTIES_PATH in {file.path for file in storage.list_folder(META_FOLDER).files}:
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        listing = storage.list_folder(folder)
        found = next((file.path for file in listing.files if not file.name.startswith((".", "_"))), None)
        if found is not None:
            problem = f"{storage.root} is not empty and no Hudi table: it holds {found}"
            hint = "choose an empty folder; skep bootstrap makes a table of a folder of files, beside it"
            raise FolderInUseError.of_table(name, problem, hint=hint, path=storage.root, found=found)
        folders += [f"{folder}/{each}".lstrip("/") for each in listing.folders if not each.startswith((".", "_"))]


def planned_table(storage: Storage, spec: TableSpec, options: Mapping[str, object] | None = None) -> HudiTable:
    """The table that `create_table` would make, to plan a write before it: nothing is read or written.

    InputError when `spec` is inconsistent. Its `reload` is that of the table that is there.
    """
    config = TableConfig.parse(table_config(spec).to_properties(), f"{storage.root}/{PROPERTIES_PATH}")
    layout = format_of(config).timeline_layout(config)
    timeline = Timeline((), layout, files=TimelineFiles(folders=frozenset()))
    return HudiTable(TableContext(storage, Options(options)), config, timeline)


def table_config(spec: TableSpec) -> TableConfig:
    """The settings that `spec` defines; nothing is written. InputError for an invalid one."""
    schema = _schema_of(spec)
    for column in schema.fields:
        check_new(column)
    for name in (*spec.record_key, *spec.partition_by, *spec.ordering_fields):
        if name.partition(":")[0] in META_FIELDS:
            raise KeyFieldError.of_table(
                spec.name,
                f"{name} is one of Hudi's meta columns, which each write fills; it can't be a key, partition or"
                " ordering column",
                hint="rename the column",
                column=name,
            )
    config = _config_of(spec, schema)
    arrow = to_arrow(schema)
    for name in config.ordering_fields:
        if name.partition(".")[0] not in arrow.names:
            problem = f"ordering column {name} is not among {', '.join(arrow.names)}"
            raise KeyFieldError.of_table(spec.name, problem, column=name)
    generator = KeyGenerator.of(config, spec.properties)
    generator.check(arrow)
    if not config.populate_meta_fields:
        check_virtual_keys(config, generator)
        if config.cdc_enabled:  # readers find its rows by their stored keys
            problem = f"{CDC_ENABLED}=true needs meta columns ({POPULATE_META_FIELDS}=true)"
            raise OptionError.of_table(config.name, problem, option=CDC_ENABLED)
    for name in (*config.ordering_fields, *(() if config.populate_meta_fields else generator.record_fields)):
        if name in config.dropped_columns:
            problem = f"column {name} is needed in files, {DROP_PARTITION_COLUMNS}=true leaves it out"
            raise OptionError.of_table(spec.name, problem, option=DROP_PARTITION_COLUMNS, column=name)
    # columns without a text form are refused before anything is written
    empty = arrow.empty_table()
    if generator.record_fields:
        generator.record_keys(empty)
    generator.partition_paths(empty)
    return config


def check_virtual_keys(config: TableConfig, generator: KeyGenerator) -> None:
    """OptionError for a table without meta columns whose keys can't be computed from rows again."""
    kinds = (KeyGeneratorType.SIMPLE, KeyGeneratorType.COMPLEX, KeyGeneratorType.NON_PARTITION)
    if not generator.record_fields or generator.own or generator.type not in kinds:
        raise OptionError.of_table(
            config.name,
            f"{POPULATE_META_FIELDS}=false needs record key columns, and key generator"
            f" {', '.join(kind.value for kind in kinds)}",
            option=POPULATE_META_FIELDS,
            found=generator.own or generator.type.value,
        )


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
    table_format = format_of_version(spec.version)
    if not table_format.is_written:
        raise OptionError(f"no table is made in version {spec.version}", option="version", found=spec.version)
    typed = spec.partition_by if fields != spec.partition_by else ()
    stored = (
        {}
        if not typed or table_format.keeps_partition_types
        else {"hoodie.datasource.write.partitionpath.field": ",".join(typed)}
    )
    merging = table_format.merge_settings(
        MergeRequest(
            ordering_fields=spec.ordering_fields,
            mode=spec.merge_mode,
            payload_class=spec.payload_class,
            strategy_id=spec.merge_strategy_id,
            partial_update_mode=spec.partial_update_mode,
            properties=spec.merge_properties,
        )
    )
    drops = boolean(spec.properties.get(DROP_PARTITION_COLUMNS, "false"))
    # columns in the paths are neither in files nor in the schema of commits
    in_files = schema.without(fields) if drops else schema
    own_class = {KEY_GENERATOR_CLASS: named} if own and named else {}
    return TableConfig(
        name=spec.name,
        version=spec.version,
        database=spec.database,
        type=spec.type,
        base_format=spec.base_format,
        record_key_fields=spec.record_key,
        partition_fields=fields,
        typed_partition_fields=typed if table_format.keeps_partition_types else (),
        ordering_fields=merging.ordering_fields,
        key_generator=USER_PROVIDED if own else kind.value,
        payload_class=merging.payload_class,
        legacy_payload_class=merging.legacy_payload_class,
        merge_mode=merging.mode,
        merge_strategy_id=merging.strategy_id,
        partial_update_mode=merging.partial_update_mode,
        hive_style=spec.hive_style,
        url_encode=spec.url_encode,
        timezone=TimelineZone.UTC,
        populate_meta_fields=boolean(spec.properties.get(POPULATE_META_FIELDS, "true")),
        drop_partition_columns=drops,
        cdc_enabled=boolean(spec.properties.get(CDC_ENABLED, "false")),
        cdc_mode=_mode(spec),
        create_schema=avro_text(in_files),
        raw={**spec.properties, **merging.properties, **stored, **own_class},
    )


def _mode(spec: TableSpec) -> CdcMode:
    given = spec.properties.get(CDC_MODE)
    if given is None:
        return CdcMode.DATA_BEFORE_AFTER
    try:
        return one_of(CdcMode)(given)
    except ValueError as error:
        problem = f"{CDC_MODE}={given!r} is not {error}"
        raise OptionError.of_table(spec.name, problem, option=CDC_MODE, found=given, expected=str(error)) from error
