"""The archived timeline of one layout as that of the other: Avro entries of each file, and Parquet rows of instants.

Every instant is carried over, each once, in the order of time, with its plan. What an archive does not record is
derived as for the active timeline (`completion.py`).
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import fastavro

from skep_table.avro_schemas import schema_of
from skep_table.instant_time import BEFORE_ALL, CompletionTime, InstantTime
from skep_table.logfile import BlockType, HeaderKey, format_block
from skep_table.names import LogFileName
from skep_table.services.archive_entry import archive_entry
from skep_table.table import HudiTable
from skep_table.timeline.archive import ArchivedEntry, ArchivedLog
from skep_table.timeline.codec import metadata_of_record
from skep_table.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_table.timeline.layout import TimelineLayout
from skep_table.timeline.lsm_files import VERSION_FILE, HistoryFile, Manifest, current_manifest, file_name
from skep_table.timeline.lsm_rows import HistoryRow, read_rows, write_rows
from skep_table.timeline.metadata import CommitMetadata
from skep_table.timeline.ocf import write_record
from skep_table.timeline.plans import PLAN_OF
from skep_table.upgrade.completion import CompletionTimes

_BATCH: Final = 1_000
_ENTRY: Final = "HoodieArchivedMetaEntry"
_ENTRIES_OF_BLOCK: Final = 100
_CONTENT_VERSION: Final = 3
_PLANNED_AS: Final[Mapping[Action, Action]] = {
    Action.COMMIT: Action.COMPACTION,
    Action.DELTA_COMMIT: Action.LOG_COMPACTION,
}
_Key = tuple[InstantTime, Action]


def archive_to_history(table: HudiTable, target: TimelineLayout, times: CompletionTimes) -> list[str]:
    """Writes the history of layout 2 of the archive of layout 1. The paths written; adds the writes to `times`."""
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
    return write_history(table, target, rows)


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


def write_history(table: HudiTable, target: TimelineLayout, rows: Iterator[HistoryRow]) -> list[str]:
    """Writes a new history of rows in the order of time: its files, then the manifest that lists them."""
    folder, storage, written = target.archive_folder, table.storage, []
    manifest = Manifest(0, ())
    while batch := list(islice(rows, _BATCH)):
        low, high = batch[0].instant.requested_time, batch[-1].instant.requested_time
        # Files of a level above 0 are not merged again soon: an upgrade may bring many rows at once.
        name = file_name(low, high, 1)
        write_rows(storage, f"{folder}/{name}", batch, target.release)
        written.append(f"{folder}/{name}")
        size = storage.size(f"{folder}/{name}")
        manifest = Manifest(1, (*manifest.files, HistoryFile(name, low, high, 1, size)))
        table.context.lock.ensure_held()
    if manifest.files:
        for name, data in ((f"manifest_{manifest.number}", manifest.encode()), (VERSION_FILE, b"1")):
            storage.create_exclusive(f"{folder}/{name}", data)
            written.append(f"{folder}/{name}")
    return written


def history_to_archive(table: HudiTable, target: TimelineLayout) -> list[str]:
    """Writes the archive of layout 1 of the history of layout 2. The paths written."""
    entries = (entry for row in _history_rows(table) for entry in _entries(table.layout, row))
    schema = schema_of(_ENTRY, target.release)
    parsed = fastavro.parse_schema(schema)
    headers = {HeaderKey.SCHEMA: json.dumps(schema)}
    written: list[str] = []
    blocks = iter(lambda: list(islice(entries, _ENTRIES_OF_BLOCK)), [])
    for number, group in enumerate(iter(lambda: list(islice(blocks, _ENTRIES_OF_BLOCK)), []), start=1):
        name = LogFileName("commits", BEFORE_ALL, number, "1-0-1", extension="archive")
        data = b"".join(format_block(BlockType.AVRO_DATA, headers, _block(block, parsed)) for block in group)
        table.storage.create_exclusive(f"{target.archive_folder}/{name}", data)
        written.append(f"{target.archive_folder}/{name}")
        table.context.lock.ensure_held()
    return written


def _block(entries: Iterable[Mapping[str, Any]], schema: Any) -> bytes:
    records = []
    for entry in entries:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, entry)
        records.append(out.getvalue())
    framed = b"".join(struct.pack(">i", len(record)) + record for record in records)
    return struct.pack(">ii", _CONTENT_VERSION, len(records)) + framed


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
