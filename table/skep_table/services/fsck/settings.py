"""The table behind damaged settings: opened by their backup, or by what the table states elsewhere, for checks only.

That is stated in complete lines of the damaged file, in the settings of its metadata table, in the names of its
timeline, in a commit's schema, and in the rows of a base file. What nothing states, as how rows of one key merge, is
not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import read_base
from skep_format.errors import FormatError, NotATableError, SkepError, TableVersionError
from skep_format.escaping import unescape
from skep_format.names import META_FOLDER
from skep_format.properties import parse_properties
from skep_format.schema.avro import parse_avro
from skep_format.schema.types import META_FIELDS, PARTITION_PATH, RECORD_KEY, record_names
from skep_format.storage import FolderStorage, Storage
from skep_format.table_config import (
    METADATA_PARTITIONS,
    POPULATE_META_FIELDS,
    TableConfig,
    TableType,
    load_table_config,
    table_checksum,
)
from skep_format.table_config.file import read_settings
from skep_format.table_config.keys import (
    BACKUP_PATH,
    CHECKSUM,
    DATABASE,
    HIVE_STYLE,
    LAYOUT_VERSION,
    NAME,
    ORDERING_FIELDS,
    PARTITION_FIELDS,
    PRECOMBINE_FIELD,
    PROPERTIES_PATH,
    RECORD_KEY_FIELDS,
    TIMEZONE,
    TYPE,
    VERSION,
)
from skep_format.timeline.half_moved import refuse_half_moved
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.versions import DEFAULT, TableFormat, format_of, format_of_version, known_versions
from skep_table.context import TableContext
from skep_table.keys.generator import infer_key_generator
from skep_table.keys.text import value_text
from skep_table.metadata_table import FOLDER
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.table import HudiTable

_KEY: Final = re.compile(r"hoodie\.[a-zA-Z0-9._-]+")
_PREFIXED: Final = re.compile(r"(?:^|,)([^:,]+):")
_NEEDED: Final = (NAME, TYPE, VERSION, TIMEZONE, RECORD_KEY_FIELDS, PARTITION_FIELDS)
_SUFFIX: Final = "_metadata"
_SAMPLE_ROWS: Final = 4096
_COMMITS: Final = 16
_WRITES: Final = (WriteOperation.INSERT, WriteOperation.UPSERT, WriteOperation.BULK_INSERT, WriteOperation.DELETE)


@dataclass
class StatedSettings:
    """Properties that are stated somewhere, the first source counts; `sources` has where each was found.

    `formats` are those whose timeline is there; where several are, the version has to be stated.
    """

    formats: tuple[TableFormat, ...]
    properties: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, found: Mapping[str, str], source: str) -> None:
        """Adds what no earlier source has stated."""
        for key, text in found.items():
            if key not in self.properties:
                self.properties[key], self.sources[key] = text, source

    @property
    def lacking(self) -> tuple[str, ...]:
        """The keys without which the settings are not written again."""
        version = self.properties.get(VERSION)
        merging = next((_keys_of_merges(each) for each in self.formats if str(each.version) == version), ())
        return tuple(key for key in (*_NEEDED, *merging) if key not in self.properties)

    def config(self) -> TableConfig:
        """The settings, with what follows from them. FormatError for values that contradict each other."""
        parsed = TableConfig.parse({**self.properties, LAYOUT_VERSION: ""}, PROPERTIES_PATH)
        inferred = infer_key_generator(parsed.record_key_fields, parsed.partition_fields).value
        raw = {key: text for key, text in self.properties.items() if key not in (VERSION, LAYOUT_VERSION, CHECKSUM)}
        return replace(parsed, key_generator=parsed.key_generator or inferred, raw=raw)

    def for_checks(self) -> TableConfig:
        """Settings by which the files can be checked, however few are stated."""
        name, likely = self.properties.get(NAME) or "unnamed", self.formats[0].version
        stated = {VERSION: str(likely), **self.properties, NAME: name}
        try:
            return replace(self, properties=stated).config()
        except SkepError:
            return TableConfig(name=name, version=likely)


def stated_settings(storage: Storage, given: Mapping[str, str]) -> StatedSettings:
    """Everything that is stated; `given` counts before all of it."""
    formats = _formats(storage)
    stated = StatedSettings(formats or (DEFAULT,))
    stated.add(given, "given")
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        with suppress(FileNotFoundError):
            stated.add(_complete_lines(storage.read(path)), f"a line of {path}")
    with suppress(FileNotFoundError, SkepError):
        stated.add(_of_metadata_table(storage), "the metadata table")
    layout = _layout(stated.formats[0])
    instants = _instants(storage, layout)
    stated.add(_of_timeline(formats, instants), "the timeline")
    stated.add(_of_commits(storage, layout, instants), "commits and base files")
    return stated


def has_timeline(storage: Storage) -> bool:
    """Whether the folder holds instants of a table."""
    return bool(_formats(storage))


def _formats(storage: Storage) -> tuple[TableFormat, ...]:
    """Those whose timeline the folder has, the oldest first."""
    return tuple(each for each in map(format_of_version, known_versions()) if _instants(storage, _layout(each)))


def _layout(table_format: TableFormat) -> TimelineLayout:
    return table_format.timeline_layout(TableConfig(name="unnamed", version=table_format.version))


def _keys_of_merges(table_format: TableFormat) -> tuple[str, str]:
    """The properties by which tables of a version state how rows of one key merge."""
    ordered = TableConfig(name="unnamed", version=table_format.version, ordering_fields=("ts",)).to_properties()
    return ORDERING_FIELDS if ORDERING_FIELDS in ordered else PRECOMBINE_FIELD, table_format.merge_source.value


def _complete_lines(data: bytes) -> dict[str, str]:
    """Properties of lines that were not cut and have no strange bytes."""
    whole = data[: data.rfind(b"\n") + 1]
    lines = [line for line in whole.splitlines() if line.isascii() and line.decode("ascii").isprintable()]
    found = parse_properties(b"\n".join(lines))
    kept = {key: text for key, text in found.items() if _KEY.fullmatch(key)}
    try:
        TableConfig.parse({NAME: "x", **kept})
    except SkepError:
        kept = {key: text for key, text in kept.items() if _parses(key, text, kept.get(VERSION))}
    if CHECKSUM in kept and kept[CHECKSUM] != table_checksum(kept.get(NAME, ""), kept.get(DATABASE)):
        kept = {key: text for key, text in kept.items() if key not in (NAME, DATABASE)}
    kept.pop(CHECKSUM, None)
    return kept


def _parses(key: str, text: str, version: str | None) -> bool:
    """Whether a property alone is one that a table may have."""
    try:
        TableConfig.parse({NAME: "x", VERSION: version or "6", key: text})
    except SkepError:
        return False
    return True


def _of_metadata_table(storage: Storage) -> dict[str, str]:
    own = FolderStorage(storage, FOLDER)
    config = read_settings(own, PROPERTIES_PATH)
    found = {VERSION: str(config.version), TIMEZONE: config.timezone.value}
    if config.name.endswith(_SUFFIX):
        found[NAME] = config.name.removesuffix(_SUFFIX)
    partitions = [name for name in own.list_folder("").folders if name != META_FOLDER]
    return {**found, METADATA_PARTITIONS: ",".join(partitions)}


def _instants(storage: Storage, layout: TimelineLayout) -> list[Instant]:
    names = (file.name for file in storage.list_folder(layout.folder).files)
    return [instant for name in names if (instant := layout.parse(name)) is not None]


def _of_timeline(formats: Sequence[TableFormat], instants: Sequence[Instant]) -> dict[str, str]:
    actions = {instant.action for instant in instants}
    found = {VERSION: str(formats[0].version)} if len(formats) == 1 else {}
    if actions & {Action.DELTA_COMMIT, Action.COMPACTION, Action.LOG_COMPACTION}:
        found[TYPE] = TableType.MERGE_ON_READ.value
    return found


def _of_commits(storage: Storage, layout: TimelineLayout, instants: Sequence[Instant]) -> dict[str, str]:
    """Of the newest commits that can be read: the name in their schema, and what rows of a base file show."""
    found: dict[str, str] = {}
    for instant, commit in _commits(storage, layout, instants):
        if NAME not in found and (name := _name_of(commit)):
            found[NAME] = name
        if instant.action is Action.COMMIT and commit.operation_type in _WRITES:
            found[TYPE] = TableType.COPY_ON_WRITE.value  # other commits may be compactions, of merge-on-read tables
        for stat in commit.stats:
            if stat.path and not stat.is_log and stat.num_writes:
                with suppress(FileNotFoundError, SkepError):
                    rows = next(read_base(storage, stat.path, batch_rows=_SAMPLE_ROWS))
                    return {**found, **_of_rows(rows)}
    return found


def _commits(
    storage: Storage, layout: TimelineLayout, instants: Sequence[Instant]
) -> Iterator[tuple[Instant, CommitMetadata]]:
    completed = [each for each in instants if each.is_completed and each.action in DATA_ACTIONS]
    for instant in sorted(completed, key=lambda each: each.sort_key, reverse=True)[:_COMMITS]:
        path = layout.path(instant)
        with suppress(FileNotFoundError, FormatError):
            yield instant, layout.decode_commit(storage.read(path), path)


def _name_of(commit: CommitMetadata) -> str | None:
    """The table's name by the names that its Avro schema has."""
    if not commit.schema_json:
        return None
    try:
        schema = parse_avro(commit.schema_json)
    except SkepError:
        return None
    name = (schema.namespace or "").removeprefix("hoodie.")
    return name if name and record_names(name) == (schema.name, schema.namespace) else None


