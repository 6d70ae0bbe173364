"""What a process that died leaves on the timeline of a metadata table, besides delta commits.

Those have the time of an action on the data table, and are undone with that.
"""

from __future__ import annotations

from typing import Final

from skep_format.errors import FormatError
from skep_format.names import BaseFileName, LogFileName
from skep_format.timeline.instant import Action
from skep_format.timeline.plans import RollbackPlan
from skep_format.timeline.write import delete_pending
from skep_table.metadata_table import FOLDER
from skep_table.metadata_write.own import files_by_partition
from skep_table.metadata_write.rollback import roll_back_delta_commit
from skep_table.table import HudiTable

_OF_LOGS: Final = (Action.DELTA_COMMIT.value, Action.LOG_COMPACTION.value)


def without_unfinished(own: HudiTable) -> HudiTable:
    """The metadata table without pending rollbacks, which are carried out, and without pending compactions and log
    compactions, whose files and instants are deleted.

    FormatError where delta commits have been written on top of a compaction: their log files have its time in their
    names.
    """
    pending = own.timeline.pending()
    rollbacks, of_logs = pending.of(Action.ROLLBACK).instants, pending.of(Action.LOG_COMPACTION).instants
    for rollback in rollbacks:
        # A write at the time of its target may follow: a process that found the plan then would delete its files.
        plan = own.requested_plan(RollbackPlan, rollback)
        target = plan.instant_to_rollback if plan is not None else None
        if target is not None and target.action in _OF_LOGS:
            roll_back_delta_commit(own, target.commit_time)
        delete_pending(own, rollback)
    for instant in of_logs:
        roll_back_delta_commit(own, instant.requested_time)
        delete_pending(own, instant)
    compactions = pending.of(Action.COMPACTION).instants
    for compaction in compactions:
        time = compaction.requested_time
        for files in files_by_partition(own):
            logs = [name for file in files if (name := LogFileName.parse(file.name)) and name.instant_time == time]
            if logs and not own.format.logs.of_delta_commit:
                raise FormatError(
                    f"{own.storage.root}: delta commits lie on top of the compaction {time}, which is pending",
                    path=FOLDER,
                    instant=time,
                )
            bases = [f.path for f in files if (base := BaseFileName.parse(f.name)) and base.instant_time == time]
            own.storage.delete_many(bases)
        delete_pending(own, compaction)
    return own.reload() if rollbacks or of_logs or compactions else own
