"""Writing without Spark: frames of this process, tasks on threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from skep_table.commit.setting import CommitSetting
from skep_table.errors import InputError
from skep_table.hooks import CommitHook
from skep_table.runner import Runner
from skep_table.table import HudiTable
from skep_table.write.bucket import BucketResult
from skep_table.write.context import WriteContext
from skep_table.write.flow import TableWriter
from skep_table.write.keyed import Keyer, partition_codes, rows_by
from skep_table.write.profile import Bucket, new_file_id
from skep_table.write.rows import ArrowRows, Rows, write_task

# What a frame may be; Spark's are for the engine of `skep_writer`.
FRAMES = "a Spark, pandas or polars DataFrame, or an Arrow table"


def arrow_table(frame: object) -> pa.Table:
    """Arrow tables, batches and readers, pandas and polars frames, and whatever else speaks Arrow's C interface.

    InputError for anything else.
    """
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, pa.RecordBatchReader):
        return frame.read_all()
    if type(frame).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise InputError(
        f"a {type(frame).__module__}.{type(frame).__qualname__} is no frame: expected {FRAMES}",
        found=type(frame).__qualname__,
        expected=FRAMES,
    )


class ArrowEngine:
    """Frames in this process; the tasks go to the runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def schema(self, frame: object) -> pa.Schema:
        return frame.schema if isinstance(frame, pa.RecordBatchReader) else arrow_table(frame).schema

    def rows(self, frame: object, keyer: Keyer) -> Rows:
        return ArrowRows(keyer.keyed(arrow_table(frame)), self._runner)

    def stream(self, frame: object, keyer: Keyer, context: WriteContext) -> list[BucketResult] | None:
        """Only rows that are to be arranged: one task for each partition writes its rows in their order."""
        if context.arrangement is None or context.combine:
            return None
        rows = context.arrangement.sort(keyer.keyed(arrow_table(frame)))
        paths, codes = partition_codes(rows)
        tasks = [
            (Bucket(code, paths[code], new_file_id(), rows=len(at)), rows.take(pa.array(at)))
            for code, at in rows_by(codes, len(paths))
        ]
        return list(self._runner.map(partial(write_task, replace(context, arrangement=None)), tasks))


class LocalWriter(TableWriter):
    """Writes Arrow tables (and pandas and polars frames) with threads of this process."""

    def __init__(
        self, table: HudiTable, setting: CommitSetting | None = None, hooks: Sequence[CommitHook] = ()
    ) -> None:
        setting = setting or CommitSetting()
        super().__init__(table, ArrowEngine(setting.runner), setting, hooks)
