"""Archiving: moves old instants into archive files, so that listing the timeline stays cheap (format guide 2.10).

An archive file is complete before any instant file is deleted. Commits are deleted oldest first, each with its
completed file last: at every moment the active timeline is the end of the whole one. What a crash left is archived
again, to the same effect.
"""

from __future__ import annotations

import io
import json
import logging
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import fastavro

from skep_table.avro_schemas import schema_of
from skep_table.commit.writable import prepared
from skep_table.errors import AlreadyExistsError
from skep_table.instant_time import BEFORE_ALL
from skep_table.logfile import BlockType, HeaderKey, format_block
from skep_table.names import LogFileName
from skep_table.services.archive_entry import archive_entry, keeps_content
from skep_table.services.archive_plan import ArchivePlan, check_archive_options, plan_archive
from skep_table.services.options import ARCHIVE_BATCH
from skep_table.storage import FileStatus
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.timeline import format_instant_time

_ENTRY: Final = "HoodieArchivedMetaEntry"
_CONTENT_VERSION: Final = 3
_ARCHIVE: Final = LogFileName("commits", BEFORE_ALL, 1, "1-0-1", extension="archive")

log = logging.getLogger("skep.archive")


def archive(table: HudiTable) -> ArchivePlan:
    """Moves the instants that may leave the active timeline. Returns which they were, and what keeps the others."""
    check_archive_options(table.options)
    with table.context.locked():
        table = prepared(table)
        plan = plan_archive(table)
        if not plan.instants:
            return plan
        path = move_to_archive(table, plan.instants)
    table.context.events.emit("archive", instants=len(plan.instants), file=path)
    log.info("table %s: %d instants archived in %s", table.config.name, len(plan.instants), path)
    return plan


def move_to_archive(table: HudiTable, instants: Sequence[Instant]) -> str:
    """Moves completed instants of any action, oldest first, into a new archive file, whose path it returns.

    For the holder of the table's lock, which has verified that nobody needs them on the timeline.
    """
    files = _files_of(table, instants)
    content = _content(table, [each for _, entries in files for each in entries])
    table.context.lock.ensure_held()
    path = _write(table, content)
    pending = [file.path for _, entries in files for state, file in entries if not state.is_completed]
    # A pending instant must not come back without its completion, nor be there longer than an older one.
    table.storage.delete_many(pending)
    completed = [table.layout.path(instant) for instant, _ in files]
    for done in completed:
        table.storage.delete(done, durable=False)
    table.storage.sync(completed)
    return path


_Entries = list[tuple[Instant, FileStatus]]


def _files_of(table: HudiTable, instants: Sequence[Instant]) -> list[tuple[Instant, _Entries]]:
    """The instants, each with its files in the order of their states."""
    layout = table.layout
    found: dict[tuple[str, Action], _Entries] = defaultdict(list)
    for file in table.storage.list_prefix(layout.folder):
        state = layout.parse(file.name)
        if state is not None:
            found[state.requested_time, state.action.completed_as].append((state, file))
    return [
        (instant, sorted(found[instant.requested_time, instant.action], key=lambda entry: entry[0].state.value))
        for instant in instants
    ]


def _content(table: HudiTable, entries: _Entries) -> bytes:
    """The bytes of an archive file: blocks of so many entries each."""
    schema = schema_of(_ENTRY, table.layout.release)
    parsed = fastavro.parse_schema(schema)
    headers = {HeaderKey.SCHEMA: json.dumps(schema)}

    def encode(entry: tuple[Instant, FileStatus]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, _record(table, *entry))
        return out.getvalue()

    records = table.context.runner.map(encode, entries)
    size = table.options.value(ARCHIVE_BATCH)
    batches = (records[at : at + size] for at in range(0, len(records), size))
    return b"".join(format_block(BlockType.AVRO_DATA, headers, b"".join(_framed(batch))) for batch in batches)


def _framed(records: Any) -> Iterator[bytes]:
    yield struct.pack(">ii", _CONTENT_VERSION, len(records))
    for record in records:
        yield struct.pack(">i", len(record))
        yield record


def _record(table: HudiTable, instant: Instant, file: FileStatus) -> dict[str, Any]:
    modified = datetime.fromtimestamp(file.modified_ms / 1000, timezone.utc)
    data = table.storage.read(file.path) if keeps_content(instant) else b""
    return archive_entry(table.layout, instant, data, file.path, format_instant_time(modified, table.config.timezone))


def _write(table: HudiTable, content: bytes) -> str:
    """A new archive file after all others."""
    folder = table.layout.archive_folder
    names = [LogFileName.parse(file.name) for file in table.storage.list_prefix(folder)]
    version = max((name.version for name in names if name and name.extension == "archive"), default=0)
    while True:
        version += 1
        name = LogFileName(_ARCHIVE.file_id, BEFORE_ALL, version, _ARCHIVE.write_token, extension=_ARCHIVE.extension)
        path = f"{folder}/{name}"
        try:
            table.storage.create_exclusive(path, content)
        except AlreadyExistsError:
            continue
        return path
