"""The instant files and the archived timeline of one layout as those of the other: names, encodings, completion times.

Of instant files nothing is written here. Plans and the results of services are Avro records in both layouts and stay as
they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import islice
from typing import Any, Final

from skep_format.errors import FormatError
from skep_format.instant_time import DIGITS, CompletionTime, InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName
from skep_format.storage import FileStatus
from skep_format.table_config import TimelineZone
from skep_format.timeline.archive import ArchivedEntry, ArchivedLog
from skep_format.timeline.archive_entry import archive_entry
from skep_format.timeline.archive_log_writer import archive_content, write_archive
from skep_format.timeline.codec import metadata_of_record
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.layout import TimelineLayout
from skep_format.timeline.lsm_files import current_manifest
from skep_format.timeline.lsm_history import LsmHistory
from skep_format.timeline.lsm_rows import HistoryRow, read_rows
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.ocf import write_record
from skep_format.timeline.plans import PLAN_OF, RequestedReplaceMetadata, decode_plan
from skep_format.timeline.timeline import time_of_modification
from skep_table.services.options import ARCHIVE_BATCH
from skep_table.table import HudiTable

_DIGITS_OF_MICROSECONDS: Final = "000"


def modification_of_time(time: CompletionTime, zone: TimelineZone) -> int:
    """The reverse of `time_of_modification`, in milliseconds. ValueError for a text that is no time of a calendar."""
    text = time[:DIGITS].ljust(DIGITS, "0")
    moment = datetime.strptime(text + _DIGITS_OF_MICROSECONDS, "%Y%m%d%H%M%S%f")
    aware = moment.replace(tzinfo=timezone.utc) if zone is TimelineZone.UTC else moment.astimezone()
    return round(aware.timestamp() * 1000)


@dataclass(slots=True)
class CompletionTimes:
    """Collects the writes of a timeline, oldest first, and bounds the times at which they completed.

    Those of timeline layout 1 are in no file, so they are derived (format guide 14.8). An instant completed when its
    completed file was modified. Copies of a table have later times, and some storage cuts times to seconds. What slices
    files holds in any case: an instant completed after it was requested, and before the next slice of a file group that
    it began was requested.
    """

    _slices: dict[FileGroupId, InstantTime] = field(default_factory=dict)
    _before: dict[InstantTime, InstantTime] = field(default_factory=dict)

    def add(self, requested: InstantTime, metadata: CommitMetadata) -> None:
        """A completed write: its slices end those before them."""
        for group in _new_slices(requested, metadata):
            earlier = self._slices.get(group)
            if earlier is not None:
                self._before[earlier] = min(self._before.get(earlier, requested), requested)
            self._slices[group] = requested

    def bounded(self, requested: InstantTime, found: CompletionTime) -> CompletionTime:
        """The completion time of an instant for which `found` was recorded."""
        end = self._before.get(requested)
        if end is not None and not found.is_before(CompletionTime(end)):
            found = CompletionTime(end.plus_milliseconds(-1))
        least = CompletionTime(requested.plus_milliseconds(1))
        return max(found, least)


def _new_slices(requested: InstantTime, metadata: CommitMetadata) -> Iterable[FileGroupId]:
    """The file groups in which a write began a slice: by a base file, or by a log file named by its own time."""
    for partition, stats in metadata.partition_to_write_stats.items():
        for stat in stats:
            name = stat.path.rpartition("/")[2]
            log = LogFileName.parse(name)
            if log.instant_time == requested if log is not None else BaseFileName.parse(name) is not None:
                yield FileGroupId(partition, stat.file_id)


log = logging.getLogger("skep.upgrade")


@dataclass(frozen=True, slots=True)
class MovedFile:
    """An instant file in its new place. `modified_ms`: the time that it is to have, None for any."""

    target: str
    data: bytes
    modified_ms: int | None = None


def moved_instants(table: HudiTable, target: TimelineLayout, times: CompletionTimes) -> list[MovedFile]:
    """The files of the active timeline in another layout, in the order of time. FormatError for an unreadable one.

    `times` has the archived writes already; those of the timeline are added.
    """
    files = _files(table)
    read = table.context.threads.map(lambda found: table.storage.read(found[1].path), files)
    contents = dict(zip((status.path for _, status in files), read, strict=True))
    clusterings = _clusterings(files, contents)
    commits: dict[str, CommitMetadata | None] = {}
    for instant, status in files:
        commits[status.path] = commit = _commit(table.layout, instant, contents[status.path], status.path)
        if commit is not None and instant.is_completed:
            times.add(instant.requested_time, commit)
    moved = []
    for instant, status in files:
        named = _named(table, instant, status, times, clusterings)
        commit = commits[status.path]
        data = contents[status.path] if commit is None else target.encode_commit(_of_kind(instant, commit))
        moved.append(MovedFile(target.path(named), data, _modified(table, named, target)))
    return moved


def instant_files(table: HudiTable, layout: TimelineLayout) -> list[str]:
    """The paths of the files in a layout's folder that name an instant."""
    return [file.path for file in table.storage.list_prefix(layout.folder) if layout.parse(file.name) is not None]


