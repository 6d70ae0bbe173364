"""Writing the metadata table in step with the data table: made, changed with each action, compacted, dropped.

For the holder of the data table's lock, but for `roll_back_delta_commit` and `write_below` (format guide 7 and 16).
"""

from skep_table.metadata_write.compaction.compact import (
    compact_metadata_table,
    delta_commits_to_compact,
    is_compaction_due,
    is_held_up_by_building,
    last_compaction,
    unused_time,
)
from skep_table.metadata_write.compaction.log_compact import compact_metadata_logs, is_log_compaction_due
from skep_table.metadata_write.definitions import secondary_indexes
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.metadata_write.drop import delete_metadata_table, drop_indexes
from skep_table.metadata_write.dropped import Definitions, dropped_indexes, naming_dropped
from skep_table.metadata_write.facts.files import ColumnReader, FileFacts
from skep_table.metadata_write.kinds.column_stats import updates_of_rollback
from skep_table.metadata_write.kinds.contract import FoundByTasks, Prepared
from skep_table.metadata_write.making.building import (
    begin_partitions,
    delete_bases,
    existing_groups,
    groups_to_begin,
    started_groups,
    write_below,
)
from skep_table.metadata_write.making.create import (
    announce,
    committed_files,
    create_metadata_table,
    waits_for,
    wanted_of,
)
from skep_table.metadata_write.options import COMPACT_DELTA_COMMITS, INDEX_ASYNC, partitions_of_options
from skep_table.metadata_write.own import (
    building_partitions,
    has_metadata_table,
    open_own,
    own_of_locked,
    planned_partitions,
    with_building,
)
from skep_table.metadata_write.rollback import roll_back_delta_commit
from skep_table.metadata_write.updates import NOTHING_FOUND, prepare_updates, updates_of_clean, updates_of_commit

__all__ = [
    "COMPACT_DELTA_COMMITS",
    "INDEX_ASYNC",
    "NOTHING_FOUND",
    "ColumnReader",
    "Definitions",
    "FileFacts",
    "FoundByTasks",
    "Prepared",
    "announce",
    "begin_partitions",
    "building_partitions",
    "committed_files",
    "compact_metadata_logs",
    "compact_metadata_table",
    "create_metadata_table",
    "delete_bases",
    "delete_metadata_table",
    "delta_commits_to_compact",
    "drop_indexes",
    "dropped_indexes",
    "existing_groups",
    "groups_to_begin",
    "has_metadata_table",
    "is_compaction_due",
    "is_held_up_by_building",
    "is_log_compaction_due",
    "last_compaction",
    "naming_dropped",
    "open_own",
    "own_of_locked",
    "partitions_of_options",
    "planned_partitions",
    "prepare_updates",
    "roll_back_delta_commit",
    "secondary_indexes",
    "started_groups",
    "unused_time",
    "updates_of_clean",
    "updates_of_commit",
    "updates_of_rollback",
    "waits_for",
    "wanted_of",
    "with_building",
    "write_below",
    "write_delta_commit",
]
