"""The table behind damaged settings: opened by their backup, or by what the table states elsewhere, for checks only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skep_format.errors import NotATableError, SkepError, TableVersionError
from skep_format.storage import Storage
from skep_format.table_config import CHECKSUM, TableConfig, load_table_config
from skep_format.table_config.file import read_settings
from skep_format.table_config.keys import BACKUP_PATH, PROPERTIES_PATH, VERSION
from skep_format.timeline.half_moved import refuse_half_moved
from skep_format.versions import format_of
from skep_table.context import TableContext
from skep_table.services.fsck.findings import UNREADABLE, FileFinding, Problem, reason
from skep_table.services.fsck.stated import StatedSettings, has_timeline, stated_settings
from skep_table.table import HudiTable


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
        findings.append(_explained(stated))
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


def _explained(stated: StatedSettings) -> FileFinding:
    lacking = ", ".join(stated.lacking)
    detail = f"nothing else in the table states {lacking}: give them, as --property {stated.lacking[0]}=…"
    return FileFinding(Problem.SETTINGS, PROPERTIES_PATH, None, detail)


def _opened(context: TableContext, config: TableConfig, findings: list[FileFinding]) -> HudiTable:
    table = HudiTable.with_settings(context, config)
    try:
        refuse_half_moved(context.storage, table.timeline, config.name)
    except TableVersionError as error:
        findings.append(FileFinding(Problem.VERSION, str(error.fields.get("found", "")), None, error.message))
    return table
