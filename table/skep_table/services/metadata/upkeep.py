"""Services of the metadata table: its clean, its compaction and its archiving, under one hold of the table's lock.

Its readers look at the data table's timeline, so that what that archives has to be compacted here before
(`archive_plan.py`), and what is active there stays active here (format guide 16.1 and 16.4).
"""

from __future__ import annotations

import math
from typing import Final

from skep_format.errors import NotATableError
from skep_format.timeline.instant import Action, Instant, State
from skep_format.timeline.write import create_requested
from skep_table.commit.parts.metadata_table import keeps_metadata_table, metadata_clock
from skep_table.commit.writable import prepared
from skep_table.metadata_write.compaction.compact import (
    compact_metadata_logs,
    compact_metadata_table,
    is_compaction_due,
    is_held_up_by_building,
    is_log_compaction_due,
    unused_time,
)
from skep_table.metadata_write.options import COMPACT_DELTA_COMMITS
from skep_table.metadata_write.own import has_metadata_table, open_own
from skep_table.services.cleaning.archive import move_to_archive, plan_archive
from skep_table.services.cleaning.clean import finish_cleans, plan_clean
from skep_table.services.compaction.options import COMPACT_DELTA_COMMITS as COMPACT_DELTA_COMMITS_OF_DATA
from skep_table.services.metadata.index_build import plan_again, set_idle_plans_aside
from skep_table.services.options import CLEAN_POLICY, COMMITS_RETAINED, KEEP_MAX_COMMITS, KEEP_MIN_COMMITS, CleanPolicy
from skep_table.table import HudiTable

_COMMITS_RETAINED: Final = 20
_MORE_THAN_THE_TABLE: Final = 1.2  # a reader of the table's oldest commits may be that far behind here
_ARCHIVED_AT_ONCE: Final = 10
_CLEAN_SUFFIX: Final = "002"


def is_metadata_table_due(table: HudiTable) -> bool:
    """Whether the table's metadata table is to be compacted, by its trigger, or its logs."""
    if not (keeps_metadata_table(table.options) and has_metadata_table(table.config)):
        return False
    try:
        own = open_own(table)
        return is_compaction_due(table, own) or is_log_compaction_due(table, own)
    except NotATableError:
        return False


def maintain_metadata_table(table: HudiTable) -> Instant | None:
    """Cleans, compacts and archives the metadata table. Returns the compaction, where one was possible; otherwise its
    logs are compacted, where the options enable that."""
    with table.context.locked():
        table = prepared(table)
        if not has_metadata_table(table.config):
            return None
        _clean(table)
        aside = set_idle_plans_aside(table) if is_held_up_by_building(table) else None
        if aside:
            table = table.reload()
        compacted = compact_metadata_table(table, metadata_clock(table))
        if compacted is None:
            compact_metadata_logs(table, metadata_clock(table))
        if aside:
            table = plan_again(table, aside)
        _archive(table)
    return compacted


def _own(table: HudiTable) -> HudiTable:
    """The metadata table with the options that the table's own correspond to."""
    retained = max(_COMMITS_RETAINED, math.ceil(table.options.value(COMMITS_RETAINED) * _MORE_THAN_THE_TABLE))
    least = max(retained + 1, table.options.value(KEEP_MIN_COMMITS))
    options = {
        CLEAN_POLICY.key: CleanPolicy.KEEP_LATEST_COMMITS.value,
        COMMITS_RETAINED.key: retained,
        KEEP_MIN_COMMITS.key: least,
        KEEP_MAX_COMMITS.key: max(least + _ARCHIVED_AT_ONCE, table.options.value(KEEP_MAX_COMMITS)),
        COMPACT_DELTA_COMMITS_OF_DATA.key: table.options.value(COMPACT_DELTA_COMMITS),
    }
    return open_own(table).with_options(options)


def _clean(table: HudiTable) -> None:
    own = _own(table)
    if own.timeline.pending().of(Action.CLEAN):
        finish_cleans(own)
        own = own.reload()
    plan = plan_clean(own)
    time = unused_time(table, own, _CLEAN_SUFFIX)
    if plan.file_paths_to_be_deleted_per_partition and time is not None:
        create_requested(own, Instant(time, Action.CLEAN, State.REQUESTED), plan)
        finish_cleans(own.reload())


def _archive(table: HudiTable) -> None:
    own = _own(table)
    first = min((instant.requested_time for instant in table.timeline), default=None)
    chosen = [i for i in plan_archive(own).instants if first is None or i.requested_time.is_before(first)]
    if chosen:
        move_to_archive(own, chosen)
