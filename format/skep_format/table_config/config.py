"""A table's settings, typed and checked: parsed from properties and written to the keys of its version (guide 1.3).

Releases of Hudi spell merge settings, ordering fields and key generators differently; here each has one field.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from skep_format.distribution import OLDER_TABLE_VERSIONS
from skep_format.errors import FormatError, TableVersionError
from skep_format.names import PARTITION_METAFILE, BaseFormat
from skep_format.options import boolean, comma_list, one_of
from skep_format.table_config import keys
from skep_format.table_config.keys import (
    CdcMode,
    MergeMode,
    PartialUpdateMode,
    TableType,
    TimelineZone,
    mode_of_payload,
)
from skep_format.table_config.reading import NO_FIELDS, PropertyReader, key_generator_of, plain_fields, typed_fields

_PARTIAL_UPDATE_MODE: Final[Callable[[str], PartialUpdateMode | None]] = one_of(PartialUpdateMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """The settings of one table. `raw` holds the properties as they are in the file, unknown keys included.

    For a new table, `raw` may hold further properties, such as key generator settings. `payload_class` is the class in
    the file, None without one, `legacy_payload_class` the one that a table of version 9 was made with; `merge_mode` and
    `merge_strategy_id` are derived for every version. `partition_fields` are plain names; `typed_partition_fields` are
    the same with the `:type` that custom key generators add, where the version keeps it.
    """

    name: str
    type: TableType = TableType.COPY_ON_WRITE
    database: str | None = None
    version: int = 6
    base_format: BaseFormat = BaseFormat.PARQUET
    record_key_fields: tuple[str, ...] = ()
    partition_fields: tuple[str, ...] = ()
    typed_partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    key_generator: str | None = None
    payload_class: str | None = None
    legacy_payload_class: str | None = None
    merge_mode: MergeMode = MergeMode.COMMIT_TIME_ORDERING
    merge_strategy_id: str | None = None
    partial_update_mode: PartialUpdateMode | None = None
    hive_style: bool = False
    url_encode: bool = False
    populate_meta_fields: bool = True
    drop_partition_columns: bool = False
    timezone: TimelineZone = TimelineZone.LOCAL
    cdc_enabled: bool = False
    cdc_mode: CdcMode = CdcMode.DATA_BEFORE_AFTER
    metadata_partitions: tuple[str, ...] = ()
    create_schema: str | None = None
    raw: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def layout_version(self) -> int:
        """The version of the timeline's layout, which the table version determines."""
        return _VERSIONS[self.version].layout_version

    @property
    def is_mor(self) -> bool:
        """Whether this is a merge-on-read table."""
        return self.type is TableType.MERGE_ON_READ

    @property
    def is_partitioned(self) -> bool:
        """Whether the table has partition columns."""
        return bool(self.partition_fields)

    @property
    def captured(self) -> CdcMode | None:
        """What its change logs hold; None for a table without change data capture."""
        return self.cdc_mode if self.cdc_enabled else None

    @property
    def metafile(self) -> str:
        """The name of the files that make folders partitions: properties, or in the format of base files."""
        in_base_format = self.raw.get(keys.METAFILE_AS_BASE_FORMAT, "false").strip().lower() == "true"
        return f"{PARTITION_METAFILE}.{self.base_format.extension}" if in_base_format else PARTITION_METAFILE

    @property
    def names_columns(self) -> bool | None:
        """Whether folders are named column=value; None where the settings do not state it, and the names show it."""
        return self.hive_style if self.hive_style or keys.HIVE_STYLE in self.raw else None

    @property
    def formatted_times(self) -> frozenset[str]:
        """Partition fields whose folder names are times formatted by the key generator."""
        if self.key_generator == keys.TIMESTAMP_KEY_GENERATOR:
            return frozenset(self.partition_fields)
        declared = self.raw.get(keys.PARTITION_FIELDS, "").split(",")
        pairs = (field.strip().partition(":") for field in declared)
        return frozenset(name for name, _, kind in pairs if kind.upper() == keys.TIMESTAMP_KEY_GENERATOR)

    @property
    def dropped_columns(self) -> tuple[str, ...]:
        """The partition columns that files do not contain: their values are in the partition paths only."""
        return self.partition_fields if self.drop_partition_columns else ()

    @classmethod
    def parse(cls, properties: Mapping[str, str], path: str = keys.PROPERTIES_PATH) -> TableConfig:
        """Parses the properties of a file. TableVersionError for an unknown version, FormatError naming the key."""
        read = PropertyReader(properties, path)
        version = read.value(keys.VERSION, int, 0)
        properties_of = _VERSIONS.get(version)
        if properties_of is None:
            known = ", ".join(map(str, _VERSIONS))
            problem = f"table {properties.get(keys.NAME)} has version {version}; skep reads versions {known}"
            raise TableVersionError.of_file(path, problem, found=version, expected=known)
        expected = properties_of.layout_version
        layout_version = read.value(keys.LAYOUT_VERSION, int, expected)
        if layout_version not in (expected, *properties_of.read_as_layout):
            problem = f"table version {version} goes with timeline layout {expected}, not {layout_version}"
            raise TableVersionError.of_file(path, problem, found=layout_version, expected=expected)
        name = properties.get(keys.NAME, "")
        if not name:
            raise FormatError(f"{path} has no {keys.NAME}", path=path, expected=keys.NAME)
        table_type = read.value(keys.TYPE, one_of(TableType), TableType.COPY_ON_WRITE)
        precombine = read.value(keys.PRECOMBINE_FIELD, comma_list, NO_FIELDS)
        ordering = read.value(keys.ORDERING_FIELDS, comma_list, precombine)
        payload = properties.get(keys.PAYLOAD_CLASS) or None
        strategy = properties.get(keys.MERGE_STRATEGY_ID) if properties_of.states_merge_mode else None
        mode = _merge_mode(read, version, table_type, payload, bool(ordering))
        return cls(
            name=name,
            type=table_type,
            database=properties.get(keys.DATABASE) or None,
            version=version,
            base_format=read.value(keys.BASE_FORMAT, one_of(BaseFormat), BaseFormat.PARQUET),
            record_key_fields=read.value(keys.RECORD_KEY_FIELDS, comma_list, NO_FIELDS),
            partition_fields=read.value(keys.PARTITION_FIELDS, plain_fields, NO_FIELDS),
            typed_partition_fields=read.value(keys.PARTITION_FIELDS, typed_fields, NO_FIELDS),
            ordering_fields=ordering,
            key_generator=key_generator_of(properties),
            payload_class=payload,
            legacy_payload_class=properties.get(keys.LEGACY_PAYLOAD_CLASS) or None,
            merge_mode=mode,
            merge_strategy_id=strategy or keys.STRATEGY_OF_MODE[mode],
            partial_update_mode=read.value(keys.PARTIAL_UPDATE_MODE, _PARTIAL_UPDATE_MODE, None),
            hive_style=read.value(keys.HIVE_STYLE, boolean, False),
            url_encode=read.value(keys.URL_ENCODE, boolean, False),
            populate_meta_fields=read.value(keys.POPULATE_META_FIELDS, boolean, True),
            drop_partition_columns=read.value(keys.DROP_PARTITION_COLUMNS, boolean, False),
            timezone=read.value(keys.TIMEZONE, one_of(TimelineZone), TimelineZone.LOCAL),
            cdc_enabled=read.value(keys.CDC_ENABLED, boolean, False),
            cdc_mode=read.value(keys.CDC_MODE, one_of(CdcMode), CdcMode.DATA_BEFORE_AFTER),
            metadata_partitions=read.value(keys.METADATA_PARTITIONS, comma_list, NO_FIELDS),
            create_schema=properties.get(keys.CREATE_SCHEMA) or None,
            raw=dict(properties),
        )

    def to_properties(self) -> dict[str, str]:
        """The properties in the keys of this table version: `raw`, updated by typed settings that differ from it."""
        stated = self._stated()
        before = TableConfig.parse(self.raw)._stated() if keys.VERSION in self.raw else {}
        kept = {key: text for key, text in self.raw.items() if key in stated or key not in before}
        changed = {key: text for key, text in stated.items() if before.get(key) != text}
        return with_checksum({**kept, **changed})

    def _stated(self) -> dict[str, str]:
        """Every typed setting as its property, for the keys that the table version has."""
        stated = {
            keys.NAME: self.name,
            keys.DATABASE: self.database or "",
            keys.TYPE: self.type.value,
            keys.VERSION: str(self.version),
            keys.LAYOUT_VERSION: str(self.layout_version),
            keys.BASE_FORMAT: self.base_format.value,
            keys.RECORD_KEY_FIELDS: ",".join(self.record_key_fields),
            keys.PARTITION_FIELDS: ",".join(self.partition_fields),
            keys.TIMEZONE: self.timezone.value,
            keys.POPULATE_META_FIELDS: str(self.populate_meta_fields).lower(),
            keys.HIVE_STYLE: str(self.hive_style).lower(),
            keys.URL_ENCODE: str(self.url_encode).lower(),
            keys.DROP_PARTITION_COLUMNS: str(self.drop_partition_columns).lower(),
            keys.METAFILE_AS_BASE_FORMAT: "false",
            keys.CDC_ENABLED: str(self.cdc_enabled).lower(),
            keys.CDC_MODE: self.cdc_mode.value if self.cdc_enabled else "",
            keys.METADATA_PARTITIONS: ",".join(self.metadata_partitions),
            keys.CREATE_SCHEMA: self.create_schema or "",
            **_VERSIONS[self.version].properties(self),
        }
        return {key: text for key, text in stated.items() if text or key in _VERSIONS[self.version].written_empty}


