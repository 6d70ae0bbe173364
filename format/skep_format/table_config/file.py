"""The file of a table's settings: read with its backup, made once, changed in one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skep_format.clock import SYSTEM_CLOCK, Clock
from skep_format.errors import AlreadyExistsError, CorruptFileError, FormatError, NotATableError, TableExistsError
from skep_format.names import META_FOLDER, PARTITION_METAFILE
from skep_format.properties import format_properties, parse_properties
from skep_format.storage import Storage
from skep_format.table_config.config import TableConfig, table_checksum, with_checksum
from skep_format.table_config.keys import (
    BACKUP_PATH,
    CHECKSUM,
    DATABASE,
    NAME,
    PROPERTIES_PATH,
    TIMELINE_FOLDER,
    VERSION,
)


def load_table_config(storage: Storage, clock: Clock = SYSTEM_CLOCK) -> TableConfig:
    """The settings of the table at the storage's root, from the backup where an update was interrupted.

    Raises NotATableError (with what was found), TableVersionError, and FormatError for a file that is damaged.
    """
    return TableConfig.parse(_load_properties(storage, clock), f"{storage.root}/{PROPERTIES_PATH}")


def read_settings(storage: Storage, path: str) -> TableConfig:
    """The settings in the file or in its backup, whichever `path` names; the other one is not read.

    FileNotFoundError, FormatError, TableVersionError.
    """
    return TableConfig.parse(_read_properties(storage, path), f"{storage.root}/{path}")


def restore_settings(storage: Storage, config: TableConfig) -> None:
    """Writes settings where the file is missing or damaged, and deletes its backup. Callers hold the table's lock."""
    storage.replace_atomic(PROPERTIES_PATH, format_properties(config.to_properties()))
    storage.delete(BACKUP_PATH)


def create_table_config(storage: Storage, config: TableConfig) -> TableConfig:
    """Makes the table's property file. TableExistsError where one is; of several creators one wins."""
    properties = config.to_properties()
    created = TableConfig.parse(properties, f"{storage.root}/{PROPERTIES_PATH}")
    try:
        storage.create_exclusive(PROPERTIES_PATH, format_properties(properties))
    except AlreadyExistsError as error:
        raise TableExistsError(f"there is a table at {storage.root} already", table=storage.root) from error
    return created


def update_table_config(
    storage: Storage, changes: Mapping[str, str | None], clock: Clock = SYSTEM_CLOCK
) -> TableConfig:
    """Sets properties, and removes those given as None; all others stay as they are. Callers hold the table's lock.

    An update that someone was interrupted in is finished first. The file is then replaced in one step, so that readers
    find the old settings or the new ones.
    """
    _recover(storage, clock)
    merged = {**_load_properties(storage, clock), **changes}
    properties = with_checksum({key: text for key, text in merged.items() if text is not None})
    changed = TableConfig.parse(properties, f"{storage.root}/{PROPERTIES_PATH}")  # refused before anything is written
    storage.replace_atomic(PROPERTIES_PATH, format_properties(properties))
    return changed


_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.1


def _load_properties(storage: Storage, clock: Clock) -> dict[str, str]:
    # An updater may delete one file and write the other between our two reads: retry a few times.
    for attempt in range(_ATTEMPTS):
        damage: FormatError | None = None
        for path in (PROPERTIES_PATH, BACKUP_PATH):
            try:
                return _read_properties(storage, path)
            except FileNotFoundError:
                continue
            except FormatError as error:
                damage = damage or error
        if damage is None and not storage.exists(META_FOLDER):
            break
        if attempt + 1 < _ATTEMPTS:
            clock.sleep(_PAUSE_SECONDS)
    raise damage or _not_a_table(storage)


def _read_properties(storage: Storage, path: str) -> dict[str, str]:
    """The properties in one of the two files; CorruptFileError without a name or with another name's checksum."""
    where = f"{storage.root}/{path}"
    properties = parse_properties(storage.read(path), where)
    if NAME not in properties:
        raise CorruptFileError(f"{where} is cut or empty: it has no {NAME}", path=where, expected=NAME)
    if VERSION not in properties and path == PROPERTIES_PATH:
        _check_unversioned(storage, where)
    expected = table_checksum(properties[NAME], properties.get(DATABASE))
    found = properties.get(CHECKSUM, expected)
    if found != expected:
        problem = f"{CHECKSUM} is {found}, and {expected} belongs to the names in the file"
        raise CorruptFileError.of_file(where, problem, found=found, expected=expected)
    return properties


def _check_unversioned(storage: Storage, where: str) -> None:
    """CorruptFileError where there is what tables that state no version, those of Hudi before 0.6, do not have."""
    for newer in (BACKUP_PATH, TIMELINE_FOLDER):
        if storage.exists(newer):
            raise CorruptFileError(
                f"{where} is cut: it has no {VERSION}, and there is {newer}", path=where, found=newer, expected=VERSION
            )


def _recover(storage: Storage, clock: Clock) -> None:
    if not storage.exists(BACKUP_PATH):
        return
    try:
        _read_properties(storage, PROPERTIES_PATH)
    except (FileNotFoundError, FormatError):
        storage.replace_atomic(PROPERTIES_PATH, format_properties(_load_properties(storage, clock)))
    storage.delete(BACKUP_PATH)


def _not_a_table(storage: Storage) -> NotATableError:
    found = storage.list_folder("")
    folders, files = found.folders, [file.name for file in found.files]
    names = [f"{name}/" for name in folders] + files
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    hint = None
    if PARTITION_METAFILE in files:
        depth = parse_properties(storage.read(PARTITION_METAFILE)).get("partitionDepth", "some")
        hint = f"this is a partition's folder; the table's base is {depth} level(s) up"
    elif "_delta_log" in folders:
        hint = "the folder contains a Delta Lake table"
    return NotATableError(
        f"no Hudi table at {storage.root}: {PROPERTIES_PATH} is missing; found {shown or 'nothing'}",
        hint=hint,
        table=storage.root,
        found=shown,
        expected=PROPERTIES_PATH,
    )
