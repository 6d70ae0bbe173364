"""What a process that died leaves on the timeline of a metadata table, besides delta commits.

Those have the time of an action on the data table, and are undone with that.
"""

from __future__ import annotations

from skep_table.errors import FormatError
from skep_table.metadata_table import FOLDER
from skep_table.metadata_write.own import files_by_partition
from skep_table.names import BaseFileName, LogFileName
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action
from skep_table.timeline.write import delete_pending


def without_unfinished(own: HudiTable) -> HudiTable:
    """The metadata table without pending compactions: their base files and instants are deleted.

    FormatError where delta commits have been written on top of one: their log files have its time in their names.
    """
    pending = own.timeline.pending().of(Action.COMPACTION).instants
    for compaction in pending:
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
    return own.reload() if pending else own