def _merge_mode(read: PropertyReader, version: int, kind: TableType, payload: str | None, ordering: bool) -> MergeMode:
    by_ordering = MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING
    if _VERSIONS[version].states_merge_mode:
        by_strategy = keys.MODE_OF_STRATEGY.get(read.value(keys.MERGE_STRATEGY_ID, str, ""))
        by_payload = mode_of_payload(payload) if payload else by_strategy
        return read.value(keys.MERGE_MODE, one_of(MergeMode), by_payload or by_ordering)
    if payload:
        return mode_of_payload(payload)
    # A copy-on-write table of this version names no payload; a merge-on-read one without it has its release's default.
    return by_ordering if kind is TableType.COPY_ON_WRITE else MergeMode.COMMIT_TIME_ORDERING


def _version_6(config: TableConfig) -> dict[str, str]:
    return {
        keys.ARCHIVE_FOLDER: "archived",
        keys.PRECOMBINE_FIELD: ",".join(config.ordering_fields),
        keys.KEY_GENERATOR_CLASS: keys.CLASS_OF_KEY_GENERATOR.get(config.key_generator or "", ""),
        keys.PAYLOAD_CLASS: config.payload_class or (keys.PAYLOAD_OF_MODE[config.merge_mode] if config.is_mor else ""),
        # Hudi 0.15 writes this one strategy whatever the payload class is, and uses the class.
        keys.LEGACY_MERGE_STRATEGY_ID: keys.STRATEGY_OF_MODE[MergeMode.EVENT_TIME_ORDERING] if config.is_mor else "",
    }


