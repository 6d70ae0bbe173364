"""Options of a write that concern the table: settings of a new one, and contradictions to an existing one.

A table keeps the settings that it was created with. Options may repeat them; those that contradict them are refused by
name, and those that are not given are the table's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from skep_format.errors import OptionError, TableMismatchError
from skep_format.names import BaseFormat
from skep_format.options import REGISTRY, Option, Options, Status, boolean, comma_list, one_of, option
from skep_format.schema.types import Schema
from skep_format.table_config import (
    USER_PROVIDED,
    TableConfig,
    TableType,
)
from skep_format.table_config.keys import (
    BOOTSTRAP_INDEX_CLASS,
    CDC_ENABLED,
    CDC_MODE,
    CHECKSUM,
    CREATE_SCHEMA,
    HISTORY_PATH,
    INITIAL_VERSION,
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_TYPE,
    LAYOUT_VERSION,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    TABLE_FORMAT,
    TIMELINE_PATH,
    TIMEZONE,
    CdcMode,
)
from skep_format.table_config.keys import PARTITION_FIELDS as TABLE_PARTITION_FIELDS
from skep_format.versions import DEFAULT, format_of, known_versions
from skep_table.commit.create import TableSpec
from skep_table.keys.generator import generator_name, generator_of
from skep_table.write.planning.merge_options import (
    MERGE_MODE,
    ORDERING,
    PAYLOAD,
    STRATEGY,
    deletes_rows,
    merge_differences,
    with_merging,
)

_no_names: tuple[str, ...] = ()
_own_names: Final[Mapping[str, str]] = MappingProxyType({})
_WRITE = "hoodie.datasource.write."


TABLE_NAME = option("hoodie.table.name", str, "", "The table's name", f"{_WRITE}table.name")
DATABASE_NAME = option("hoodie.database.name", str, "", "The table's database")
TABLE_TYPE = option(
    f"{_WRITE}table.type", one_of(TableType), TableType.COPY_ON_WRITE, "Type of a new table", "hoodie.table.type"
)
RECORD_KEY = option(
    f"{_WRITE}recordkey.field", comma_list, _no_names, "Columns that identify a row", "hoodie.table.recordkey.fields"
)
PARTITION_FIELDS = option(
    f"{_WRITE}partitionpath.field",
    comma_list,
    _no_names,
    "Columns whose values make the folders",
    f"{_WRITE}partitionpath.fields",
)
HIVE_STYLE = option(f"{_WRITE}hive_style_partitioning", boolean, False, "Folders named column=value")
URL_ENCODE = option(f"{_WRITE}partitionpath.urlencode", boolean, False, "Folder names are URL-encoded")
META_FIELDS = option(
    "hoodie.populate.meta.fields", boolean, True, "Rows have meta columns; false recomputes keys from their columns"
)
DROPS_PARTITION_COLUMNS = option(
    f"{_WRITE}drop.partition.columns", boolean, False, "Partition columns are in folder names only, and come as text"
)
CHANGES = option(CDC_ENABLED, boolean, False, "Each commit keeps what it changes, for CDC queries; of a new table")
CHANGES_HOLD = option(
    CDC_MODE, one_of(CdcMode), CdcMode.DATA_BEFORE_AFTER, "What is kept of a changed row: its key, or its images"
)
KEY_GENERATOR = option(
    f"{_WRITE}keygenerator.class",
    str,
    "",
    "Hudi's key generator class or its type, or the name of an entry point of group skep.key_generators",
    f"{_WRITE}keygenerator.type",
    "hoodie.bootstrap.keygen.class",
    "hoodie.bootstrap.keygen.type",
)


NEWEST: Final = "newest"
"""In place of a table version: the newest one, with what Hudi's writers make of a new table by default."""


def _known_version(text: str) -> int:
    word, known = text.strip().lower(), known_versions()
    if word == NEWEST:
        return max(known)
    if not word.isdecimal() or int(word) not in known:
        raise ValueError(f"one of {', '.join(map(str, known))}, {NEWEST}")
    return int(word)


