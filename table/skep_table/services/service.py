"""Each table service as one value: what plans it, previews it, carries it out, and what its results look like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from skep_format.errors import InputError
from skep_format.instant_time import InstantTime
from skep_format.timeline.instant import Action, Instant
from skep_format.timeline.plans import CleanerPlan, CompactionPlan
from skep_table.hooks import Committed
from skep_table.services.cleaning import clean
from skep_table.services.cleaning.ttl import expire_partitions, expired_partitions
from skep_table.services.clustering import cluster
from skep_table.services.clustering.plan import plan_clustering
from skep_table.services.compaction import compact
from skep_table.services.compaction.plan import Choose, chooser, plan_compaction, plan_log_compaction
from skep_table.services.done import Detail, Done, count, planned, scheduled
from skep_table.services.metadata.index_build import (
    Indexed,
    build_index,
    execute_pending_indexing,
    missing_indexes,
    schedule_index,
)
from skep_table.services.rewriting import Rewritten
from skep_table.table import HudiTable
from skep_table.write.result import WriteResult

T = TypeVar("T", bound="Rewritten | WriteResult | clean.CleanResult | Indexed")


@dataclass(frozen=True, slots=True)
class Mode:
    """How much of a service a call does; by default all: pending plans are executed, then what is due.

    `plan`: a preview, nothing changes; `schedule`: a plan is written; `execute`: pending plans are executed, or only
    that of `instant`.
    """

    plan: bool = False
    schedule: bool = False
    execute: bool = False
    instant: InstantTime | None = None

    @classmethod
    def of(cls, *, plan: bool = False, schedule: bool = False, execute: bool | str = False) -> Mode:
        """InputError for modes that exclude each other."""
        found = cls(plan, schedule, bool(execute), InstantTime(execute) if isinstance(execute, str) else None)
        given = [name for name in ("plan", "schedule", "execute") if getattr(found, name)]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other", option=given[0])
        return found


WHOLE: Final = Mode()


@dataclass(frozen=True, slots=True)
class TableService(Generic[T]):
    """A service, called with a table. `preview` has a row for each of what it counts, `unit` the word for one; `what`
    describes a result; `details` are those of a plan. What has no plan on the timeline is run as a whole."""

    name: str
    unit: str
    preview: Callable[[HudiTable], list[Detail]]
    what: Callable[[T], str]
    run: Callable[[HudiTable], Iterable[T]]
    schedule: Callable[[HudiTable], Instant | None] = lambda *_: None
    pending: Callable[[HudiTable], Iterable[Instant]] = lambda *_: ()
    execute: Callable[[HudiTable, Instant], T | None] = lambda *_: None
    execute_all: Callable[[HudiTable], Iterable[T]] = lambda *_: ()
    details: Callable[[HudiTable, Instant], Sequence[Detail]] = lambda *_: ()

    def __call__(self, table: HudiTable, mode: Mode = WHOLE) -> list[Done]:
        """InputError for an instant that is no plan of the service."""
        if mode.plan:
            return planned(self.name, self.preview(table), self.unit)
        if mode.schedule:
            instant = self.schedule(table)
            return [] if instant is None else [scheduled(self.name, instant, self.details(table, instant))]
        found: Iterable[T | None]
        if mode.instant is not None:
            plans = {instant.requested_time: instant for instant in self.pending(table)}
            if mode.instant not in plans:
                problem = f"there is no plan {mode.instant}"
                hint = f"there are {', '.join(sorted(plans))}" if plans else "nothing is planned"
                raise table.error(InputError, problem, hint=hint, instant=mode.instant)
            found = [self.execute(table, plans[mode.instant])]
        else:
            found = self.execute_all(table) if mode.execute else self.run(table)
        return [self._completed(each) for each in found if each is not None]

    def waiting(self, table: HudiTable) -> list[Done]:
        """The plans that nobody has carried out."""
        return [scheduled(self.name, instant) for instant in self.pending(table)]

    def _completed(self, found: T) -> Done:
        committed, details = None, []
        if isinstance(found, clean.CleanResult):
            paths = (path.rpartition("/") for path in found.deleted)
            details = [{"partition": partition, "file": name} for partition, _, name in paths]
        elif isinstance(found, WriteResult):
            details = [{"partition": path} for path in found.partitions]
        if isinstance(found, (Rewritten, WriteResult)) and found.table is not None:
            committed = Committed(found.table, found.instant, found.metadata, found.table.schema())
        time = found.instant.requested_time
        return Done(self.name, time, "completed", self.what(found), committed, details=details)


def _choice(table: HudiTable) -> Choose:
    """By the strategy that the options name."""
    return chooser(table.options, table.context.clock.now())


def _operations(plan_of: Callable[[HudiTable], CompactionPlan | None], table: HudiTable) -> list[Detail]:
    compact.check_compactable(table)
    plan = plan_of(table)
    return [
        {
            "partition": each.partition_path,
            "file_id": each.file_id,
            "base_instant": each.base_instant_time,
            "log_files": len(each.delta_file_paths),
            "log_bytes": int((each.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
        }
        for each in (plan.operations if plan else ())
    ]


def _clusterings(table: HudiTable) -> list[Detail]:
    """`becomes`: the new file groups of its clustering group."""
    cluster.check_clusterable(table, table.options)
    plan = plan_clustering(table)
    return [
        {
            "group": number,
            "partition": each.partition_path,
            "file_id": each.file_id,
            "log_files": len(each.delta_file_paths),
            "becomes": group.num_output_file_groups,
        }
        for number, group in enumerate(plan.clustering_plan.input_groups if plan and plan.clustering_plan else ())
        for each in group.slices
    ]


def _cleans(plan: CleanerPlan | None) -> list[Detail]:
    names = plan.file_names if plan else {}
    return [
        {"partition": partition, "file": name} for partition, of_partition in names.items() for name in of_partition
    ]


COMPACTION: Final = TableService(
    "compact",
    "file slice",
    partial(_operations, lambda table: plan_compaction(table, _choice(table))),
    lambda found: f"{count(found.slices, 'file slice')} compacted",
    lambda table: compact.compact(table, _choice(table)),
    lambda table: compact.schedule_compaction(table, _choice(table)),
    compact.pending_compactions,
    compact.execute_compaction,
    compact.execute_pending_compactions,
)
LOG_COMPACTION: Final = TableService(
    "log-compact",
    "file slice",
    partial(_operations, plan_log_compaction),
    lambda found: f"the logs of {count(found.slices, 'file slice')} merged",
    compact.compact_logs,
    compact.schedule_log_compaction,
    compact.pending_log_compactions,
    compact.execute_log_compaction,
    compact.execute_pending_log_compactions,
)
CLUSTERING: Final = TableService(
    "cluster",
    "file group",
    _clusterings,
    lambda found: f"{count(found.replaced, 'file group')} rewritten as {len(found.metadata.stats)}",
    cluster.cluster,
    cluster.schedule_clustering,
    cluster.pending_clusterings,
    cluster.execute_clustering,
    cluster.execute_pending_clusterings,
)
EXPIRY: Final = TableService(
    "ttl",
    "partition",
    lambda table: [{"partition": path} for path in expired_partitions(table)],
    lambda found: f"{count(len(found.partitions), 'partition')} dropped",
    expire_partitions,
)
CLEANING: Final = TableService(
    "clean",
    "file",
    lambda table: _cleans(clean.plan_clean(table)),
    lambda found: f"{count(len(found.deleted), 'file')} deleted",
    clean.clean,
    clean.schedule_clean,
    lambda table: table.timeline.pending().of(Action.CLEAN),
    lambda table, instant: next(iter(clean.execute_pending_cleans(table, instant)), None),
    clean.execute_pending_cleans,
    lambda table, instant: _cleans(table.reload().requested_plan(CleanerPlan, instant)),
)
INDEXING: Final = TableService(
    "index",
    "partition",
    lambda table: [{"partition": name} for name in missing_indexes(table)],
    lambda found: f"{', '.join(found.partitions)} built",
    execute_pending_indexing,
    lambda table: schedule_index(table, missing_indexes(table)),
    lambda table: table.timeline.pending().of(Action.INDEXING),
    build_index,
    execute_pending_indexing,
)
