"""The archived timeline of layout 1: log files of Avro entries, one for each instant file (format guide 2.10).

Read on first use. A first pass keeps the instant and the position of each entry; contents are read one by one.
"""

from __future__ import annotations

import functools
import io
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from skep_format.errors import CorruptFileError, FormatError, UnsupportedError
from skep_format.instant_time import BEFORE_ALL, CompletionTime, InstantTime
from skep_format.names import LogFileName
from skep_format.storage import Storage
from skep_format.timeline.codec import metadata_of_record
from skep_format.timeline.instant import DATA_ACTIONS, Action, Instant, State
from skep_format.timeline.metadata import CommitMetadata

if TYPE_CHECKING:
    from skep_format.logfile import LogBlock
    from skep_format.timeline.plans import Plan

_COMMIT_MEMBER: Final = "hoodieCommitMetadata"
MEMBER_OF: Final[Mapping[tuple[Action, State], str]] = {
    **{(action, state): _COMMIT_MEMBER for action in (Action.COMMIT, Action.DELTA_COMMIT) for state in State},
    (Action.COMPACTION, State.REQUESTED): "hoodieCompactionPlan",
    (Action.LOG_COMPACTION, State.REQUESTED): "hoodieCompactionPlan",
    (Action.REPLACE_COMMIT, State.REQUESTED): "hoodieRequestedReplaceMetadata",
    (Action.REPLACE_COMMIT, State.INFLIGHT): "HoodieInflightReplaceMetadata",
    (Action.REPLACE_COMMIT, State.COMPLETED): "hoodieReplaceCommitMetadata",
    (Action.CLEAN, State.REQUESTED): "hoodieCleanerPlan",
    (Action.CLEAN, State.INFLIGHT): "hoodieCleanerPlan",
    (Action.CLEAN, State.COMPLETED): "hoodieCleanMetadata",
    (Action.ROLLBACK, State.COMPLETED): "hoodieRollbackMetadata",
    (Action.SAVEPOINT, State.COMPLETED): "hoodieSavePointMetadata",
    (Action.INDEXING, State.COMPLETED): "hoodieIndexCommitMetadata",
}
"""The member of an entry with the content of a file of this action and state; entries of others keep none."""
_INT: Final = struct.Struct(">i")
_OF_EVERY_ENTRY: Final = ("commitTime", "actionType", "actionState", "stateTransitionTime", "version")
_ENTRY: Final = {
    "type": "record",
    "name": "HoodieArchivedMetaEntry",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in _OF_EVERY_ENTRY[:4]],
}


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    offset: int
    size: int
    schema: Any  # as fastavro has parsed it

    def __str__(self) -> str:
        return f"{self.path}, entry at {self.offset}"


@dataclass(frozen=True, slots=True)
class ArchivedEntry:
    """One file of an instant in the archive. A completed one has its completion time where the archive states it."""

    instant: Instant
    place: _Place


class ArchivedLog:
    """Completed instants that were archived from the active timeline of layout 1. It has no completion times.

    Releases of Hudi have put the files into several folders.
    """

    def __init__(self, storage: Storage, *folders: str) -> None:
        self._storage = storage
        self._folders = folders

    def __reduce__(self) -> tuple[object, ...]:
        return ArchivedLog, (self._storage, *self._folders)

    def reopened(self) -> ArchivedLog:
        return ArchivedLog(self._storage, *self._folders)

    def instants(self, since: InstantTime = BEFORE_ALL) -> tuple[Instant, ...]:
        found = (instant for instant in self._places if instant.requested_time.is_at_or_after(since))
        return tuple(sorted(found, key=lambda instant: instant.sort_key))

    def completion_time_of(self, requested_time: InstantTime) -> CompletionTime | None:  # noqa: ARG002
        return None

    def holding(self, text: str) -> tuple[Instant, ...]:
        """Instants whose archived content may contain `text`, oldest first; none that does is missing.

        Compares bytes: decoding every commit of the history would take a thousand times as long.
        """
        found, needle = [], text.encode()
        for path in self._paths():
            content = self._storage.read(path)
            if needle in content:
                found += [
                    instant
                    for instant, place in self._places.items()
                    if place.path == path and content.find(needle, place.offset, place.offset + place.size) >= 0
                ]
        return tuple(sorted(found, key=lambda instant: instant.sort_key))

    def completed_content(self, instant: Instant) -> CommitMetadata | Plan | None:
        """The content of the instant's completed file; None where the archive lacks the instant or its content."""
        place, member = self._places.get(instant), MEMBER_OF.get((instant.action, State.COMPLETED))
        if place is None or member is None:
            return None
        record = self._record(place).get(member)
        if record is None:
            return None
        if instant.action in DATA_ACTIONS:
            return metadata_of_record(record, str(place))
        from skep_format.timeline.plans import PLAN_OF
        from skep_format.timeline.records import from_record

        return from_record(PLAN_OF[instant.action, State.COMPLETED], record, str(place))

    def damages(self) -> Iterator[tuple[str, str]]:
        for path in self._paths():
            try:
                yield from ((path, torn) for torn in self._torn_blocks(path))
            except (FormatError, UnsupportedError) as error:
                yield path, error.message
            except FileNotFoundError:
                continue  # merged with others since the listing

    def _torn_blocks(self, path: str) -> Iterator[str]:
        """Bytes that are no block. FormatError where a block can't be read."""
        from skep_format.logfile import BlockType, read_blocks

        with self._storage.open_input(path) as file:
            for block in read_blocks(file, path):
                if block.type is BlockType.CORRUPT:
                    what = f"{block.size:,} bytes at byte {block.offset:,} are no block"
                    yield f"{what}: an archiver died there, and its instants are on the timeline, or they are lost"
                for entry in _entries_of(block):
                    self.member(entry)

    def entries(self) -> Iterator[ArchivedEntry]:
        """The entries of all states, in the order of the files. Contents are not read."""
        from skep_format.logfile import read_blocks

        for path in self._paths():
            with self._storage.open_input(path) as file:
                for block in read_blocks(file, path):
                    yield from _entries_of(block)

    def member(self, entry: ArchivedEntry) -> Any:
        """The record that an entry keeps of its file's content; None where it keeps none."""
        kept = (
            value
            for key, value in self._record(entry.place).items()
            if key not in _OF_EVERY_ENTRY and value is not None
        )
        return next(kept, None)

    def _record(self, place: _Place) -> dict[str, Any]:
        return _decode(self._storage.read_range(place.path, place.offset, place.size), place.schema, None, place)

    @functools.cached_property
    def _places(self) -> dict[Instant, _Place]:
        entries = (entry for entry in self.entries() if entry.instant.is_completed)
        return {replace(entry.instant, completion_time=None): entry.place for entry in entries}

    def _paths(self) -> list[str]:
        """The archive files, oldest first."""
        found = [each for folder in self._folders for each in archive_files(self._storage, folder)]
        return [path for path, _ in sorted(found, key=lambda archive: archive[1].sort_key)]


