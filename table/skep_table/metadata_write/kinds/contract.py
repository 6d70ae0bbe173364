"""What the metadata table records of each action: what each kind of partition is given for it, and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.timeline.instant import Instant
from skep_format.timeline.metadata import CommitMetadata
from skep_format.timeline.plans import CleanMetadata
from skep_table.metadata_table.partitions import PartitionKind
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.summaries import Columns
from skep_table.metadata_write.definitions import SecondaryIndex
from skep_table.metadata_write.facts.files import ExpressionFacts, FileFacts
from skep_table.metadata_write.facts.keys import GroupChange
from skep_table.metadata_write.making.spreading import Build, Groups, OfPartitions
from skep_table.table import HudiTable

File = tuple[str, str]  # partition path, file name


@dataclass(frozen=True)
class FoundByTasks:
    """What the tasks of a write have found out about its files, so that they are not read again.

    `tagged` has by file group the path of the base file in which all keys were read that the commit updates there.
    `facts` are of these `columns`, and without Bloom filters.
    """

    tagged: Mapping[FileGroupId, str] = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    facts: Mapping[File, FileFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """What was read for a commit outside of the lock. It stays valid for the files that it names.

    `partitioned` is the record index, where it has file groups of its own for each partition. With the same `basis` the
    `changes` are the same: the other instants of the snapshot, what the commit did, and the secondary indexes.
    """

    columns: Columns = field(default_factory=dict)
    facts: Mapping[File, FileFacts] = field(default_factory=dict)
    changes: Mapping[FileGroupId, GroupChange] = field(default_factory=dict)
    expressions: Mapping[File, ExpressionFacts] = field(default_factory=dict)
    secondary: Sequence[SecondaryIndex] = ()
    partitioned: bool = False
    basis: tuple[object, ...] | None = None
    tasks: FoundByTasks = field(default_factory=FoundByTasks)


@dataclass(frozen=True)
class CommittedWrite:
    """A write, or a service that writes files, and what was read for it. `table` is the snapshot under the lock."""

    table: HudiTable
    instant: Instant
    metadata: CommitMetadata
    prepared: Prepared


@dataclass(frozen=True)
class CleanedFiles:
    """A clean, with the files and the whole partitions that it deleted, and the columns that statistics are of."""

    table: HudiTable
    instant: Instant
    metadata: CleanMetadata
    deleted: Sequence[File]
    dropped: Sequence[str]
    columns: Columns


@dataclass(frozen=True)
class KeptKind:
    """How one kind of partition is kept in step with the data table.

    `of_files` is what it records of data files by their facts, with their Bloom filters if it `has_filters`, and the
    time of the action; `of_commit` what a write changes besides, and `of_clean` what a clean does. `contents` are those
    of new partitions, without what `of_files` records, and `of_partitions` by the same facts.
    """

    kind: PartitionKind
    of_files: Callable[[HudiTable, Mapping[File, FileFacts], InstantTime], PartitionUpdate] | None = None
    of_partitions: Callable[[Build], OfPartitions[FileFacts]] | None = None
    has_filters: bool = False
    of_commit: Callable[[CommittedWrite], Iterable[PartitionUpdate]] = lambda _: ()
    of_clean: Callable[[CleanedFiles], Iterable[PartitionUpdate]] = lambda _: ()
    contents: Callable[[Build], Mapping[str, Groups]] = lambda _: {}
