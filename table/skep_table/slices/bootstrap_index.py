"""The bootstrap index as it is written: two HFiles, by file group and by partition (format guide 17.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from skep_format.hfile import HFileWriter
from skep_format.hfile.layout import Codec
from skep_format.names import META_FOLDER
from skep_format.storage import Storage
from skep_format.timeline.ocf import RecordWriter, write_record

_FOLDER: Final = f"{META_FOLDER}/.aux/.bootstrap"
_NAME: Final = "00000000-0000-0000-0000-000000000000-0_1-0-1_00000000000001.hfile"
BY_FILE: Final = f"{_FOLDER}/.fileids"
_BY_FILE_PATH: Final = f"{BY_FILE}/{_NAME}"
_BY_PARTITION_PATH: Final = f"{_FOLDER}/.partitions/{_NAME}"
_RELEASE: Final = "0.15.0"  # these records are the same in all
_AT_ONCE: Final = 512
_BLOCK_BYTES: Final = 128 << 20  # as HDFS has it: engines divide by it


@dataclass(frozen=True, slots=True)
class Mapped:
    """A skeleton and its source: the partition paths of both, and the full address of the source."""

    partition_path: str
    file_id: str
    source_partition: str
    uri: str
    size_bytes: int
    modified_ms: int

    @property
    def key(self) -> bytes:
        """In the file by file group."""
        return f"part={self.partition_path};fileid={self.file_id}".encode()

    @property
    def status(self) -> dict[str, Any]:
        """The source as Hadoop describes files."""
        return {
            "version": 1,
            "path": {"version": 1, "uri": self.uri},
            "length": self.size_bytes,
            "isDir": False,
            "blockReplication": 1,
            "blockSize": _BLOCK_BYTES,
            "modificationTime": self.modified_ms,
            "accessTime": self.modified_ms,
        }


def write_index(storage: Storage, base_path: str, files: Sequence[Mapped], now_ms: int) -> None:
    """Writes both HFiles, durably. Of many files the entries of few are held in memory."""
    by_file = RecordWriter("HoodieBootstrapFilePartitionInfo", _RELEASE)
    by_partition = RecordWriter("HoodieBootstrapPartitionMetadata", _RELEASE)
    partitions: dict[bytes, list[Mapped]] = {}
    for each in files:
        partitions.setdefault(f"part={each.partition_path}".encode(), []).append(each)
    _write(
        storage,
        _BY_PARTITION_PATH,
        ((key, by_partition.write(_of_partition(partitions[key]))) for key in sorted(partitions)),
        _info(base_path, len(partitions), now_ms),
    )
    _write(
        storage,
        _BY_FILE_PATH,
        ((each.key, by_file.write(_of_file(each))) for each in sorted(files, key=lambda each: each.key)),
        _info(base_path, len(files), now_ms),
    )
    storage.sync([_BY_PARTITION_PATH, _BY_FILE_PATH])


def delete_index(storage: Storage) -> None:
    """Deletes both, if they are there."""
    for path in (_BY_PARTITION_PATH, _BY_FILE_PATH):
        storage.delete(path)


def _of_partition(files: Sequence[Mapped]) -> dict[str, Any]:
    return {
        "version": 1,
        "bootstrapPartitionPath": files[0].source_partition,
        "partitionPath": files[0].partition_path,
        "fileIdToBootstrapFile": {each.file_id: each.status for each in files},
    }


def _of_file(file: Mapped) -> dict[str, Any]:
    return {
        "version": 1,
        "bootstrapPartitionPath": file.source_partition,
        "bootstrapFileStatus": file.status,
        "partitionPath": file.partition_path,
    }


def _info(base_path: str, count: int, now_ms: int) -> bytes:
    record = {"version": 1, "bootstrapBasePath": base_path, "createdTimestamp": now_ms, "numKeys": count}
    return write_record("HoodieBootstrapIndexInfo", _RELEASE, record)


def _write(storage: Storage, path: str, entries: Iterable[tuple[bytes, bytes]], info: bytes) -> None:
    left = iter(entries)
    with storage.open_write(path) as sink:
        writer = HFileWriter(sink, {"INDEX_INFO": info}, codec=Codec.NONE)
        while some := list(itertools.islice(left, _AT_ONCE)):
            keys, values = zip(*some, strict=True)
            writer.add(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
        writer.close()
