"""Files, file slices and file groups as values."""

from __future__ import annotations

from dataclasses import dataclass, replace

from skep_format.instant_time import InstantTime
from skep_format.names import BaseFileName, FileGroupId, LogFileName
from skep_format.storage import FileStatus


@dataclass(frozen=True, slots=True)
class BaseFile:
    """`path` is relative to the table's base."""

    path: str
    size_bytes: int
    name: BaseFileName

    @property
    def known_size(self) -> int | None:
        """The size in bytes for `Storage.open_input`; None where only the name is known.

        Base files never grow. Log files may, and what metadata states of their size need not be the size of the file.
        """
        return self.size_bytes if self.size_bytes > 0 else None


@dataclass(frozen=True, slots=True)
class LogFile:
    """`path` is relative to the table's base."""

    path: str
    size_bytes: int
    name: LogFileName


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A base file, or none yet, and the log files over it in the order in which they apply."""

    partition_path: str
    file_id: str
    base_instant: InstantTime
    base_file: BaseFile | None = None
    log_files: tuple[LogFile, ...] = ()

    @property
    def group(self) -> FileGroupId:
        """The file group that this slice is a version of."""
        return FileGroupId(self.partition_path, self.file_id)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The base file and the log files, without the partition path."""
        base = (str(self.base_file.name),) if self.base_file else ()
        return (*base, *(str(log.name) for log in self.log_files))

    @property
    def files(self) -> tuple[FileStatus, ...]:
        """The base file and the log files."""
        base = (self.base_file,) if self.base_file else ()
        return tuple(FileStatus(each.path, each.size_bytes, 0) for each in (*base, *self.log_files))

    @property
    def size_bytes(self) -> int:
        """The bytes of the base file and the log files."""
        return (self.base_file.size_bytes if self.base_file else 0) + sum(log.size_bytes for log in self.log_files)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """All committed slices of one file id, newest first, and what is going on with it.

    `pending_compaction` is the instant of a compaction that is planned or running, `pending_clustering` likewise;
    `replaced_by` the instant of the replace commit since which the group holds no rows of the table.
    """

    partition_path: str
    file_id: str
    slices: tuple[FileSlice, ...]
    pending_compaction: InstantTime | None = None
    pending_clustering: InstantTime | None = None
    replaced_by: InstantTime | None = None

    @property
    def is_free(self) -> bool:
        """Whether no service has a plan for it."""
        return self.pending_compaction is None and self.pending_clustering is None

    @property
    def latest(self) -> FileSlice | None:
        """The slice to read: logs that await a pending compaction lie over the slice that is to be compacted."""
        if not self.slices:
            return None
        newest = self.slices[0]
        if newest.base_instant != self.pending_compaction or len(self.slices) == 1:
            return newest
        previous = self.slices[1]
        return replace(previous, log_files=previous.log_files + newest.log_files)
