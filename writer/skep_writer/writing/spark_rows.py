"""Keyed rows of a Spark frame: prepared, tagged, routed and written in Python workers as whole Arrow tables.

    frame → prepare (keys, partition paths; persisted) → tag (persisted) → route → one shuffle by task → write

Between the steps the driver sees counts only. The shuffle moves one binary value for each bucket of each batch. The
rows of a small frame come to the driver once they are prepared, or right away where the frame is a few files as they
are: each further job would take longer than its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from skep_format.errors import KeyFieldError
from skep_format.runner import Runner
from skep_table.keys.generator import null_key_error
from skep_table.write.context import WriteContext
from skep_table.write.indexes.tagging import Tagging
from skep_table.write.keyed import Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.profile import BucketPlan
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.rows import ArrowRows, KeyedBatch, KeyedRows, Tagged
from skep_table.write.tags import NEW_KEY
from skep_writer.edge import collect_arrow, map_frame, small_batches
from skep_writer.writing import tasks as worker
from skep_writer.writing.estimate import few_rows, fitting_batches, is_small
from skep_writer.writing.tagging import tag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The weight of a base file against the rows merged into it, when buckets are balanced over tasks.
_TASK_BYTES = 512 << 20


def frame_rows(frame: DataFrame, keyer: Keyer, settings: WriteSettings, runner: Runner) -> KeyedRows:
    """The rows of a Spark frame for one write, held where that costs least. `runner` is for those the driver holds."""
    most = settings.collected_bytes
    if is_small(frame, most):
        with few_rows(frame):
            return ArrowRows(KeyedBatch.of(keyer.keyed(collect_arrow(frame))), runner)
    rows = SparkRows(frame, keyer, settings, runner)
    if rows.size > most:
        return rows
    try:
        return ArrowRows(KeyedBatch.of(rows.collect()), runner)
    finally:
        rows.release()


class SparkRows:
    """Rows held by Spark. `size` is in bytes of Arrow data."""

    def __init__(self, frame: DataFrame, keyer: Keyer, settings: WriteSettings, runner: Runner) -> None:
        from pyspark import StorageLevel

        self._spark = frame.sparkSession
        self._level = getattr(StorageLevel, settings.tagged_level)
        self._parallelism = self._spark.sparkContext.defaultParallelism
        self._schema = keyer.schema
        self._held: list[DataFrame] = []
        self._tagging: list[DataFrame] = []
        self._tagged: DataFrame | None = None
        self._runner = runner
        try:
            with fitting_batches(frame, settings.rows_per_batch):
                self._prepared = self._hold(map_frame(frame, partial(worker.prepare, keyer), worker.PREPARED))
                self._partitions, self.size, self.all_named = _counted(self._prepared, keyer)
        except BaseException:
            self.release()
            raise

    def _hold(self, frame: DataFrame) -> DataFrame:
        held = frame.persist(self._level)
        self._held.append(held)
        return held

    def _drop(self, *frames: DataFrame) -> None:
        for frame in frames:
            self._held.remove(frame)
            frame.unpersist()

    def collect(self) -> pa.Table:
        """All rows, in the order of the frame's partitions."""
        if not self._partitions:
            return self._schema.empty_table()
        return worker.joined_payloads(self.payloads.collect())

    def partitions(self) -> Mapping[str, int]:
        return self._partitions

    def sample(self, most: int) -> pa.Table:
        """From the first payloads that tasks have prepared."""
        rows = self.payloads.where("payload is not null").take(2)
        return worker.joined_payloads(rows).slice(0, most) if rows else self._schema.empty_table()

    def keys(self, most: int) -> pa.Array | None:  # noqa: ARG002 - executors hold them
        return None

    def tag(self, tagging: Tagging | None) -> Tagged:
        if tagging is None:
            return {path: {NEW_KEY: rows} for path, rows in self._partitions.items()}
        with small_batches(self._spark):
            self._drop(*self._tagging)  # of a try before this one
            self._tagging = []
            tagged = tag(self.numbered, tagging, sum(self._partitions.values()), self._runner, self._hold_tagging)
            self._tagged = self._hold_tagging(tagged)
            counted = self._tagged.select("paths", "files", "counts").collect()
        found: dict[str, dict[int, int]] = {}
        for row in counted:
            for path, file, count in zip(row.paths, row.files, row.counts, strict=True):
                counts = found.setdefault(path, {})
                counts[file] = counts.get(file, 0) + count
        return found

    def _hold_tagging(self, frame: DataFrame) -> DataFrame:
        self._tagging.append(self._hold(frame))
        return frame

    def write(self, context: WriteContext, plan: BucketPlan) -> list[BucketResult]:
        if not plan.buckets:
            return []
        weights = [
            bucket.rows * 1024 + (bucket.base.size_bytes if bucket.base and not bucket.to_log else 0)
            for bucket in plan.buckets
        ]
        wanted = max(2 * self._parallelism, -(-sum(weights) // _TASK_BYTES))
        numbers, slot_of = worker.balanced(weights, wanted)
        with small_batches(self._spark):
            source = (
                self.numbered if self._tagged is None else self._tagged.select("id", "payload", "tags", "positions")
            )
            routed = map_frame(source, partial(worker.route, plan, slot_of), worker.ROUTED)
            sorted_rows = routed.repartition(len(numbers), "slot").sortWithinPartitions("bucket", "arrival")
            written = map_frame(
                sorted_rows.select("bucket", "payload"), partial(worker.write, context, plan.buckets), worker.RESULTS
            )
            return worker.collect_results(written)

    @property
    def payloads(self) -> DataFrame:
        """One column: tables of keyed rows, as binary values."""
        return self._prepared.select("payload")

    @property
    def numbered(self) -> DataFrame:
        """Columns id and payload; the ids are in the order of the rows."""
        return self._prepared.select("id", "payload")

    def release(self) -> None:
        """Unpersists the frames that the write cached."""
        while self._held:
            self._held.pop().unpersist()


def _counted(prepared: DataFrame, keyer: Keyer) -> tuple[dict[str, int], int, bool]:
    """Rows by partition path, bytes of all, and whether each row names its file."""
    counts: dict[str, int] = {}
    null_keys = size = unnamed = 0
    for row in prepared.select("size", "paths", "counts", "unnamed", "error").collect():
        if row.error is not None:
            error = pickle.loads(row.error)
            keys = ", ".join(keyer.generator.record_fields)
            if not (isinstance(error, KeyFieldError) and error.fields.get("column") == keys):
                raise error
            null_keys += int(str(error.fields["rows"]))
            continue
        size += row.size
        unnamed += row.unnamed
        for path, count in zip(row.paths, row.counts, strict=True):
            counts[path] = counts.get(path, 0) + count
    if null_keys:
        raise null_key_error(keyer.generator.record_fields, null_keys)
    return counts, size, not unnamed
