"""Writing the archive of layout 1: log files of Avro entries, one for each file of an instant (format guide 2.10)."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from skep_format.avro_schemas import schema_of
from skep_format.errors import AlreadyExistsError
from skep_format.instant_time import BEFORE_ALL
from skep_format.logfile import BlockType, HeaderKey, format_block
from skep_format.names import LogFileName
from skep_format.storage import FileStatus, Storage
from skep_format.timeline.archive import archive_files
from skep_format.timeline.archive_entry import archive_entry, keeps_content
from skep_format.timeline.archive_writer import ArchiveSetting, InstantFiles
from skep_format.timeline.instant import Instant
from skep_format.timeline.timeline import time_of_modification

_ENTRY: Final = "HoodieArchivedMetaEntry"
_CONTENT_VERSION: Final = 3
_ARCHIVE: Final = LogFileName("commits", BEFORE_ALL, 1, "1-0-1", extension="archive")


class LogWriter:
    """The archive of layout 1. Each call writes a file of its own; files are not merged."""

    def __init__(self, setting: ArchiveSetting) -> None:
        self._setting = setting

    def add(self, instants: Sequence[InstantFiles]) -> str:
        """A new file after all others, with the entries of all these files."""
        setting = self._setting
        records = setting.runner.map(self._record, [entry for each in instants for entry in each.files])
        content = archive_content(records, setting.layout.release, setting.block_entries)
        setting.check()
        return write_archive(setting.storage, setting.layout.archive_folder, content)

    def merge(self) -> None:
        """Nothing: an entry that was archived again replaces the older one for readers."""

    def _record(self, entry: tuple[Instant, FileStatus]) -> dict[str, Any]:
        instant, file = entry
        modified = time_of_modification(file.modified_ms, self._setting.zone)
        data = self._setting.storage.read(file.path) if keeps_content(instant) else b""
        return archive_entry(self._setting.layout, instant, data, file.path, modified)


def archive_content(records: Sequence[Mapping[str, Any]], release: str, block_entries: int) -> bytes:
    """The bytes of an archive file with these entries, in blocks of so many each."""
    import fastavro

    schema = schema_of(_ENTRY, release)
    parsed = fastavro.parse_schema(schema)
    headers = {HeaderKey.SCHEMA: json.dumps(schema)}

    def encode(record: Mapping[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        return out.getvalue()

    encoded = [encode(record) for record in records]
    batches = (encoded[at : at + block_entries] for at in range(0, len(encoded), block_entries))
    return b"".join(format_block(BlockType.AVRO_DATA, headers, b"".join(_framed(batch))) for batch in batches)


def write_archive(storage: Storage, folder: str, content: bytes) -> str:
    """Writes an archive file after all others, and returns its path."""
    last = max((name.version for _, name in archive_files(storage, folder)), default=0)
    for version in itertools.count(last + 1):
        path = f"{folder}/{replace(_ARCHIVE, version=version)}"
        with contextlib.suppress(AlreadyExistsError):
            storage.create_exclusive(path, content)
            break
    return path


def _framed(records: Any) -> Iterator[bytes]:
    yield struct.pack(">ii", _CONTENT_VERSION, len(records))
    for record in records:
        yield struct.pack(">i", len(record))
        yield record