def archive_files(storage: Storage, folder: str) -> list[tuple[str, LogFileName]]:
    """The archive files in a folder: their paths and names."""
    names = ((file.path, LogFileName.parse(file.name)) for file in storage.list_prefix(folder))
    return [(path, name) for path, name in names if name is not None and name.extension == "archive"]


def _entries_of(block: LogBlock) -> Iterator[ArchivedEntry]:
    """The entries of a block. A block that a crash cut is skipped: its instant files still exist."""
    from skep_format.logfile import BlockType

    if block.type is not BlockType.AVRO_DATA:
        return
    schema = _parse_schema(block.schema_text, block.path)
    content = block.content().to_pybytes()
    for at, size in _entries(content, block):
        place = _Place(block.path, block.content_offset + at, size, schema)
        yield ArchivedEntry(_instant(_decode(content[at : at + size], schema, _ENTRY, place), place), place)


def _entries(content: bytes, block: LogBlock) -> Iterator[tuple[int, int]]:
    """Offset and size of each record. The block starts with a version and a count, each record with its size."""
    try:
        (count,) = _INT.unpack_from(content, _INT.size)
        at = 2 * _INT.size
        for _ in range(count):
            (size,) = _INT.unpack_from(content, at)
            at += _INT.size
            if size < 0 or at + size > len(content):
                raise struct.error(f"a record of {size} bytes at {at} of {len(content)}")
            yield at, size
            at += size
    except struct.error as error:
        problem = f"the block at {block.offset} is cut: {error}"
        raise CorruptFileError.of_file(block.path, problem, offset=block.offset) from error


@functools.lru_cache(maxsize=8)
def _parse_schema(text: str, path: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as error:  # not JSON, or not a schema
        raise FormatError.of_file(path, f"its schema is not readable: {error}") from error


def _decode(data: bytes, schema: Any, reader_schema: Any, place: _Place) -> dict[str, Any]:
    import fastavro

    try:
        record = fastavro.schemaless_reader(io.BytesIO(data), schema, reader_schema)
    except Exception as error:  # fastavro raises many types on damaged bytes
        raise CorruptFileError(f"{place} is not readable: {error}", path=place.path, offset=place.offset) from error
    if not isinstance(record, dict):
        raise FormatError(f"{place} is not a record", path=place.path, offset=place.offset)
    return record


def _instant(entry: Mapping[str, Any], place: _Place) -> Instant:
    try:
        time = InstantTime.parse(str(entry["commitTime"]), path=place.path)
        action, state = Action(entry["actionType"]), State[entry["actionState"] or State.COMPLETED.name]
    except (ValueError, KeyError) as error:
        raise FormatError(
            f"{place}: unknown action {entry['actionType']!r} or state {entry['actionState']!r}",
            path=place.path,
            found=entry["actionType"],
        ) from error
    if state is not State.COMPLETED:
        return Instant(time, action, state)
    moved = entry["stateTransitionTime"] or ""
    return Instant(time, action.completed_as, state, CompletionTime(moved) if moved.isdecimal() else None)
