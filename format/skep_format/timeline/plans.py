"""Plans and results of table services: the contents of compaction, clustering, clean, rollback … instants.

One frozen class for each Avro record, named as Hudi names it without `Hoodie`, with its members in snake case (format
guide 2.6 to 2.9 and 12). `encode_plan` and `decode_plan` go from and to the bytes of an instant file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from skep_format.instant_time import BEFORE_ALL, InstantTime
from skep_format.names import FileGroupId, join
from skep_format.timeline.instant import Action, State
from skep_format.timeline.ocf import read_record, write_record
from skep_format.timeline.records import from_record, to_record

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantInfo:
    """An instant that a rollback or restore targets (Hudi: HoodieInstantInfo)."""

    commit_time: InstantTime
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInstant:
    """An instant with its state (Hudi: HoodieActionInstant)."""

    timestamp: InstantTime
    action: str
    state: str


class NamedSlice:
    """A file slice as plans name it: compactions by the names of its files, clusterings by their URIs."""

    __slots__ = ()
    data_file_path: str | None
    delta_file_paths: tuple[str, ...]
    file_id: str | None
    partition_path: str | None

    @property
    def group(self) -> FileGroupId:
        """The file group that it is a version of."""
        return FileGroupId(self.partition_path or "", self.file_id or "")

    @property
    def file_names(self) -> tuple[str, ...]:
        """The base file, if there is one, and the log files."""
        return tuple(path.rpartition("/")[2] for path in (self.data_file_path, *self.delta_file_paths) if path)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation(NamedSlice):
    """One file slice to compact; `delta_file_paths` and `data_file_path` are file names."""

    base_instant_time: InstantTime | None
    delta_file_paths: tuple[str, ...] = ()
    data_file_path: str | None = None
    file_id: str | None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = None
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStrategy:
    """The strategy class of a compaction and its parameters (Hudi: HoodieCompactionStrategy)."""

    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The file slices of a requested compaction or log compaction (Hudi: HoodieCompactionPlan)."""

    operations: tuple[CompactionOperation, ...] = ()
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = False
    missing_schedule_partitions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo(NamedSlice):
    """One input slice of a clustering; paths are absolute URIs."""

    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] = ()
    file_id: str | None
    partition_path: str | None = None
    bootstrap_file_path: str | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup:
    """Slices that one task rewrites together, and into how many file groups (Hudi: HoodieClusteringGroup)."""

    slices: tuple[SliceInfo, ...] = ()
    metrics: Mapping[str, float] | None = None
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringStrategy:
    """The execution strategy of a clustering and its parameters (Hudi: HoodieClusteringStrategy)."""

    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    """The input groups and the strategy of a clustering (Hudi: HoodieClusteringPlan)."""

    input_groups: tuple[ClusteringGroup, ...] = ()
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = None
    missing_schedule_partitions: tuple[str, ...] | None = None

    @property
    def slices(self) -> tuple[SliceInfo, ...]:
        """Those of all groups."""
        return tuple(each for group in self.input_groups for each in group.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedReplaceMetadata:
    """The content of a requested replace commit. Only a clustering has a plan; otherwise every member is None."""

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFileInfo:
    """A file to delete, by its absolute URI."""

    file_path: str | None = None
    is_bootstrap_base_file: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerPlan:
    """The files of a requested clean, and the earliest instant that stays readable (Hudi: HoodieCleanerPlan)."""

    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: InstantTime = BEFORE_ALL
    policy: str
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = None
    version: int | None = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFileInfo, ...]] | None = None
    partitions_to_be_deleted: tuple[str, ...] | None = None
    extra_metadata: Mapping[str, str] | None = None

    @property
    def file_names(self) -> dict[str, list[str]]:
        """The data files to delete by partition path, wherever the table lay when the plan was made."""
        return {
            partition: [(file.file_path or "").rpartition("/")[2] for file in files if not file.is_bootstrap_base_file]
            for partition, files in (self.file_paths_to_be_deleted_per_partition or {}).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPartitionMetadata:
    """What a clean deleted in one partition, by file name."""

    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...] = ()
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    is_partition_deleted: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    """The result of a clean; without `earliest_commit_to_retain` it was by versions (Hudi: HoodieCleanMetadata)."""

    start_clean_time: InstantTime
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: InstantTime
    last_completed_commit_timestamp: InstantTime = BEFORE_ALL
    partition_metadata: Mapping[str, CleanPartitionMetadata]
    version: int | None = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartitionMetadata] | None = None
    extra_metadata: Mapping[str, str] | None = None

    @property
    def deleted(self) -> list[str]:
        """The paths of the files that it deleted, relative to the table."""
        return [
            join(partition, file.rpartition("/")[2])
            for partition, part in self.partition_metadata.items()
            for file in part.success_delete_files
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Files to delete, or log files of one slice that get a command block: absolute URIs, logs with their size."""

    partition_path: str
    file_id: str | None = None
    latest_base_instant: InstantTime | None = None
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What a rollback deletes, one request per slice or folder (Hudi: HoodieRollbackPlan)."""

    instant_to_rollback: InstantInfo | None
    rollback_requests: tuple[RollbackRequest, ...] = field(default=(), metadata={"avro": "RollbackRequests"})
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPartitionMetadata:
    """Deleted files and command blocks of one partition (Hudi: HoodieRollbackPartitionMetadata)."""

    partition_path: str
    success_delete_files: tuple[str, ...] = ()
    failed_delete_files: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] | None = None
    log_files_from_failed_commit: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    """The result of a rollback (Hudi: HoodieRollbackMetadata)."""

    start_rollback_time: InstantTime
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[InstantTime, ...]
    partition_metadata: Mapping[str, RollbackPartitionMetadata]
    version: int | None = 1
    instants_rollback: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """The instants to roll back, newest first."""

    instants_to_rollback: tuple[InstantInfo, ...] = ()
    version: int | None = 2
    savepoint_to_restore_timestamp: InstantTime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMetadata:
    """The result of a restore: that of each of its rollbacks (Hudi: HoodieRestoreMetadata)."""

    start_restore_time: InstantTime
    time_taken_in_millis: int
    instants_to_rollback: tuple[InstantTime, ...]
    hoodie_restore_metadata: Mapping[str, tuple[RollbackMetadata | None, ...]]
    version: int | None = 1
    restore_instant_info: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointPartitionMetadata:
    """Names of the files of one partition that a savepoint retains."""

    partition_path: str
    savepoint_data_file: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata:
    """`savepointed_at` in milliseconds since the epoch."""

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartitionMetadata]
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPartitionInfo:
    """A partition of the metadata table that is being built (Hudi: HoodieIndexPartitionInfo)."""

    version: int | None = 1
    metadata_partition_path: str | None = None
    index_upto_instant: InstantTime | None = None
    extra_metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """The partitions that an indexing action builds (Hudi: HoodieIndexPlan)."""

    version: int | None = 1
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCommitMetadata:
    """The result of an indexing action (Hudi: HoodieIndexCommitMetadata)."""

    version: int | None = 1
    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = None


