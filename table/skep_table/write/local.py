"""Writing without Spark: frames of this process, tasks on threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from skep_table.commit.setting import CommitSetting
from skep_table.hooks import CommitHook
from skep_table.runner import ReportingRunner, Runner
from skep_table.schema.policy import CASE_SENSITIVE
from skep_table.table import HudiTable
from skep_table.write.bucket import BucketResult
from skep_table.write.context import WriteContext
from skep_table.write.flow import TableWriter
from skep_table.write.given import arrow_schema, arrow_table, matched_names
from skep_table.write.keyed import Keyer, partition_codes, rows_by
from skep_table.write.profile import Bucket, new_file_id
from skep_table.write.rows import ArrowRows, Rows, write_task


class ArrowEngine:
    """Frames in this process; the tasks go to the runner. See `options.CASE_SENSITIVE`."""

    def __init__(self, runner: Runner, *, case_sensitive: bool = True) -> None:
        self._runner = runner
        self._case_sensitive = case_sensitive

    def take(self, frame: object, columns: Sequence[str]) -> pa.Table:
        rows = arrow_table(frame)
        return rows if self._case_sensitive else rows.rename_columns(matched_names(rows.column_names, columns))

    def schema(self, frame: object) -> pa.Schema:
        return arrow_schema(frame)

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
        runner = ReportingRunner(setting.runner, partial(setting.events.progress, "write.tasks"))
        engine = ArrowEngine(runner, case_sensitive=setting.options.value(CASE_SENSITIVE))
        super().__init__(table, engine, setting, hooks)
