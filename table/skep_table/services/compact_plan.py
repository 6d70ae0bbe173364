"""Which file slices a compaction folds into new base files: those with log files that nothing else has a claim on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from skep_table.commit.setting import CommitSetting
from skep_table.services.metrics import slice_metrics
from skep_table.slices.bootstrap import source_of, with_source_size
from skep_table.table import HudiTable
from skep_table.timeline.plans import CompactionOperation, CompactionPlan
from skep_table.view import FileSlice, FileView
from skep_table.write.options import MAX_FILE_BYTES

_PLAN_VERSION = 2  # paths are file names

Choose = Callable[[Sequence[CompactionOperation]], Sequence[CompactionOperation]]
"""Which slices are compacted, in which order, out of all that could be."""


def every_slice(operations: Sequence[CompactionOperation]) -> Sequence[CompactionOperation]:
    """The most log bytes first."""
    return sorted(operations, key=lambda each: -(each.metrics or {})["TOTAL_LOG_FILES_SIZE"])


def plan_compaction(table: HudiTable, setting: CommitSetting, choose: Choose = every_slice) -> CompactionPlan | None:
    """What a compaction would do now, None for nothing. Changes nothing."""
    view = table.view(metadata=False)
    view.facts  # noqa: B018 - read once, before the threads ask for it
    look = partial(_operations_of, table.with_options(setting.options), view, setting.options.value(MAX_FILE_BYTES))
    found = setting.runner.map(look, view.partitions())
    chosen = choose([operation for operations in found for operation in operations])
    if not chosen:
        return None
    return CompactionPlan(operations=tuple(chosen), extra_metadata={}, version=_PLAN_VERSION)


def _operations_of(table: HudiTable, view: FileView, file_bytes: int, partition: str) -> list[CompactionOperation]:
    return [
        _operation(table, group.slices[0], file_bytes)
        for group in view.file_groups(partition)
        if group.pending_compaction is None and group.pending_clustering is None and group.slices[0].log_files
    ]


def _operation(table: HudiTable, slice_: FileSlice, file_bytes: int) -> CompactionOperation:
    source = source_of(table, slice_, table.options)
    whole = with_source_size(table, slice_, table.options)
    return CompactionOperation(
        base_instant_time=slice_.base_instant,
        delta_file_paths=tuple(str(log.name) for log in slice_.log_files),
        data_file_path=str(slice_.base_file.name) if slice_.base_file else None,
        file_id=slice_.file_id,
        partition_path=slice_.partition_path,
        metrics=slice_metrics([whole], file_bytes),
        bootstrap_file_path=None if source is None else source.path,
    )
