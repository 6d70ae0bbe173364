"""From tagged rows to the workload profile of a write, and from written files to its commit metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from skep_format.errors import CommitConflictError, DuplicateKeyError, OptionError
from skep_format.instant_time import InstantTime
from skep_format.names import FileGroupId
from skep_format.schema.avro import avro_text
from skep_format.timeline.metadata import CommitMetadata, WriteOperation, WriteStat, stats_by_partition
from skep_table.metadata_write.kinds.contract import FoundByTasks
from skep_table.table import HudiTable
from skep_table.write.context import WriteContext
from skep_table.write.indexes.global_tagging import Relocation
from skep_table.write.indexes.named import NamedFiles, NamedOrFound
from skep_table.write.indexes.tagging import Tagging
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.planning.options import DUPLICATES, Duplicates
from skep_table.write.planning.plan import WritePlan
from skep_table.write.planning.profile import Bucket, BucketPlan, PartitionProfile
from skep_table.write.rows import Tagged
from skep_table.write.tags import MISSING_GROUP, NEW_KEY


def tagging_of(table: HudiTable, plan: WritePlan, files: CandidateFiles, *, all_named: bool) -> Tagging:
    """How the plan's rows are tagged over the table as this attempt found it. Raises what the index raises.

    `all_named`: see `WritePlan.looks_up`.
    """
    index = plan.index
    if not plan.looks_up(all_named=all_named):
        return Tagging(NamedFiles(files), files)
    if plan.duplicates is not Duplicates.NONE and not index.finds_keys:
        problem = "its index computes the group of a key, not whether the key is there"
        raise table.error(OptionError, problem, hint="upsert updates the rows that are there", option=DUPLICATES.key)
    relocation = None
    if index.is_global:
        # a row that lacks columns stays where its key is: it can't be written anywhere else
        moves = index.moves and (plan.partial is None or plan.partial.table is None)
        relocation = Relocation(plan.rule, plan.combines, moves, table, plan.schema, files, plan.traits.deletes)
    found = index.look_up(table, files)
    if plan.traits.prepped and not index.places_new_keys:
        found = NamedOrFound.of(files, found)
    return Tagging(found, files, relocation)


def found_by_tasks(
    context: WriteContext, results: Iterable[BucketResult], tagged: Mapping[FileGroupId, str] = MappingProxyType({})
) -> FoundByTasks:
    """What the tasks of a commit have found out about its files, with what `tagged_in` returns."""
    columns = {} if context.facts is None else context.facts.columns
    return FoundByTasks(tagged, columns, {(f.partition_path, f.name): f for each in results for f in each.facts})


def tagged_in(plan: WritePlan, buckets: Iterable[Bucket]) -> dict[FileGroupId, str]:
    """By file group with updates in logs the path of its base file, when the index has read all of their keys: in that,
    or in the logs over it."""
    if plan.traits.prepped or not (plan.uses_index and plan.index.reads_keys):
        return {}
    return {
        FileGroupId(bucket.partition_path, bucket.file_id): bucket.base.path
        for bucket in buckets
        if bucket.to_log and bucket.base is not None and bucket.base.path
    }


def profiles_of(
    table: HudiTable, files: CandidateFiles, tagged: Tagged, plan: WritePlan
) -> dict[str, PartitionProfile]:
    """Partition path → profile. Drops keys of a delete that no file holds, and duplicates where options ask for that.

    CommitConflictError when rows name missing file groups, DuplicateKeyError when options refuse duplicates.
    """
    profiles = {}
    for path, counts in tagged.items():
        if MISSING_GROUP in counts:
            raise table.error(
                CommitConflictError,
                f"{counts[MISSING_GROUP]} rows of partition {path or 'of the table'} were read from file groups that"
                " are not there any more",
                hint="read the rows again",
                partition=path,
                rows=counts[MISSING_GROUP],
            )
        updates = {tag: rows for tag, rows in counts.items() if tag != NEW_KEY}
        if plan.traits.deletes:
            updates = {tag: rows for tag, rows in updates.items() if tag > NEW_KEY}
        if updates and plan.duplicates is Duplicates.FAIL:
            raise DuplicateKeyError(
                f"partition {path or 'of the table'}: {sum(updates.values())} rows have keys that the table holds",
                hint=f"upsert updates them; {DUPLICATES.key}=drop leaves them out",
                partition=path,
                rows=sum(updates.values()),
            )
        if plan.duplicates is Duplicates.DROP:
            updates = {}
        inserts = 0 if plan.traits.deletes else counts.get(NEW_KEY, 0)
        if plan.partial is not None:
            plan.partial.check_new(inserts)
        profiles[path] = PartitionProfile(tuple(files.get(path, ())), updates, inserts)
    return profiles


def groups_in_clustering(plan: BucketPlan) -> dict[FileGroupId, InstantTime]:
    """The file groups of a write that a pending clustering is going to rewrite, with the instant of the clustering."""
    return {
        FileGroupId(bucket.partition_path, bucket.file_id): bucket.base.clustering
        for bucket in plan.buckets
        if bucket.base is not None and bucket.base.clustering is not None
    }


def workload(operation: WriteOperation, plan: BucketPlan) -> CommitMetadata:
    """The content of the inflight file: the rows that are going to be written, by file group.

    The first stat of a partition has no group, as in Hudi's: it counts the rows of new ones, 0 where there are none.
    """
    new = Counter[str]()
    changed: dict[str, list[WriteStat]] = {}
    for bucket in plan.buckets:
        path, base = bucket.partition_path, bucket.base
        planned = changed.setdefault(path, [])
        if base is None:
            new[path] += bucket.rows
        else:
            planned.append(_planned(path, file_id=bucket.file_id, prev_commit=base.base_instant, updates=bucket.rows))
    stats = {path: (_planned(path, inserts=new[path]), *planned) for path, planned in changed.items()}
    return CommitMetadata(partition_to_write_stats=stats, operation_type=operation)


def _planned(
    path: str, *, file_id: str = "", prev_commit: str = "null", updates: int = 0, inserts: int = 0
) -> WriteStat:
    return WriteStat(
        file_id=file_id,
        path="",
        partition_path=path,
        prev_commit=prev_commit,
        num_update_writes=updates,
        num_inserts=inserts,
    )


def commit_metadata(plan: WritePlan, results: Sequence[BucketResult], extra: Mapping[str, str]) -> CommitMetadata:
    """What the commit states: the stats of all files by partition, sorted, the schema, and `extra`."""
    stats = stats_by_partition(stat for result in results for stat in result.stats)
    ordered = {path: tuple(sorted(stats[path], key=lambda stat: stat.file_id)) for path in sorted(stats)}
    return CommitMetadata(
        partition_to_write_stats=ordered,
        operation_type=plan.operation,
        extra_metadata={**extra, "schema": avro_text(plan.in_files)},
    )
