"""The archived timeline of one layout as that of the other: Avro entries of each file, and Parquet rows of instants.

Every instant is carried over, each once, in the order of time, with its plan. What an archive does not record is
derived as for the active timeline (`completion.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from skep_format.instant_time import CompletionTime, InstantTime
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
from skep_format.timeline.plans import PLAN_OF
from skep_table.services.options import ARCHIVE_BATCH
from skep_table.table import HudiTable
from skep_table.upgrade.instants import CompletionTimes

_BATCH: Final = 1_000
_PLANNED_AS: Final[Mapping[Action, Action]] = {
    Action.COMMIT: Action.COMPACTION,
    Action.DELTA_COMMIT: Action.LOG_COMPACTION,
}
_Key = tuple[InstantTime, Action]


def archive_to_history(table: HudiTable, target: TimelineLayout, times: CompletionTimes) -> None:
    """Writes the history of layout 2 of the archive of layout 1. Adds the archived writes to `times`."""
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