TABLE_VERSION = option(
    "hoodie.write.table.version",
    _known_version,
    DEFAULT.version,
    f"The version of new tables; {NEWEST}: the newest one, with a metadata table as Hudi makes it by default",
    "hoodie.table.version",
)
AUTO_UPGRADE = option(
    "hoodie.write.auto.upgrade",
    boolean,
    False,
    "A write first upgrades the table to hoodie.write.table.version, where that is newer than the table's",
)
for _key, _doc in {
    "hoodie.write.complex.keygen.validation.enable": "no table gets a version in which its keys have another form",
    "hoodie.write.complex.keygen.new.encoding": "keys are written as those are that are there",
}.items():
    option(_key, str, "", _doc, status=Status.NO_EFFECT)


def _written_format(text: str) -> BaseFormat:
    found = one_of(BaseFormat)(text)
    if found is BaseFormat.HFILE:
        raise ValueError("PARQUET or ORC: rows in HFiles are not written, and Hudi does not read what it writes there")
    return found


BASE_FILE_FORMAT = option(
    "hoodie.table.base.file.format",
    _written_format,
    BaseFormat.PARQUET,
    "Format of a new table's base files: PARQUET or ORC",
    "hoodie.base.file.format",
)
LOGICAL_TIMESTAMPS = option(
    f"{_WRITE}keygenerator.consistent.logical.timestamp.enabled",
    boolean,
    False,
    "Timestamps in keys and paths are written as times, not as numbers",
)
_KIND: Final = "timestamp.type"
_TIMES: Final = {
    name: tuple(
        # Two keys, not one with an alias: tables keep the one that they were made with.
        option(prefix + name, str, "", "How partition values that are times become text")
        for prefix in ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
    )
    for name in (
        _KIND,
        "timestamp.scalar.time.unit",
        "input.dateformat",
        "input.dateformat.list.delimiter.regex",
        "input.timezone",
        "output.dateformat",
        "output.timezone",
        "timezone",
    )
}
option("hoodie.keygen.datetime.parser.class", str, "", "dates are parsed by their pattern", status=Status.NO_EFFECT)


SQL_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "primarykey": RECORD_KEY.key,
        "precombinefield": ORDERING.key,
        "orderingfields": ORDERING.key,
        "type": TABLE_TYPE.key,
        "payloadclass": PAYLOAD.key,
        "recordmergemode": MERGE_MODE.key,
        "recordmergestrategyid": STRATEGY.key,
    }
)
"""Hudi's words for settings in SQL, in lower case: what counts there is not their case."""
TYPE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"cow": TableType.COPY_ON_WRITE.value, "mor": TableType.MERGE_ON_READ.value}
)
# What a table keeps under another key than the option that states it.
_KEPT_AS: Final[Mapping[str, Option[Any]]] = {
    TABLE_PARTITION_FIELDS: PARTITION_FIELDS,
    KEY_GENERATOR_CLASS: KEY_GENERATOR,
    KEY_GENERATOR_TYPE: KEY_GENERATOR,
}
# What follows from how a table is made, or comes to be later.
_MADE: Final = (
    *(INITIAL_VERSION, LAYOUT_VERSION, TIMELINE_PATH, HISTORY_PATH, CHECKSUM, TIMEZONE, CREATE_SCHEMA, TABLE_FORMAT),
    *(METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, BOOTSTRAP_INDEX_CLASS),
)
_FIELDS_OF_SPEC: Final = (
    *(TABLE_NAME, DATABASE_NAME, TABLE_TYPE, RECORD_KEY, PARTITION_FIELDS, HIVE_STYLE, URL_ENCODE),
    *(KEY_GENERATOR, TABLE_VERSION, BASE_FILE_FORMAT),
)


def settings_among(properties: Mapping[str, object]) -> tuple[Options, dict[str, str]]:
    """Table properties as a caller gives them: settings as options, and the others, which are for the metastore.

    Settings are keys of Hudi and skep, and Hudi's words in SQL. OptionError for one that can't be chosen.
    """
    settings: dict[str, object] = {}
    others = {}
    for name, value in properties.items():
        known = SQL_NAMES.get(name.lower())
        if known is None and not name.startswith(("hoodie.", "skep.")):
            others[name] = str(value)
            continue
        if name in _MADE:
            raise OptionError(f"property {name} follows from how a table is made, it can't be given", option=name)
        if name in _KEPT_AS or REGISTRY.find(name) is KEY_GENERATOR:
            known = _KEPT_AS.get(name, KEY_GENERATOR).key
            value = generator_name(str(value)) if known == KEY_GENERATOR.key else value
        elif TABLE_TYPE in (REGISTRY.find(name), REGISTRY.find(known or "")):
            value = TYPE_WORDS.get(str(value).lower(), value)
        if settings.setdefault(known or name, value) != value:
            raise OptionError(f"{name}={value} contradicts another property: {settings[known or name]}", option=name)
    return Options(settings), others


