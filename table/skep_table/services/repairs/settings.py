"""A table's settings changed, replaced or recovered by hand; what its files or its rows depend on is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from skep_format.errors import FormatError, InputError, TableVersionError
from skep_format.options import Options
from skep_format.properties import parse_properties
from skep_format.storage import Storage, open_storage
from skep_format.table_config import TableConfig, update_table_config, with_checksum
from skep_format.table_config.file import read_settings, restore_settings
from skep_format.table_config.keys import (
    ARCHIVE_FOLDER,
    BACKUP_PATH,
    BASE_FORMAT,
    CHECKSUM,
    DROP_PARTITION_COLUMNS,
    HISTORY_PATH,
    HIVE_STYLE,
    INITIAL_VERSION,
    KEY_GENERATOR_CLASS,
    KEY_GENERATOR_TYPE,
    LAYOUT_VERSION,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    PARTITION_FIELDS,
    POPULATE_META_FIELDS,
    PROPERTIES_PATH,
    RECORD_KEY_FIELDS,
    TIMELINE_PATH,
    TIMEZONE,
    TYPE,
    URL_ENCODE,
    VERSION,
)
from skep_format.timeline.half_moved import refuse_half_moved
from skep_table.commit.writable import take_lock_over
from skep_table.context import TableContext
from skep_table.services.fsck.settings import has_timeline
from skep_table.table import HudiTable

_VERSIONED: Final = "skep upgrade and skep downgrade bring a table to another version"
_PLACES: Final = "the files of the timeline stay where they are, and would not be found"
_INDEXED: Final = "skep metadata and skep index make and drop what it names"
_OF_FILES: Final[Mapping[str, str]] = {
    TYPE: "skep alter table-type changes it",
    **dict.fromkeys((VERSION, INITIAL_VERSION, LAYOUT_VERSION), _VERSIONED),
    **dict.fromkeys((TIMELINE_PATH, HISTORY_PATH, ARCHIVE_FOLDER), _PLACES),
    TIMEZONE: "the instants of the timeline are in it",
    CHECKSUM: "it follows from the names of table and database",
    **dict.fromkeys((METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT), _INDEXED),
}
"""Settings that state how the table's files are: changed alone, they would be wrong."""
_OF_ROWS: Final = (
    *(RECORD_KEY_FIELDS, PARTITION_FIELDS, KEY_GENERATOR_CLASS, KEY_GENERATOR_TYPE, POPULATE_META_FIELDS, HIVE_STYLE),
    *(URL_ENCODE, BASE_FORMAT, DROP_PARTITION_COLUMNS),
)
"""Settings by which the rows that are there got their keys, their partitions and their files."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The properties of a table before and after a change."""

    before: Mapping[str, str]
    after: Mapping[str, str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self.before == self.after

    def properties(self) -> Iterator[tuple[str, str | None, str | None]]:
        """The name, the old and the new value of every property, by name."""
        for key in sorted({*self.before, *self.after}):
            yield key, self.before.get(key), self.after.get(key)


def change_settings(table: HudiTable, changes: Mapping[str, str | None], *, plan: bool = False) -> SettingsChange:
    """Sets properties, and removes those given as None. All others stay as they are.

    InputError for what states how the table's files are, and, in a table with commits, for another value of what its
    rows depend on: keys of later writes would not be those that are stored. What has no value yet may get one.
    """
    if plan:
        return _changed(table.reload(), changes)[0]
    with table.context.locked():
        change, differing = _changed(take_lock_over(table), changes)
        if not differing:
            return change
        table.context.lock.ensure_held()
        written = update_table_config(table.storage, differing)
    return SettingsChange(change.before, written.raw)


def _changed(table: HudiTable, changes: Mapping[str, str | None]) -> tuple[SettingsChange, dict[str, str | None]]:
    before = dict(table.config.raw)
    differing = {key: text for key, text in changes.items() if before.get(key) != text}
    for key, text in differing.items():
        if key in _OF_FILES:
            raise _refused(table.config.name, key, before.get(key), text, _OF_FILES[key])
        if key in _OF_ROWS and before.get(key) and len(table.timeline.data().completed()):
            why = (
                "rows were written by it; skep repair overwrite-hoodie-props replaces one that was wrong from the start"
            )
            raise _refused(table.config.name, key, before[key], text, why)
    merged = {key: text for key, text in {**before, **differing}.items() if text is not None}
    after = with_checksum(merged) if differing else merged
    TableConfig.parse(after, f"{table.storage.root}/{PROPERTIES_PATH}")
    return SettingsChange(before, after), differing


def overwrite_settings(context: TableContext, properties: Mapping[str, str], *, plan: bool = False) -> SettingsChange:
    """Replaces all properties by others, however damaged the file with the settings is.

    Where the settings are whole, what states how the table's files are has to be the same: InputError. The version that
    the table was made with stays, and the checksum is computed. TableVersionError for a table of another version than
    those that skep knows.
    """
    storage = context.storage
    with nullcontext() if plan else context.locked():
        found = _whole(storage, PROPERTIES_PATH) or _whole(storage, BACKUP_PATH)
        before = {} if found is None else found.raw
        kept = {INITIAL_VERSION: before[INITIAL_VERSION]} if INITIAL_VERSION in before else {}
        config = TableConfig.parse(with_checksum({**properties, **kept}), "the new settings")
        for key, why in _OF_FILES.items() if before else ():
            if before.get(key) != config.raw.get(key) and key != CHECKSUM:
                raise _refused(config.name, key, before.get(key), config.raw.get(key), why)
        table = HudiTable.with_settings(context, config)
        refuse_half_moved(storage, table.timeline, config.name)
        if not table.timeline.instants and has_timeline(storage):
            why = "a table of this version has its timeline elsewhere"
            raise _refused(config.name, VERSION, before.get(VERSION), config.raw.get(VERSION), why)
        change = SettingsChange(before, config.raw)
        if not plan and (not change.is_empty or storage.exists(BACKUP_PATH)):
            context.lock.ensure_held()
            restore_settings(storage, config)
    return change


def recover_settings(context: TableContext, *, plan: bool = False) -> SettingsChange:
    """Finishes a change of settings that was interrupted: the backup counts where the file itself is not whole.

    InputError where neither is.
    """
    storage = context.storage
    with nullcontext() if plan else context.locked():
        found = _whole(storage, PROPERTIES_PATH)
        whole = found or _whole(storage, BACKUP_PATH)
        if whole is None:
            raise InputError(
                f"table at {storage.root}: neither {PROPERTIES_PATH} nor its backup is whole",
                hint="skep fsck TABLE --repair finds what else states them; or: skep repair overwrite-hoodie-props",
                path=PROPERTIES_PATH,
            )
        change = SettingsChange({} if found is None else found.raw, whole.raw)
        if not plan:
            context.lock.ensure_held()
            if not change.is_empty:
                restore_settings(storage, whole)
            storage.delete(BACKUP_PATH)
    return change


def _whole(storage: Storage, path: str) -> TableConfig | None:
    """The settings in a file that is there and not cut. TableVersionError for a version that skep does not know."""
    try:
        found = read_settings(storage, path)
    except (FileNotFoundError, FormatError):
        return None
    except TableVersionError as error:
        if error.fields.get("found") == 0:  # none is stated: a part of the file
            return None
        raise
    return found if CHECKSUM in found.raw else None


def _refused(name: str, key: str, found: str | None, wanted: str | None, why: str) -> InputError:
    problem = f"{key} is {_shown(found)} and can't become {_shown(wanted)}: {why}"
    return InputError.of_table(name, problem, option=key, found=wanted, expected=found)


def _shown(text: str | None) -> str:
    return "not set" if text is None else repr(text)


def load_properties(path: str, options: Options) -> dict[str, str]:
    """The properties in a file, on this machine or in a storage. InputError where there is none."""
    folder, _, name = path.rpartition("/")
    try:
        data = open_storage(folder or ("/" if path.startswith("/") else "."), options).read(name)
    except FileNotFoundError as error:
        raise InputError(f"there is no file of properties {path}", path=path) from error
    return parse_properties(data, path)
