"""The way from one version to another, and why a table can't go it as it is: by its settings, its pending instants, its
log files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from skep_format.distribution import OLDER_TABLE_VERSIONS
from skep_format.errors import CommitConflictError, InputError, UnsupportedError, VersionChangeError
from skep_format.storage import TimedStorage
from skep_format.table_config import MergeMode, TableConfig
from skep_format.table_config.keys import LEGACY_PAYLOAD_CLASS, TABLE_FORMAT
from skep_format.table_config.merging import replacement_of
from skep_format.timeline.instant import Action
from skep_format.timeline.layout import TimelineLayout
from skep_format.versions import MergeSource, TableFormat, format_of, known_versions
from skep_table.commit.concurrency.changes import is_clustering
from skep_table.commit.undo.recovery import refuse_active
from skep_table.table import HudiTable
from skep_table.upgrade.settings import settings_after
from skep_table.view import FileSlice


@dataclass(frozen=True, slots=True)
class VersionRoute:
    """From the settings of a table to those of another version. `moves`: the timeline has another layout there."""

    before: TableConfig
    after: TableConfig
    layout: TimelineLayout
    moves: bool

    @property
    def target(self) -> TableFormat:
        """The format of the new version."""
        return format_of(self.after)


def route_to(table: HudiTable, version: int) -> VersionRoute:
    """From a version that skep writes to another one. InputError for one that it does not write."""
    check_target(table, version)
    versions = known_versions()
    here, there = versions.index(table.config.version), versions.index(version)
    passed = versions[here + 1 : there + 1] if there > here else versions[there:here][::-1]
    after = settings_after(table.config, passed, table.options)
    layout = format_of(after).timeline_layout(after)
    return VersionRoute(table.config, after, layout, layout.folder != table.layout.folder)


def check_target(table: HudiTable, version: int) -> None:
    """InputError for a version that skep does not write."""
    versions = known_versions()
    if version not in versions:
        raise InputError(
            f"table {table.config.name} can't become version {version}",
            hint="Hudi before 1.0 downgrades to versions before 6" if version in OLDER_TABLE_VERSIONS else None,
            option="to",
            found=version,
            expected=f"one of {', '.join(map(str, versions))}",
        )


def other_layouts(table: HudiTable) -> list[TimelineLayout]:
    """The timelines that the table would have in other versions: where an interrupted change leaves files."""
    routes = [route_to(table, version) for version in known_versions()]
    return list({route.layout.folder: route.layout for route in routes if route.moves}.values())


def check_settings(table: HudiTable, target: TableFormat) -> None:
    """VersionChangeError where `target` has no form for a setting of the table."""
    config = table.config
    found = config.raw.get(TABLE_FORMAT, "native")
    if found != "native":
        raise _refused(table, target, f"its format is {found}, which has a timeline of its own", TABLE_FORMAT)
    if target.version < config.version:
        _check_downgrade(table, target)
    one_key = config.key_generator == "COMPLEX" and len(config.record_key_fields) == 1
    if one_key and format_of(config).prefixes_single_keys is not target.prefixes_single_keys:
        raise _refused(
            table,
            target,
            "key generator COMPLEX writes keys of one column as `value` before version 9 and as `column:value` from it"
            " on, and rows with keys of one form would not be found by those of the other",
            config.key_generator,
        )


def _check_downgrade(table: HudiTable, target: TableFormat) -> None:
    config = table.config
    stated = replacement_of(config.raw.get(LEGACY_PAYLOAD_CLASS))
    ordering = (stated.older_ordering if stated is not None else ()) or config.ordering_fields
    if len(ordering) > 1:
        columns = ", ".join(ordering)
        raise _refused(table, target, f"several ordering columns ({columns}) need version 9", columns)
    update = config.partial_update_mode
    if update is not None and (stated is None or stated.partial_update_mode is not update):
        raise _refused(table, target, f"partial update mode {update.value} needs version 9", update.value)
    has_class = bool(config.payload_class or config.raw.get(LEGACY_PAYLOAD_CLASS))
    by_class = target.merge_source is MergeSource.PAYLOAD_CLASS
    if by_class and config.merge_mode is MergeMode.CUSTOM and not has_class:
        raise _refused(
            table, target, "merge mode CUSTOM without payload class: version 6 merges by classes", config.merge_mode
        )


def _refused(table: HudiTable, target: TableFormat, why: str, found: object) -> VersionChangeError:
    return VersionChangeError(
        f"table {table.config.name} can't become version {target.version}: {why}",
        table=table.config.name,
        found=found,
        expected=f"a table that version {target.version} can hold",
    )


PLANS: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN)


def check_pending(table: HudiTable, *, plans_stay: bool = False) -> None:
    """CommitConflictError for a pending instant other than a clustering: what a writer or service is about to do.

    `plans_stay`: no other plan of a service is in the way, either.
    """
    pending = [i for i in table.timeline.pending().instants if not is_clustering(table, i)]
    if plans_stay:
        pending = [i for i in pending if i.action not in PLANS]
    refuse_active(table, pending)
    for instant in pending:
        raise table.error(
            CommitConflictError,
            f"{instant.action.value} {instant.requested_time} is pending, and the version of a table changes between"
            " writes",
            hint="an index that is being built is finished or dropped by Hudi first"
            if instant.action is Action.INDEXING
            else f"let it end, or: skep rollback TABLE {instant.requested_time}",
            instant=instant.requested_time,
        )


def slices_with_logs(table: HudiTable) -> Iterator[FileSlice]:
    """The latest slices that have log files: a compaction comes before a change of version."""
    view = table.view(metadata=False)
    for partition in view.partitions() if table.config.is_mor else ():
        for slice_ in view.slices(partition):
            if slice_.log_files:
                yield slice_


def check_old_logs(table: HudiTable, target: TableFormat) -> None:
    """UnsupportedError where older slices have log files that only completion times assign, and these get lost: storage
    keeps no times of files, or a log file began before the slice that it lies over.

    Hudi 1.x takes the modification time of the completed file for the completion time in timeline layout 1; without
    completion times a log file lies over the last base file before its requested time (`view/slicing.py`).
    """
    if not table.config.is_mor or not format_of(table.config).logs.of_delta_commit or target.logs.of_delta_commit:
        return
    keeps_times = isinstance(table.storage, TimedStorage)
    why = "it began before that slice" if keeps_times else f"storage {table.storage.root} keeps no times of files"
    view = table.view(metadata=False)
    for partition in view.partitions():
        for slice_ in view.all_slices(partition):
            for log in slice_.log_files:
                if not keeps_times or log.name.instant_time.is_before(slice_.base_instant):
                    raise table.error(
                        UnsupportedError,
                        f"a file slice has log file {log.path}, which only completion times assign to it, and version"
                        f" {target.version} would lose them: {why}",
                        hint="compact, then delete older slices: skep compact TABLE; skep clean TABLE --option"
                        " hoodie.cleaner.policy=KEEP_LATEST_FILE_VERSIONS"
                        " --option hoodie.cleaner.fileversions.retained=1",
                        path=log.path,
                    )