Plan = (
    CompactionPlan
    | RequestedReplaceMetadata
    | CleanerPlan
    | CleanMetadata
    | RollbackPlan
    | RollbackMetadata
    | RestorePlan
    | RestoreMetadata
    | SavepointMetadata
    | IndexPlan
    | IndexCommitMetadata
)

PLAN_OF: Final[Mapping[tuple[Action, State], type[Plan]]] = {
    (Action.COMPACTION, State.REQUESTED): CompactionPlan,
    (Action.LOG_COMPACTION, State.REQUESTED): CompactionPlan,
    (Action.REPLACE_COMMIT, State.REQUESTED): RequestedReplaceMetadata,
    (Action.CLUSTERING, State.REQUESTED): RequestedReplaceMetadata,
    (Action.CLEAN, State.REQUESTED): CleanerPlan,
    (Action.CLEAN, State.INFLIGHT): CleanerPlan,
    (Action.CLEAN, State.COMPLETED): CleanMetadata,
    (Action.ROLLBACK, State.REQUESTED): RollbackPlan,
    (Action.ROLLBACK, State.COMPLETED): RollbackMetadata,
    (Action.RESTORE, State.REQUESTED): RestorePlan,
    (Action.RESTORE, State.COMPLETED): RestoreMetadata,
    (Action.SAVEPOINT, State.COMPLETED): SavepointMetadata,
    (Action.INDEXING, State.REQUESTED): IndexPlan,
    (Action.INDEXING, State.COMPLETED): IndexCommitMetadata,
}
"""The class of an instant file's content; files of other instants contain commit metadata or nothing."""


def encode_plan(plan: Plan, release: str) -> bytes:
    """Encodes the content of an instant file in the schema of a Hudi release."""
    return write_record(f"Hoodie{type(plan).__name__}", release, to_record(plan))


def decode_plan(kind: type[P], data: bytes, path: str) -> P:
    """Decodes the content of an instant file. FormatError naming `path`."""
    return from_record(kind, read_record(data, path), path)
