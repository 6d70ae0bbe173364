"""Compacting one file slice: its base file and log files become the base file of the next slice.

A function of plain values, independent of Spark. Rows keep their meta columns but for the file name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from skep_format.basefile import OpenBaseFile, open_base
from skep_format.errors import FormatError
from skep_format.instant_time import BEFORE_ALL
from skep_format.names import BaseFileName, LogFileName, MarkerType, join
from skep_format.timeline.metadata import WriteStat, runtime_stats
from skep_format.timeline.plans import CompactionOperation
from skep_table.merge import Updates
from skep_table.services.rewriting import RewriteJob, candidate_of
from skep_table.slices import read_slice
from skep_table.slices.counts import MergeCounts
from skep_table.view import BaseFile, FileSlice, LogFile
from skep_table.write.output.base_rows import ArrivingKeys, BaseRows
from skep_table.write.output.change_log import ChangeLog, changes_beside
from skep_table.write.output.files import BaseFiles, OpenFile, renamed
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.planning.profile import Bucket

N = TypeVar("N", BaseFileName, LogFileName)


def compact_slice(job: RewriteJob, task: tuple[int, CompactionOperation]) -> WriteStat:
    """Writes the merged slice. Needs no listing: the plan names all files. Raises what reading and storage raise."""
    number, operation = task
    slice_ = slice_of(operation)
    before = candidate_of(job.table, slice_, job.context.instant_time)
    files = BaseFiles(job.context, Bucket(number, slice_.partition_path, slice_.file_id, before))
    counts, scanned = MergeCounts(), 0.0
    schema = job.context.schema.with_meta()
    kind = MarkerType.CREATE if slice_.base_file is None else MarkerType.MERGE
    with (
        files.open(slice_.file_id, kind) as file,
        _changes(job, slice_.partition_path, file) as changes,
        _opened(job, before) as held,
    ):
        base = _Base(job, before, file, held) if held is not None and job.table.config.populate_meta_fields else None
        rows = read_slice(
            job.table, slice_, schema=schema, history=job.history, counts=counts, watch=changes,
            changed_rows=None if base is None else base.changed_rows,
        )  # fmt: skip
        start = time.monotonic()
        for batch in rows:
            scanned = scanned or time.monotonic() - start
            if base is None or base.passing is None or counts.beyond_base:
                file.writer.write(renamed(batch, file.name))
            else:
                base.passing.write(batch, file.name)
        if changes is not None:
            changes.close()
    took = runtime_stats(scan=scanned, upsert=file.seconds)  # logs are read before the first rows come
    return replace(_stat(files, file, operation, slice_, counts, changes), runtime_stats=took)


class _Base:
    """The base file of the slice: row groups that no log entry changes are copied into the new one."""

    def __init__(self, job: RewriteJob, before: CandidateFile, file: OpenFile, held: OpenBaseFile) -> None:
        self._job, self._before, self._file, self._held = job, before, file, held
        self.passing: BaseRows | None = None

    def changed_rows(self, updates: Updates) -> Iterator[pa.RecordBatch]:
        """What log entries may change; the others are in the new file when it has been read."""
        arriving = ArrivingKeys.of(updates.rows)
        self.passing = BaseRows.of(self._job.context, self._before, self._held, self._file.writer, arriving)
        yield from self.passing.batches(())


def _opened(job: RewriteJob, before: CandidateFile) -> AbstractContextManager[OpenBaseFile | None]:
    return open_base(job.context.storage, before.path) if before.path else nullcontext()


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The slice that an operation names; its sizes are not known. FormatError for names that are no files' of a slice.

    Plans of old releases have whole paths.
    """

    def parsed(kind: type[N], path: str) -> N:
        text = path.rpartition("/")[2]
        name = kind.parse(text)
        if name is None:
            place = join(*operation.group)
            raise FormatError(
                f"compaction plan for {place}: {text!r} is no name of a base or log file", path=place, found=text
            )
        return name

    folder, base = operation.group.partition_path, None
    if operation.data_file_path:
        name = parsed(BaseFileName, operation.data_file_path)
        base = BaseFile(join(folder, str(name)), 0, name)
    logs = [
        LogFile(join(folder, str(name)), 0, name)
        for name in (parsed(LogFileName, p) for p in operation.delta_file_paths)
    ]
    logs.sort(key=lambda each: each.name.sort_key)
    return FileSlice(*operation.group, operation.base_instant_time or BEFORE_ALL, base, tuple(logs))


def _changes(job: RewriteJob, partition: str, file: OpenFile) -> AbstractContextManager[ChangeLog | None]:
    if not job.context.format.compactions_have_change_logs:
        return nullcontext()
    return changes_beside(job.context, partition, file.name)


def _stat(
    files: BaseFiles,
    file: OpenFile,
    operation: CompactionOperation,
    slice_: FileSlice,
    counts: MergeCounts,
    changes: ChangeLog | None,
) -> WriteStat:
    metrics = operation.metrics or {}
    written = files.stat(
        file,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        changes=None if changes is None else changes.paths,
    )
    return replace(
        written,
        prev_commit="null" if slice_.base_file is None else slice_.base_instant,
        prev_base_file=None if slice_.base_file is None else str(slice_.base_file.name),
        total_log_records=counts.entries,
        total_log_files_compacted=len(slice_.log_files),
        total_log_size_compacted=int(metrics.get("TOTAL_LOG_FILES_SIZE", 0)),
        total_updated_records_compacted=counts.keys,
        total_log_blocks=counts.blocks,
        total_corrupt_log_block=counts.corrupt_blocks,
        total_rollback_blocks=counts.rollback_blocks,
    )