def path_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Those among them by which partition values become folders: a table that Hudi made stores few of these.

    Hudi's SQL keeps them with the table's entry in the metastore.
    """
    times = {known.key for keys in _TIMES.values() for known in keys}
    return {
        key: text for key, text in properties.items() if key in times or (key == PARTITION_FIELDS.key and ":" in text)
    }


def stored_settings(options: Options) -> dict[str, str]:
    """Those among them that a new table keeps as they are: what writes and services read again."""
    known = ((key, text, REGISTRY.find(key)) for key, text in options.items())
    return {
        key: text
        for key, text, found in known
        if found not in _FIELDS_OF_SPEC and (found is not None or REGISTRY.in_family(key))
    }


def spec_of(options: Options, name: str, schema: Schema, others: Options | None = None) -> TableSpec:
    """A new table. OptionError for settings that don't go together.

    `others` are options of writes that decide about its metadata table where `options` do not.
    """
    _check_written(options)
    if deletes_rows(options):
        raise OptionError(
            f"{PAYLOAD.key}={options.value(PAYLOAD)} deletes rows by their keys: a new table has none",
            option=PAYLOAD.key,
        )
    generator = options.value(KEY_GENERATOR)
    properties = (
        *(LOGICAL_TIMESTAMPS.key, META_FIELDS.key, DROPS_PARTITION_COLUMNS.key),
        *(CHANGES.key, CHANGES_HOLD.key),
    )
    kept = {key: value for key, value in options.items() if ".keygen." in key or key in properties}
    if names_newest(options):
        fields = options.value(PARTITION_FIELDS)
        kept |= metadata_of_newest((others or Options()).with_values(options), fields)
    spec = TableSpec(
        name=name,
        database=options.value(DATABASE_NAME) or None,
        schema=schema,
        record_key=options.value(RECORD_KEY),
        partition_by=options.value(PARTITION_FIELDS),
        type=options.value(TABLE_TYPE),
        hive_style=options.value(HIVE_STYLE),
        url_encode=options.value(URL_ENCODE),
        base_format=options.value(BASE_FILE_FORMAT),
        key_generator=generator_name(generator) if generator else None,
        version=options.value(TABLE_VERSION),
        properties=kept,
    )
    return with_merging(spec, options)


def names_newest(options: Options) -> bool:
    """Whether the version is given as `newest`."""
    return options.is_set(TABLE_VERSION) and options[TABLE_VERSION.key].strip().lower() == NEWEST


def metadata_of_newest(options: Options, partition_fields: tuple[str, ...]) -> dict[str, str]:
    """The setting by which the next write makes the metadata table that Hudi 1.1 and later make on Spark; none where an
    option refuses it.
    """
    from skep_table.metadata_table.partitions import COLUMN_STATS, FILES, PARTITION_STATS  # other tables need none
    from skep_table.metadata_write.options import COLUMN_STATS_ENABLE, PARTITION_STATS_ENABLE
    from skep_table.table import METADATA_ENABLE

    def is_refused(known: Option[bool]) -> bool:
        return options.is_set(known) and not options.value(known)

    if is_refused(METADATA_ENABLE):
        return {}
    partitions = {FILES}
    if not is_refused(COLUMN_STATS_ENABLE):
        partitions.add(COLUMN_STATS)
        if partition_fields and not is_refused(PARTITION_STATS_ENABLE):
            partitions.add(PARTITION_STATS)
    return metadata_with(partitions)


def metadata_with(partitions: Collection[str]) -> dict[str, str]:
    """The setting by which the next write makes a metadata table with these partitions, which need no definition."""
    from skep_table.metadata_write.drop import naming_dropped

    return {key: text for key, text in naming_dropped(dict.fromkeys(partitions)).items() if text is not None}


def check_settings(config: TableConfig, root: str, options: Options, names: Mapping[str, str] = _own_names) -> None:
    """TableMismatchError for the first option that contradicts the table's own setting.

    `names` holds what the caller called an option (an argument, a flag) where that is not its key. What a table of an
    older version does not state is no contradiction: its upgrade needs it.
    """
    _check_written(options)
    for known, found, expected in _given_values(config, options):
        if expected != found and (format_of(config).is_written or _is_stated(config, known, found)):
            name = names.get(known.key, known.key)
            raise TableMismatchError(
                f"the table at {root} has {name} {_shown(found)}, not {_shown(expected)}",
                hint=f"leave out {name} to use the table as it is",
                option=name,
                found=found,
                expected=expected,
            )


def _is_stated(config: TableConfig, known: Option[Any], found: object) -> bool:
    is_default = known in (HIVE_STYLE, URL_ENCODE) and known.key not in config.raw
    return not is_default and found not in (None, (), "")


def _check_written(options: Options) -> None:
    """OptionError for settings of tables that can't be written."""
    options.value(TABLE_VERSION)
    options.value(BASE_FILE_FORMAT)