def _of_rows(rows: pa.RecordBatch) -> dict[str, str]:
    if RECORD_KEY not in rows.schema.names:
        return {POPULATE_META_FIELDS: "false"}
    found = {POPULATE_META_FIELDS: "true"}
    texts: dict[str, pa.Array] = {}
    for name in rows.schema.names:
        if name not in META_FIELDS:
            with suppress(SkepError, pa.ArrowException):
                texts[name] = value_text(rows.column(name), name)
    keys, paths = rows.column(RECORD_KEY), rows.column(PARTITION_PATH)
    fields = _PREFIXED.findall(keys[0].as_py() or "") if len(keys) else []
    named = [pc.binary_join_element_wise(f"{name}:", texts[name], "") for name in fields if name in texts]
    if fields and len(named) == len(fields) and keys.equals(pc.binary_join_element_wise(*named, ",")):
        found[RECORD_KEY_FIELDS] = ",".join(fields)
    elif len(same := [name for name, text in texts.items() if keys.equals(text)]) == 1:
        found[RECORD_KEY_FIELDS] = same[0]
    if len(paths):
        found.update(_of_path(paths, texts))
    return found


def _of_path(paths: pa.Array, texts: Mapping[str, pa.Array]) -> dict[str, str]:
    """The partition columns by the path of one file's rows; none where several columns may be meant."""
    path = paths[0].as_py() or ""
    if not path:
        return {PARTITION_FIELDS: ""}
    levels = path.split("/")
    hive = all("=" in level for level in levels)
    fields: list[str] = []
    for level in levels:
        name, _, value = level.partition("=") if hive else ("", "", level)
        among = [name] if hive else list(texts)
        known = ((each, pc.unique(texts[each]).to_pylist()) for each in among if each in texts)
        meant = [each for each, values in known if values in ([value], [unescape(value)])]
        if len(meant) != 1:
            return {}
        fields += meant
    return {PARTITION_FIELDS: ",".join(fields), HIVE_STYLE: "true" if hive else "false"}


