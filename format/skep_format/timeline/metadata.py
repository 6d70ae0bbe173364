"""The metadata of a completed or inflight write: HoodieCommitMetadata and HoodieWriteStat.

Field names follow Hudi's JSON (format guide 2.5) in snake case; `timeline/codec.py` encodes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from skep_format.names import FileGroupId


class WriteOperation(str, Enum):
    """Hudi's WriteOperationType, as written in commit metadata."""

    INSERT = "INSERT"
    INSERT_PREPPED = "INSERT_PREPPED"
    UPSERT = "UPSERT"
    UPSERT_PREPPED = "UPSERT_PREPPED"
    BULK_INSERT = "BULK_INSERT"
    BULK_INSERT_PREPPED = "BULK_INSERT_PREPPED"
    DELETE = "DELETE"
    DELETE_PREPPED = "DELETE_PREPPED"
    DELETE_PARTITION = "DELETE_PARTITION"
    BOOTSTRAP = "BOOTSTRAP"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    CLUSTER = "CLUSTER"
    COMPACT = "COMPACT"
    LOG_COMPACT = "LOG_COMPACT"
    INDEX = "INDEX"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    BUCKET_RESCALE = "BUCKET_RESCALE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """One file that a commit wrote (Hudi: HoodieWriteStat). Sizes in bytes; `path` is relative to the base path.

    `log_version`, `log_offset`, `base_file` and `log_files` are set for log files only. `prev_commit` is the base
    instant of the previous slice, and the text "null" for a new file group; of a log file that of its slice, from
    version 8 on the delta commit itself. The fields are in the order in which Hudi 0.15.0 writes them.
    """

    file_id: str
    path: str
    cdc_stats: Mapping[str, int] | None = None
    prev_commit: str = "null"
    num_writes: int = 0
    num_deletes: int = 0
    num_update_writes: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    total_write_errors: int = 0
    partition_path: str
    total_log_records: int = 0
    total_log_files_compacted: int = 0
    total_log_size_compacted: int = 0
    total_updated_records_compacted: int = 0
    total_log_blocks: int = 0
    total_corrupt_log_block: int = 0
    total_rollback_blocks: int = 0
    file_size_in_bytes: int = 0
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: Mapping[str, int] | None = None
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    num_updates: int = 0
    total_log_read_time_ms: int = 0
    prev_base_file: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """The data files that it names: its own, and the change logs beside that."""
        return (*((self.path,) if self.path else ()), *(self.cdc_stats or ()))

    @property
    def is_log(self) -> bool:
        """Whether the file is a log file."""
        return names_log(self.path, self.log_version)


def runtime_stats(*, scan: float = 0, upsert: float = 0, create: float = 0) -> Mapping[str, int]:
    """`WriteStat.runtime_stats` of seconds: reading log files to be compacted, writing rows into a file group that is
    there, and writing a new one.
    """
    taken = {"totalScanTime": scan, "totalUpsertTime": upsert, "totalCreateTime": create}
    return {name: round(seconds * 1000) for name, seconds in taken.items()}


def names_log(path: str, log_version: int | None) -> bool:
    """Whether `path` is the path of a log file; `log_version` is that of its stat."""
    return log_version is not None or "/." in "/" + path


@dataclass(frozen=True, slots=True)
class BaseFilesWritten:
    """Totals of the base files of a write: bytes of all, rows of each."""

    size_bytes: int
    rows: tuple[int, ...]


def stats_by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """The stats of each partition, as commit metadata has them."""
    found: dict[str, list[WriteStat]] = {}
    for stat in stats:
        found.setdefault(stat.partition_path, []).append(stat)
    return {partition: tuple(of_partition) for partition, of_partition in found.items()}


def write_totals(stats: Sequence[WriteStat]) -> dict[str, int]:
    """Sums over written files: bytes, files that are new and of old file groups, partitions, rows and errors."""
    return {
        "bytes": sum(each.total_write_bytes for each in stats),
        "added": sum(each.prev_commit == "null" for each in stats),
        "updated": sum(each.prev_commit != "null" for each in stats),
        "partitions": len({each.partition_path for each in stats}),
        "written": sum(each.num_writes for each in stats),
        "updates": sum(each.num_update_writes for each in stats),
        "errors": sum(each.total_write_errors for each in stats),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The metadata of a write: stats of its files, operation, schema (Hudi: HoodieCommitMetadata).

    `partition_to_replace_file_ids` is set for replace commits only. `extra_metadata["schema"]` is the writer's Avro
    schema without meta columns.
    """

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    operation_type: WriteOperation | None = None
    compacted: bool = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] | None = None

    @property
    def schema_json(self) -> str | None:
        """The Avro schema of the written rows; None where none, or an empty text, is recorded."""
        return self.extra_metadata.get("schema") or None

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """The stats of all partitions."""
        return tuple(stat for stats in self.partition_to_write_stats.values() for stat in stats)

    @property
    def replaced(self) -> tuple[FileGroupId, ...]:
        """The file groups that a replace commit replaced."""
        ids = self.partition_to_replace_file_ids or {}
        return tuple(FileGroupId(path, file_id) for path, of_partition in ids.items() for file_id in of_partition)

    @property
    def base_files(self) -> BaseFilesWritten:
        """Totals of the written base files."""
        written = [stat for stat in self.stats if not stat.is_log]
        return BaseFilesWritten(sum(s.total_write_bytes for s in written), tuple(s.num_writes for s in written))

    @property
    def partitions(self) -> tuple[str, ...]:
        """Sorted paths of the partitions in which files were written or file groups replaced."""
        return tuple(sorted({*self.partition_to_write_stats, *(self.partition_to_replace_file_ids or ())}))
