"""Compaction: log files are folded into new base files, so that reading a merge-on-read table stays cheap.

A plan (a requested compaction) names file slices. From then on writers put their log files on the plan's instant, and
readers merge these onto the slice before, so the plan can be carried out while both go on.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from skep_table.basefile import BaseFileOptions
from skep_table.commit.admission import check_writable
from skep_table.commit.instants import request_plan
from skep_table.commit.plans import is_clustering
from skep_table.commit.recovery import roll_back_failed
from skep_table.commit.setting import CommitSetting
from skep_table.errors import CommitConflictError, InputError
from skep_table.lock import held
from skep_table.merge import MergeRule
from skep_table.services.compact_plan import Choose, every_slice, plan_compaction
from skep_table.services.compact_slice import CompactionJob, compact_slice
from skep_table.services.execution import Execution
from skep_table.services.prepare import extra_of, prepared
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.timeline.plans import CompactionPlan
from skep_table.timeline.write import delete_pending
from skep_table.write.context import WriteContext
from skep_table.write.options import MAX_FILE_BYTES

log = logging.getLogger("skep.compact")


@dataclass(frozen=True, slots=True)
class Compacted:
    """A completed compaction."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def slices(self) -> int:
        return len(self.metadata.stats)


def compact(table: HudiTable, setting: CommitSetting, choose: Choose = every_slice) -> list[Compacted]:
    """Carries out what is planned already, then plans a compaction and carries that out."""
    done = execute_pending_compactions(table, setting)
    instant = schedule_compaction(table, setting, choose)
    if instant is not None and (compacted := execute_compaction(table.reload(), instant, setting)) is not None:
        done.append(compacted)
    return done


def schedule_compaction(table: HudiTable, setting: CommitSetting, choose: Choose = every_slice) -> Instant | None:
    """Writes a plan onto the timeline; None when there is nothing to compact.

    CommitConflictError while a write is under way: it could still append to a slice that the plan takes as it is.
    """
    with held(setting.lock, setting.lock_timeout_seconds):
        table = prepared(table, setting)
        check_compactable(table)
        table = roll_back_failed(table, setting)
        refuse_running_writes(table)
        plan = plan_compaction(table, setting, choose)
        if plan is None:
            return None
        setting.lock.ensure_held()
        instant = request_plan(table, Action.COMPACTION, plan, setting)
    setting.events.emit("compact.scheduled", instant=instant.requested_time, slices=len(plan.operations))
    return instant


def pending_compactions(table: HudiTable) -> Sequence[Instant]:
    """Planned compactions, oldest first, those under way too."""
    return table.timeline.pending().of(Action.COMPACTION).instants


def execute_pending_compactions(table: HudiTable, setting: CommitSetting) -> list[Compacted]:
    """Carries out the planned compactions, and those whose executor died."""
    table = table.reload()
    done = [execute_compaction(table, instant, setting) for instant in pending_compactions(table)]
    return [compacted for compacted in done if compacted is not None]


def execute_compaction(table: HudiTable, instant: Instant, setting: CommitSetting) -> Compacted | None:
    """Carries out a planned compaction, one task a slice. None when that was done or taken back meanwhile."""
    plan = table.requested_plan(CompactionPlan, instant)
    if plan is None:
        _forget(table, instant, setting)
        return None
    execution = Execution.begin(table, instant, setting, check_compactable)
    if execution is None:
        return None
    with execution, setting.events.step("compact", instant=instant.requested_time) as found:
        job = _job(execution.table, execution.instant, setting)
        stats = setting.runner.map(partial(compact_slice, job), list(enumerate(plan.operations)))
        metadata = _metadata(stats, extra_of(execution.table, job.context.schema))
        compacted = Compacted(execution.complete(metadata, check_compactable), metadata)
        found.update(slices=compacted.slices)
    log.info("table %s: %s compacted %d slices", table.config.name, instant.requested_time, compacted.slices)
    return compacted


def check_compactable(table: HudiTable) -> None:
    """InputError for a table that has no log files, UnsupportedError for one that is not written."""
    check_writable(table.config, table.storage.root)
    if not table.config.is_mor:
        raise InputError(
            f"table {table.config.name} is copy-on-write: it has no log files to compact", table=table.config.name
        )


def refuse_running_writes(table: HudiTable) -> None:
    """CommitConflictError while a write is under way, which could append to a slice that a plan takes as it is."""
    running = [i for i in table.timeline.data().pending().instants if not is_clustering(table, i)]
    if running:
        first = running[0]
        raise CommitConflictError(
            f"table {table.config.name}: {first.action.value} {first.requested_time} is under way, a compaction can be"
            " planned when it has ended",
            hint="try again",
            table=table.config.name,
            instant=first.requested_time,
        )


def _forget(table: HudiTable, instant: Instant, setting: CommitSetting) -> None:
    """A plan that can't be read was never finished, or is gone."""
    with held(setting.lock, setting.lock_timeout_seconds):
        if table.reload().requested_plan(CompactionPlan, instant) is None:
            delete_pending(table, instant)


def _job(table: HudiTable, instant: Instant, setting: CommitSetting) -> CompactionJob:
    schema = table.stored_schema()
    context = WriteContext(
        storage=table.storage,
        instant_time=instant.requested_time,
        operation=WriteOperation.COMPACT,
        schema=schema,
        rule=MergeRule.of(table.config, setting.options).with_defaults(schema),
        files=BaseFileOptions.of(setting.options, meta=table.config.populate_meta_fields),
        max_file_bytes=setting.options.value(MAX_FILE_BYTES),
        combine=False,
    )
    return CompactionJob(table, context, dict(setting.options))


def _metadata(stats: Sequence[WriteStat], extra: Mapping[str, str]) -> CommitMetadata:
    written: dict[str, list[WriteStat]] = defaultdict(list)
    for stat in stats:
        written[stat.partition_path].append(stat)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(found) for path, found in sorted(written.items())},
        operation_type=WriteOperation.COMPACT,
        compacted=True,
        extra_metadata=extra,
    )