@dataclass(frozen=True)
class DamagedTable:
    """A table for checks. `whole`: the settings that its file is to have; None where that can't be decided.

    `stated`: the settings that are found elsewhere, where no file holds them all.
    """

    table: HudiTable
    whole: TableConfig | None
    findings: list[FileFinding] = field(default_factory=list)
    stated: StatedSettings | None = None


def open_damaged(context: TableContext, given: Mapping[str, str] | None = None) -> DamagedTable:
    """Opens a table however damaged its settings are; `given` are settings that its administrator knows.

    NotATableError where there is no table, TableVersionError for a version that skep can't read.
    """
    storage = context.storage
    config, found = _settings(storage, PROPERTIES_PATH, Problem.SETTINGS)
    saved, problem = _settings(storage, BACKUP_PATH, Problem.BACKUP)
    findings = list(found)
    if storage.exists(BACKUP_PATH):
        detail = "an update of the settings was interrupted; the next one finishes it"
        findings += problem or [FileFinding(Problem.BACKUP, BACKUP_PATH, None, detail)]
    if config is None and not storage.exists(PROPERTIES_PATH) and saved is None and not has_timeline(storage):
        load_table_config(storage)  # names what is there instead
        raise NotATableError(f"no Hudi table at {storage.root}", table=storage.root)
    whole = config if config is not None and not found else saved
    if whole is not None:
        return DamagedTable(_opened(context, whole, findings), whole, findings)
    stated = stated_settings(storage, given or {})
    complete = None
    if stated.lacking:
        detail = f"nothing else in the table states {', '.join(stated.lacking)}: give them, as"
        detail += f" --property {stated.lacking[0]}=…"
        findings.append(FileFinding(Problem.SETTINGS, PROPERTIES_PATH, None, detail))
    else:
        try:
            complete = stated.config()
        except SkepError as error:
            findings.append(FileFinding(Problem.SETTINGS, PROPERTIES_PATH, None, error.message))
    return DamagedTable(_opened(context, config or stated.for_checks(), findings), complete, findings, stated)


def _settings(storage: Storage, path: str, problem: Problem) -> tuple[TableConfig | None, list[FileFinding]]:
    """What one of the two files holds, and what is wrong with it."""
    try:
        config = read_settings(storage, path)
    except TableVersionError:
        raise
    except UNREADABLE as error:
        return None, [FileFinding(problem, path, None, reason(error))]
    # What states no version, either, is as a file of version 0, or cut.
    if CHECKSUM not in config.raw and (format_of(config).has_checksum or VERSION not in config.raw):
        return config, [FileFinding(problem, path, None, f"it has no {CHECKSUM}: it may be cut")]
    return config, []


def _opened(context: TableContext, config: TableConfig, findings: list[FileFinding]) -> HudiTable:
    table = HudiTable.with_settings(context, config)
    try:
        refuse_half_moved(context.storage, table.timeline, config.name)
    except TableVersionError as error:
        findings.append(FileFinding(Problem.VERSION, str(error.fields.get("found", "")), None, error.message))
    return table
