"""Commit metadata as bytes and back: JSON in timeline layout 1, Avro in layout 2 (format guide 2.5 and 3.1).

Files of every release are read: unknown keys are ignored, missing and null ones have Java's defaults.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, TypeVar

from skep_format.errors import FormatError
from skep_format.timeline.metadata import BaseFilesWritten, CommitMetadata, WriteOperation, WriteStat, names_log
from skep_format.timeline.ocf import read_record, write_record
from skep_format.timeline.records import camel

T = TypeVar("T")

_AVRO_STAT: Final = {camel(each.name): each.name for each in fields(WriteStat)}
_OF_LOGS: Final = ("logVersion", "logOffset", "baseFile", "logFiles")
_SINCE_LAYOUT_2: Final = ("numUpdates", "totalLogReadTimeMs", "prevBaseFile")
_JSON_STAT: Final = {key: name for key, name in _AVRO_STAT.items() if key not in (*_OF_LOGS, *_SINCE_LAYOUT_2)}
_EXTRA: Final = b'"extraMetadata"'
_REQUIRED: Final = {"file_id": "", "path": "", "partition_path": ""}


def is_json(data: bytes) -> bool:
    """Whether commit metadata is in the encoding of layout 1; an empty file is in either."""
    return data.startswith(b"{")


def encode_json(metadata: CommitMetadata) -> bytes:
    """Encodes with the keys of Hudi 0.15.0, in its order."""
    return json.dumps(_document(metadata, _json_stat), ensure_ascii=False, separators=(",", ":")).encode()


def encode_avro(metadata: CommitMetadata, release: str) -> bytes:
    """Encodes in the schema of a Hudi release: HoodieReplaceCommitMetadata where file groups were replaced, otherwise
    HoodieCommitMetadata."""
    replaces = metadata.partition_to_replace_file_ids is not None
    kind = "HoodieReplaceCommitMetadata" if replaces else "HoodieCommitMetadata"
    # the schema's default is 1; Hudi's own files have null here
    return write_record(kind, release, {**commit_record(metadata), "version": None})


def commit_record(metadata: CommitMetadata) -> dict[str, Any]:
    """The Avro record: HoodieReplaceCommitMetadata where file groups were replaced, otherwise HoodieCommitMetadata."""
    return {**_document(metadata, _avro_stat), "version": 1}


@dataclass(frozen=True, slots=True)
class CommitCodec:
    """One encoding of commit metadata. `read`: the record in the bytes of an instant file, without members in an empty
    one. `read_extra`: the same, perhaps with nothing but the extra metadata: a commit may have very many stats.
    """

    read: Callable[[bytes, str], Any]
    read_extra: Callable[[bytes, str], Any]
    encode: Callable[[CommitMetadata, str], bytes]


def _read_json(data: bytes, _path: str) -> Any:
    return json.loads(data) if data else {}


def _read_json_extra(data: bytes, path: str) -> Any:
    """The stats come first in the file and are not parsed."""
    with contextlib.suppress(ValueError, RecursionError):
        # The rest from this key on parses only where the key is a member of the commit, not of a stat or inside a text.
        return {"extraMetadata": json.loads(b"{" + data[data.rindex(_EXTRA) :])["extraMetadata"]}
    return _read_json(data, path)


def _read_avro(data: bytes, path: str, members: Sequence[str] | None = None) -> Any:
    return read_record(data, path, members) if data else {}


def _encode_json(metadata: CommitMetadata, _release: str) -> bytes:
    return encode_json(metadata)


JSON: Final = CommitCodec(_read_json, _read_json_extra, _encode_json)
AVRO: Final = CommitCodec(_read_avro, partial(_read_avro, members=("extraMetadata",)), encode_avro)


def commit_of(read: Callable[[bytes, str], Any], data: bytes, path: str) -> CommitMetadata:
    """The metadata in an instant file; an empty file is empty metadata. FormatError naming `path`."""
    try:
        record = read(data, path)
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"no JSON: {error}") from error
    return metadata_of_record(record, path)


def part_of(of_record: Callable[[Any], T], read: Callable[[bytes, str], Any], data: bytes, path: str) -> T:
    """`partitions_of`, `base_files_of` an instant file: no stats are made of its record. FormatError naming `path`."""
    try:
        return of_record(read(data, path))
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise _broken(path, f"no commit: {error}") from error


def partitions_of(record: Any) -> tuple[str, ...]:
    """The sorted partition paths of the metadata in a record."""
    members = (record.get("partitionToWriteStats"), record.get("partitionToReplaceFileIds"))
    return tuple(sorted({partition for member in members for partition in member or ()}))


def base_files_of(record: Any) -> BaseFilesWritten:
    """The totals of base files of the metadata in a record."""
    written = [
        (stat.get("totalWriteBytes") or 0, stat.get("numWrites") or 0)
        for stats in (record.get("partitionToWriteStats") or {}).values()
        for stat in stats
        if not names_log(stat.get("path") or "", stat.get("logVersion"))
    ]
    return BaseFilesWritten(sum(size for size, _ in written), tuple(rows for _, rows in written))


def metadata_of_record(record: Any, path: str) -> CommitMetadata:
    """Converts a HoodieCommitMetadata or HoodieReplaceCommitMetadata record, such as a member of an archive entry."""
    try:
        replaced, operation = record.get("partitionToReplaceFileIds"), record.get("operationType")
        known = WriteOperation.__members__
        return CommitMetadata(
            partition_to_write_stats={
                partition: tuple(map(_stat, stats))
                for partition, stats in (record.get("partitionToWriteStats") or {}).items()
            },
            operation_type=None if operation is None else known.get(operation.upper(), WriteOperation.UNKNOWN),
            compacted=bool(record.get("compacted")),
            extra_metadata={
                key: value for key, value in (record.get("extraMetadata") or {}).items() if value is not None
            },
            partition_to_replace_file_ids=None if replaced is None else {k: tuple(v) for k, v in replaced.items()},
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise _broken(path, f"a member of the wrong type: {error}") from error


def _stat(record: Mapping[str, Any]) -> WriteStat:
    # Called once for each file that a commit wrote: the hot loop of decoding.
    given = {name: value for key, name in _AVRO_STAT.items() if (value := record.get(key)) is not None}
    if "log_files" in given:
        given["log_files"] = tuple(given["log_files"])
    return WriteStat(**(_REQUIRED | given))


def _json_stat(stat: WriteStat) -> dict[str, Any]:
    record = {key: getattr(stat, name) for key, name in _JSON_STAT.items()}
    record["tempPath"] = None
    if not stat.path:
        record["path"] = record["partitionPath"] = None
    if stat.log_version is not None:
        record |= {key: getattr(stat, _AVRO_STAT[key]) for key in _OF_LOGS}
        record["recordsStats"] = {"val": None}
    return record


def _avro_stat(stat: WriteStat) -> dict[str, Any]:
    record = {key: getattr(stat, name) for key, name in _AVRO_STAT.items()}
    if stat.log_files is not None:
        record["logFiles"] = list(stat.log_files)  # fastavro reads a tuple as a union's branch and value
    if not stat.path:
        record["path"] = record["partitionPath"] = None
    return record


def _document(metadata: CommitMetadata, stat_record: Callable[[WriteStat], dict[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [stat_record(stat) for stat in stats]
            for partition, stats in metadata.partition_to_write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra_metadata),
        "operationType": metadata.operation_type.value if metadata.operation_type else None,
    }
    replaced = metadata.partition_to_replace_file_ids
    if replaced is not None:
        record["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in replaced.items()}
    return record


def _broken(path: str, problem: str) -> FormatError:
    return FormatError(f"{path} is not readable commit metadata: {problem}", path=path, expected="commit metadata")
