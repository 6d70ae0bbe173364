"""What a write makes of its tagged rows before it writes them, and what it says of them afterwards: its account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skep_table.errors import CommitConflictError, DuplicateKeyError, OptionError
from skep_table.schema.avro import avro_text
from skep_table.table import HudiTable
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.write.bucket import BucketResult
from skep_table.write.index import NEW_KEY, IndexFile
from skep_table.write.indexes import Index, make_index
from skep_table.write.indexes.base import GONE_GROUP
from skep_table.write.indexes.footers import NamedFiles
from skep_table.write.indexes.moves import GlobalTagger
from skep_table.write.options import DUPLICATES, Duplicates
from skep_table.write.plan import WritePlan
from skep_table.write.profile import BucketPlan, PartitionProfile
from skep_table.write.rows import Tagged


def index_of(table: HudiTable, plan: WritePlan, files: Mapping[str, tuple[IndexFile, ...]]) -> Index | GlobalTagger:
    if plan.traits.prepped and not plan.index.is_bucket:
        return NamedFiles(files)
    if plan.duplicates is not Duplicates.NONE and plan.index.is_bucket:
        raise OptionError(
            f"table {table.config.name}: a bucket index knows the group of a key, not whether the key is there",
            hint="upsert updates the rows that are there",
            option=DUPLICATES.key,
        )
    return make_index(
        plan.index,
        table,
        files,
        plan.options,
        rule=plan.rule,
        schema=plan.schema,
        combine=plan.combines,
        deletes=plan.traits.deletes,
    )


def profiles_of(
    table: HudiTable, files: Mapping[str, tuple[IndexFile, ...]], tagged: Tagged, plan: WritePlan
) -> dict[str, PartitionProfile]:
    """Keys of a delete that no file holds are dropped, there is nothing to do for them; so are unwanted duplicates."""
    profiles = {}
    for path, counts in tagged.items():
        if GONE_GROUP in counts:
            raise CommitConflictError(
                f"table {table.config.name}: {counts[GONE_GROUP]} rows of partition {path or 'of the table'} were read"
                " from file groups that are not there any more",
                hint="read the rows again",
                partition=path,
                rows=counts[GONE_GROUP],
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
        profiles[path] = PartitionProfile(files.get(path, ()), updates, inserts)
    return profiles


def groups_in_clustering(plan: BucketPlan) -> dict[tuple[str, str], str]:
    return {
        (bucket.partition_path, bucket.file_id): bucket.base.clustering
        for bucket in plan.buckets
        if bucket.base is not None and bucket.base.clustering is not None
    }


def workload(operation: WriteOperation, plan: BucketPlan) -> CommitMetadata:
    """What the inflight file says is coming: rows by file group."""
    stats: dict[str, list[WriteStat]] = {}
    for bucket in plan.buckets:
        planned = WriteStat(
            file_id=bucket.file_id if bucket.base else "",
            path="",
            partition_path=bucket.partition_path,
            prev_commit=bucket.base.base_instant if bucket.base else "null",
            num_update_writes=bucket.rows if bucket.base else 0,
            num_inserts=0 if bucket.base else bucket.rows,
        )
        stats.setdefault(bucket.partition_path, []).append(planned)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(planned) for path, planned in stats.items()}, operation_type=operation
    )


def account(plan: WritePlan, results: Sequence[BucketResult], extra: Mapping[str, str]) -> CommitMetadata:
    stats: dict[str, list[WriteStat]] = {}
    for result in results:
        for stat in result.stats:
            stats.setdefault(stat.partition_path, []).append(stat)
    ordered = {path: tuple(sorted(stats[path], key=lambda stat: stat.file_id)) for path in sorted(stats)}
    return CommitMetadata(
        partition_to_write_stats=ordered,
        operation_type=plan.operation,
        extra_metadata={**extra, "schema": avro_text(plan.in_files)},
    )