def _files(table: HudiTable) -> list[tuple[Instant, FileStatus]]:
    listed = table.storage.list_prefix(table.layout.folder)
    found = [(instant, file) for file in listed if (instant := table.layout.parse(file.name)) is not None]
    return sorted(found, key=lambda each: each[0].sort_key)


def _clusterings(files: Sequence[tuple[Instant, FileStatus]], contents: dict[str, bytes]) -> set[InstantTime]:
    """The clusterings among the replace commits, by their plans."""
    found = set()
    for instant, status in files:
        data = contents[status.path]
        if instant.action is Action.REPLACE_COMMIT and instant.state is State.REQUESTED and data:
            plan = decode_plan(RequestedReplaceMetadata, data, status.path)
            if plan.clustering_plan is not None:
                found.add(instant.requested_time)
    return found


def _named(
    table: HudiTable,
    instant: Instant,
    status: FileStatus,
    times: CompletionTimes,
    clusterings: set[InstantTime],
) -> Instant:
    """The instant as `target` names it."""
    if not instant.is_completed:
        is_clustering = instant.action is Action.REPLACE_COMMIT and instant.requested_time in clusterings
        return replace(instant, action=Action.CLUSTERING) if is_clustering else instant
    recorded = instant.completion_time or time_of_modification(status.modified_ms, table.config.timezone)
    if not table.layout.has_completion_times:
        recorded = times.bounded(instant.requested_time, recorded)
    return replace(instant, completion_time=recorded)


def _modified(table: HudiTable, named: Instant, target: TimelineLayout) -> int | None:
    if target.has_completion_times or named.completion_time is None:
        return None
    try:
        return modification_of_time(named.completion_time, table.config.timezone)
    except ValueError:  # a metadata table's, with more digits, or one that counts
        return None


def _commit(layout: TimelineLayout, instant: Instant, data: bytes, path: str) -> CommitMetadata | None:
    """The commit metadata in a file; None for a file that has none.

    FormatError for an unreadable completed file; what a write only planned is left out with a warning.
    """
    if instant.action.completed_as not in DATA_ACTIONS or instant.state is State.REQUESTED:
        return None
    if not data and not instant.is_completed:
        return None
    try:
        return layout.decode_commit(data, path)
    except FormatError as error:
        if instant.is_completed:
            raise
        log.warning("its content is left out: %s", error.message)
        return CommitMetadata()


def _of_kind(instant: Instant, commit: CommitMetadata) -> CommitMetadata:
    """A completed replace commit states what it replaces, be it nothing; no other file does."""
    if not instant.is_completed or instant.action is not Action.REPLACE_COMMIT:
        return replace(commit, partition_to_replace_file_ids=None)
    return (
        commit
        if commit.partition_to_replace_file_ids is not None
        else replace(commit, partition_to_replace_file_ids={})
    )


_BATCH: Final = 1_000
_PLANNED_AS: Final[Mapping[Action, Action]] = {
    Action.COMMIT: Action.COMPACTION,
    Action.DELTA_COMMIT: Action.LOG_COMPACTION,
}
_Key = tuple[InstantTime, Action]


def archive_to_history(table: HudiTable, target: TimelineLayout, times: CompletionTimes) -> None:
    """Writes the history of layout 2 of the archive of layout 1. Adds the archived writes to `times`.

    Every instant is carried over, each once, in the order of time, with its plan. What an archive does not record is
    derived as for the active timeline.
    """
    archive = ArchivedLog(table.storage, table.layout.archive_folder)
    entries: dict[_Key, dict[State, ArchivedEntry]] = {}
    for entry in archive.entries():
        key = entry.instant.requested_time, entry.instant.action.completed_as
        entries.setdefault(key, {})[entry.instant.state] = entry
    completed = sorted((key for key, states in entries.items() if State.COMPLETED in states))
    for key in completed:  # bounds come from later writes: all are read before the first is written
        if key[1] in DATA_ACTIONS:
            times.add(key[0], _archived_commit(archive, entries[key][State.COMPLETED]))
    rows = (_row(archive, entries[key], target, times) for key in completed)
    write_history(table, target, rows)