def _version_8(config: TableConfig) -> dict[str, str]:
    return {
        **_layout_2(config),
        keys.PRECOMBINE_FIELD: ",".join(config.ordering_fields),
        keys.PAYLOAD_CLASS: config.payload_class or keys.PAYLOAD_OF_MODE[config.merge_mode],
        keys.MERGE_STRATEGY_ID: config.merge_strategy_id or keys.STRATEGY_OF_MODE[config.merge_mode],
    }


def _version_9(config: TableConfig) -> dict[str, str]:
    custom = config.merge_mode is MergeMode.CUSTOM
    return {
        **_layout_2(config),
        keys.TABLE_FORMAT: "native",
        keys.ORDERING_FIELDS: ",".join(config.ordering_fields),
        keys.PAYLOAD_CLASS: config.payload_class or "",
        keys.LEGACY_PAYLOAD_CLASS: config.legacy_payload_class or "",
        keys.MERGE_STRATEGY_ID: (config.merge_strategy_id or "") if custom else "",
        keys.PARTIAL_UPDATE_MODE: config.partial_update_mode.value if config.partial_update_mode else "",
    }


def _layout_2(config: TableConfig) -> dict[str, str]:
    return {
        keys.INITIAL_VERSION: str(config.version),
        keys.TIMELINE_PATH: "timeline",
        keys.HISTORY_PATH: "history",
        keys.ARCHIVE_FOLDER: "history",
        keys.PARTITION_FIELDS: ",".join(config.typed_partition_fields or config.partition_fields),
        keys.MULTIPLE_BASE_FORMATS: "false",
        keys.KEY_GENERATOR_TYPE: config.key_generator or "",
        keys.MERGE_MODE: config.merge_mode.value,
    }


@dataclass(frozen=True, slots=True)
class _VersionProperties:
    """The properties of one table version. `states_merge_mode`: they name the merge mode and strategy.

    `written_empty` are the keys that are written without a value, too. `read_as_layout`: timeline layouts that are read
    as its own.
    """

    layout_version: int
    states_merge_mode: bool
    properties: Callable[[TableConfig], dict[str, str]]
    written_empty: frozenset[str]
    read_as_layout: tuple[int, ...] = ()


# In timeline layout 0 the file of an instant is renamed from state to state; in layout 1 there is one for each.
_OLDER: Final = _VersionProperties(1, False, _version_6, frozenset(), read_as_layout=(0,))
_VERSIONS: Final[Mapping[int, _VersionProperties]] = {
    **dict.fromkeys(OLDER_TABLE_VERSIONS, _OLDER),
    6: _VersionProperties(1, False, _version_6, frozenset({keys.DATABASE, keys.PARTITION_FIELDS})),
    8: _VersionProperties(2, True, _version_8, frozenset({keys.PARTITION_FIELDS})),
    9: _VersionProperties(2, True, _version_9, frozenset({keys.PARTITION_FIELDS})),
}


def table_checksum(name: str, database: str | None) -> str:
    """CRC32 over `<database>.<name>`, as `hoodie.table.checksum` holds it."""
    return str(zlib.crc32(f"{database or ''}.{name}".encode()))


def with_checksum(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the checksum that belongs to their table and database name."""
    return {**properties, keys.CHECKSUM: table_checksum(properties.get(keys.NAME, ""), properties.get(keys.DATABASE))}
