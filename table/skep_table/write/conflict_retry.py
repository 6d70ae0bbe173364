"""A write that lost a conflict is retried at its instant: files that no other write has affected are kept."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from skep_format.clock import doubled
from skep_format.errors import CommitConflictError
from skep_format.names import FileGroupId
from skep_table.context import TableContext
from skep_table.metadata_write.kinds.contract import FoundByTasks
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.operation import Replaces
from skep_table.write.planning.plan import WritePlan
from skep_table.write.planning.profile import NO_BUCKET, Bucket, BucketPlan, PartitionRoute


class ConflictRetries:
    """How often a write may still try again."""

    def __init__(self, context: TableContext, most: int) -> None:
        self._context = context
        self._left = most
        self._done = 0

    def __bool__(self) -> bool:
        return self._done < self._left

    def again(self, error: CommitConflictError, *, kept: int = 0) -> None:
        """Before one more try. `kept`: the files that it need not write. Raises the error when it was the last."""
        if not self:
            raise error
        self._done += 1
        self._context.events.emit("write.retried", tries=self._done, error=error.message, kept=kept)
        if not kept:
            self._context.clock.sleep(random.uniform(0.5, 1) * doubled(0.2, 5, self._done))


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """What an attempt planned and wrote. `replaced`: the file groups that it replaces."""

    plan: BucketPlan
    results: tuple[BucketResult, ...]
    replaced: Mapping[str, tuple[str, ...]] | None = None
    found: FoundByTasks = field(default_factory=FoundByTasks)

    def may_stay(self, plan: WritePlan) -> bool:
        """Whether the next attempt may keep some of it.

        Not where the index searches the whole table, or stores keys itself; what was appended to logs is written again,
        which is little work.
        """
        return (
            plan.traits.replaces is Replaces.NOTHING
            and not plan.index.is_global
            and not plan.index.keeps_keys
            and not any(bucket.to_log for bucket in self.plan.buckets)
        )


class Kept:
    """What the next attempt keeps although others changed some file groups meanwhile: in a partition that no other
    write touched, all files; in another one, those that update a group which no other write changed, since the same
    file holds their keys.
    """

    def __init__(self, written: AttemptFiles, changed: frozenset[FileGroupId]) -> None:
        self._changed = changed
        self._partitions = {partition for partition, _ in changed}
        self._before = {_group(bucket): bucket for bucket in _only_updated(written.plan)}
        results = [result for result in written.results if result.stats]
        self._elsewhere = [each for each in results if each.stats[0].partition_path not in self._partitions]
        self._by_group = {FileGroupId(each.stats[0].partition_path, each.stats[0].file_id): each for each in results}

    @property
    def kept(self) -> int:
        """Files that need not be written again, at most."""
        same = [each for group, each in self._by_group.items() if group in self._before and group not in self._changed]
        return sum(len(each.stats) for each in {id(each): each for each in (*self._elsewhere, *same)}.values())

    def rest(self, plan: BucketPlan) -> tuple[BucketPlan, tuple[BucketResult, ...]]:
        """What is left to be written of a later plan, and the results that stay."""
        stays = {bucket.number: result for bucket in _only_updated(plan) if (result := self._result_of(bucket))}
        routes = {
            path: _without(route, stays) if path in self._partitions else PartitionRoute()
            for path, route in plan.routes.items()
        }
        return replace(plan, routes=routes), (*self._elsewhere, *stays.values())

    def _result_of(self, bucket: Bucket) -> BucketResult | None:
        group, former = _group(bucket), self._before.get(_group(bucket))
        if bucket.partition_path not in self._partitions or group in self._changed or former is None:
            return None
        same = former.base == bucket.base and former.rows == bucket.rows
        return self._by_group.get(group) if same else None


def _only_updated(plan: BucketPlan) -> list[Bucket]:
    """The buckets that are slices of the table, and that no inserts were added to."""
    filled = {number for route in plan.routes.values() for number in route.inserts}
    return [bucket for bucket in plan.buckets if bucket.base is not None and bucket.number not in filled]


def _without(route: PartitionRoute, stays: Container[int]) -> PartitionRoute:
    updates = {tag: NO_BUCKET if number in stays else number for tag, number in route.updates.items()}
    return replace(route, updates=updates)


def _group(bucket: Bucket) -> FileGroupId:
    return FileGroupId(bucket.partition_path, bucket.file_id)