def _archived_commit(archive: ArchivedLog, entry: ArchivedEntry) -> CommitMetadata:
    record = archive.member(entry)
    return CommitMetadata() if record is None else metadata_of_record(record, str(entry.place))


def _row(
    archive: ArchivedLog, states: Mapping[State, ArchivedEntry], target: TimelineLayout, times: CompletionTimes
) -> HistoryRow:
    done = states[State.COMPLETED]
    instant = done.instant
    recorded = instant.completion_time or CompletionTime(instant.requested_time)
    instant = replace(instant, completion_time=times.bounded(instant.requested_time, recorded))
    if instant.action in DATA_ACTIONS:
        commit = _archived_commit(archive, done)
        replaces = commit.partition_to_replace_file_ids or {} if instant.action is Action.REPLACE_COMMIT else None
        data = target.encode_commit(replace(commit, partition_to_replace_file_ids=replaces))
    else:
        data = _record_bytes(archive, done, target) or b""
    requested = states.get(State.REQUESTED)
    return HistoryRow(instant, data, None if requested is None else _record_bytes(archive, requested, target))


def _record_bytes(archive: ArchivedLog, entry: ArchivedEntry, target: TimelineLayout) -> bytes | None:
    """The bytes of the file that an entry of the archive stands for; None where it keeps no plan or result."""
    kind = PLAN_OF.get((entry.instant.action, entry.instant.state))
    record = archive.member(entry) if kind is not None else None
    return None if record is None or kind is None else write_record(f"Hoodie{kind.__name__}", target.release, record)


def write_history(table: HudiTable, target: TimelineLayout, rows: Iterator[HistoryRow]) -> None:
    """Writes a new history of rows in the order of time, and merges its levels."""
    history = LsmHistory(
        table.storage,
        target.archive_folder,
        check=table.context.lock.ensure_held,
        release=target.release,
    )
    while batch := list(islice(rows, _BATCH)):
        history.add([row.instant for row in batch], batch)
        history.merge()


def history_to_archive(table: HudiTable, target: TimelineLayout) -> None:
    """Writes the archive of layout 1 of the history of layout 2."""
    entries = (entry for row in _history_rows(table) for entry in _entries(table.layout, row))
    while batch := list(islice(entries, _BATCH)):
        table.context.lock.ensure_held()
        content = archive_content(batch, target.release, table.options.value(ARCHIVE_BATCH))
        write_archive(table.storage, target.archive_folder, content)


def _entries(layout: TimelineLayout, row: HistoryRow) -> Iterator[dict[str, Any]]:
    """The entries of an instant: of its plan, where it has one, and of its completed file."""
    done, path = row.instant, f"{layout.archive_folder}, instant {row.instant.requested_time}"
    moved = str(done.completion_time or done.requested_time)
    if row.plan:
        planned = Instant(done.requested_time, _PLANNED_AS.get(done.action, done.action), State.REQUESTED)
        yield archive_entry(layout, planned, row.plan, path, moved)
    yield archive_entry(layout, done, row.metadata, path, moved)


def _history_rows(table: HudiTable) -> Iterator[HistoryRow]:
    """All rows in the order of time, each instant once. Of the rows only those of one file are in memory."""
    folder = table.layout.archive_folder
    files = sorted(current_manifest(table.storage, folder).files, key=lambda file: (file.low, file.level))
    seen: set[_Key] = set()
    for file in files:
        path = f"{folder}/{file.name}"
        columns = ("instantTime", "completionTime", "action", "metadata", "plan")
        found = read_rows(table.storage, path, columns).sort_by("instantTime").to_pylist()
        for row in found:
            done = None if row["completionTime"] is None else CompletionTime.parse(row["completionTime"], path=path)
            time = InstantTime.parse(row["instantTime"], path=path)
            instant = Instant(time, Action(row["action"]).completed_as, State.COMPLETED, done)
            if (time, instant.action) not in seen:
                seen.add((time, instant.action))
                yield HistoryRow(instant, row["metadata"] or b"", row["plan"])
