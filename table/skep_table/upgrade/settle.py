"""Before a table changes its version: nothing is pending, and no latest file slice has log files."""

from __future__ import annotations

from skep_format.errors import CommitConflictError
from skep_table.commit.undo.recovery import roll_back_failed
from skep_table.commit.writable import prepared
from skep_table.services.cleaning.clean import execute_pending_cleans
from skep_table.services.compaction.compact import compact, execute_pending_log_compactions
from skep_table.table import HudiTable
from skep_table.upgrade.refusals import slices_with_logs


def settle(table: HudiTable) -> HudiTable:
    """Rolls back failed writes, carries out pending plans and compacts all logs. Returns the snapshot after it.

    CommitConflictError while a write is active. Clusterings that are planned stay so, their plans move with the
    timeline.
    """
    with table.context.locked():
        table = roll_back_failed(prepared(table))
    execute_pending_cleans(table)
    if table.config.is_mor:
        execute_pending_log_compactions(table)
        compact(table)
    return table.reload()


def refuse_clustered_logs(table: HudiTable) -> None:
    """CommitConflictError where log files are in a file group that a pending clustering is going to rewrite."""
    clusterings = table.view(metadata=False).states.pending_clusterings
    for slice_ in slices_with_logs(table) if clusterings else ():
        planned = clusterings.get(slice_.group)
        if planned is not None:
            raise CommitConflictError(
                f"table {table.config.name}: clustering {planned} is pending over file group {slice_.file_id} of"
                f" partition {slice_.partition_path!r}, whose log files can't be compacted before it",
                hint="carry it out (skep cluster TABLE --execute) or roll it back",
                table=table.config.name,
                instant=planned,
            )
