"""Non-blocking concurrency control: writers of one file group append log files to it, and none of them fails.

A key determines the bucket of its row, the bucket the name of its file group, and a log file belongs to the slice on
which its delta commit completed (format guide 14.9). So whatever completes meanwhile, the rows of a write are found,
and readers merge them by the table's rule. What is left to be refused is what would hide rows.
"""

from __future__ import annotations

from skep_format.errors import UnsupportedError
from skep_format.options import Options
from skep_format.table_config import TableConfig
from skep_format.timeline.instant import Action
from skep_table.commit.options import CONCURRENCY_MODE, Concurrency
from skep_table.keys.buckets import GroupNames
from skep_table.table import HudiTable


def check_concurrency(table: HudiTable, action: Action) -> None:
    """UnsupportedError where the options ask for non-blocking writes, and the table or the action rules them out."""
    options = table.options
    if not Concurrency.of(options).is_non_blocking:
        return
    reason = _missing(table, options)
    if reason is None and action is Action.REPLACE_COMMIT:
        reason = (
            "replacing file groups or partitions is not possible with it: other writers would go on with the names of"
            " the groups that are replaced, and their rows would be hidden"
        )
    if reason is not None:
        raise UnsupportedError(
            f"table {table.config.name}: {CONCURRENCY_MODE.key}={options[CONCURRENCY_MODE.key]}: {reason}",
            hint="optimistic_concurrency_control is possible",
            option=CONCURRENCY_MODE.key,
            table=table.config.name,
            path=table.storage.root,
        )


def _missing(table: HudiTable, options: Options) -> str | None:
    config: TableConfig = table.config
    if not table.format.logs.of_delta_commit:
        return (
            f"version {config.version} of the table does not know it: its log files are named by the slice, and those"
            " of a write that completes after a compaction was planned would be lost"
        )
    if not config.is_mor:
        return "it needs a merge-on-read table, as writers append to log files"
    if not GroupNames.of(config, options).by_key:
        return "it needs a simple bucket index (hoodie.index.type=BUCKET), by which all writers name file groups alike"
    return None