def _given_values(config: TableConfig, options: Options) -> Iterator[tuple[Option[Any], object, object]]:
    """(option, the table's value, the option's value), for those that are given."""
    facts: tuple[tuple[Option[Any], object], ...] = (
        (TABLE_NAME, config.name),
        (TABLE_TYPE, config.type),
        (RECORD_KEY, config.record_key_fields),
        (PARTITION_FIELDS, config.partition_fields),
        (HIVE_STYLE, config.hive_style),
        (URL_ENCODE, config.url_encode),
        (BASE_FILE_FORMAT, config.base_format),
        (META_FIELDS, config.populate_meta_fields),
        (DROPS_PARTITION_COLUMNS, config.drop_partition_columns),
        (CHANGES, config.cdc_enabled),
        *(((CHANGES_HOLD, config.cdc_mode),) if config.cdc_enabled else ()),
    )
    for known, found in facts:
        if options.is_set(known):
            wanted = options.value(known)
            if known is PARTITION_FIELDS:
                wanted = tuple(field.partition(":")[0] for field in wanted)
            yield known, found, wanted
    if config.database is not None and options.is_set(DATABASE_NAME):
        yield DATABASE_NAME, config.database, options.value(DATABASE_NAME)
    yield from _ways_to_paths(config, options)
    generator = generator_of(config)
    if options.is_set(KEY_GENERATOR) and generator is not None:
        yield KEY_GENERATOR, generator, generator_name(options.value(KEY_GENERATOR))
    yield from merge_differences(config, options)


def _ways_to_paths(config: TableConfig, options: Options) -> Iterator[tuple[Option[Any], object, object]]:
    """The same for settings by which values become paths and keys, where the table has stored them.

    Tables that Hudi made have stored some of them or none: the options have to state the others, with each write.
    """
    given = options.value(PARTITION_FIELDS)
    if any(":" in field for field in given):
        texts = (config.raw.get(key, "") for key in (PARTITION_FIELDS.key, TABLE_PARTITION_FIELDS))
        typed = next((comma_list(text) for text in texts if ":" in text), None)
        if typed is None and config.key_generator not in (None, "CUSTOM", USER_PROVIDED):
            every = "timestamp" if config.key_generator == "TIMESTAMP" else "simple"
            typed = tuple(f"{field}:{every}" for field in config.partition_fields)
        if typed is not None:
            yield PARTITION_FIELDS, _with_types(typed), _with_types(given)
    if LOGICAL_TIMESTAMPS.key in config.raw and options.is_set(LOGICAL_TIMESTAMPS):
        yield LOGICAL_TIMESTAMPS, boolean(config.raw[LOGICAL_TIMESTAMPS.key]), options.value(LOGICAL_TIMESTAMPS)
    stored = {
        name: next((config.raw[key.key] for key in keys if config.raw.get(key.key)), "")
        for name, keys in _TIMES.items()
    }
    for name, keys in _TIMES.items():
        for known in keys:
            # Where the kind is stored, so is all that the table was made with. Hudi 0.15 stores it in no table.
            if options.is_set(known) and (stored[name] or stored[_KIND]):
                yield known, stored[name], options.value(known)


def _with_types(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Partition fields with the types that they have: `at:timestamp`, and `simple` where none is given."""
    return tuple(f"{name}:{kind.lower() or 'simple'}" for name, _, kind in (field.partition(":") for field in fields))


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or "nothing"
    return str(value.value if isinstance(value, Enum) else value) or "nothing"
