"""The flow of a write, the same for every engine: rows in, commit out.

    frame → schema → keyed rows → transaction { tag → profile → buckets → written files → commit metadata } → hooks

What is done with rows is the engine's (`write/rows.py`); what is decided is decided here, on the driver.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from skep_table.basefile import BaseFileOptions, read_footer
from skep_table.commit.admission import check_writable
from skep_table.commit.setting import CommitSetting
from skep_table.commit.transaction import Transaction
from skep_table.errors import CommitConflictError, KeyFieldError, RowErrors
from skep_table.hooks import CommitHook, Committed
from skep_table.keys import KeyGenerator, KeyGeneratorType
from skep_table.merge import MergeRule
from skep_table.options import Options
from skep_table.schema.arrow import from_arrow, to_arrow
from skep_table.schema.avro import avro_text
from skep_table.schema.reconcile import reconcile
from skep_table.schema.types import META_FIELDS, Schema
from skep_table.table import HudiTable
from skep_table.timeline.instant import Action, Instant
from skep_table.timeline.metadata import CommitMetadata, WriteOperation, WriteStat
from skep_table.write.bucket import BucketResult
from skep_table.write.context import WriteContext
from skep_table.write.frame import plain_schema
from skep_table.write.index import NEW_KEY, IndexFile
from skep_table.write.keyed import Keyer
from skep_table.write.options import (
    COMBINE_INSERT,
    COMBINE_UPSERT,
    COMMIT_ON_ERRORS,
    MAX_FILE_BYTES,
    RECORD_BYTES,
    RECORD_BYTES_THRESHOLD,
    SMALL_FILE_BYTES,
)
from skep_table.write.profile import BucketPlan, PartitionProfile, Sizing, plan_buckets, record_bytes
from skep_table.write.result import WriteResult
from skep_table.write.rows import Rows, Tagged

log = logging.getLogger("skep.write")
BATCH_ID = "skep.batch_id"


class NullInListWarning(UserWarning):
    """Lists with null elements were written, which a JVM Hudi writer refuses to rewrite by default."""


class Engine(Protocol):
    """Where frames live and tasks run."""

    def schema(self, frame: object) -> pa.Schema:
        """The frame's columns. InputError for what is no frame."""
        ...

    def rows(self, frame: object, keyer: Keyer) -> Rows: ...

    def stream(self, frame: object, keyer: Keyer, context: WriteContext, /) -> list[BucketResult] | None:
        """Writes all rows into new files in one pass, for bulk_insert. None when the engine rather holds rows first."""
        ...


class TableWriter:
    """Writes frames into one table: each call is one commit.

    A call raises InputError for what can't be written (the table is untouched), WriteError or StorageError for a write
    that failed (and was rolled back).
    """

    def __init__(
        self,
        table: HudiTable,
        engine: Engine,
        setting: CommitSetting | None = None,
        hooks: Sequence[CommitHook] = (),
    ) -> None:
        self._table = table
        self._engine = engine
        self._setting = setting or CommitSetting()
        self._hooks = tuple(hooks)

    def bulk_insert(
        self, frame: object, *, batch_id: str | None = None, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Adds rows as new files without looking at what is there."""
        return self._write(WriteOperation.BULK_INSERT, frame, batch_id, extra_metadata)

    def insert(
        self, frame: object, *, batch_id: str | None = None, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Adds rows without looking for their keys; small files are filled up."""
        return self._write(WriteOperation.INSERT, frame, batch_id, extra_metadata)

    def upsert(
        self, frame: object, *, batch_id: str | None = None, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Updates rows whose key is there, by the table's merge rule, and adds the others."""
        return self._write(WriteOperation.UPSERT, frame, batch_id, extra_metadata)

    def delete(
        self, frame: object, *, batch_id: str | None = None, extra_metadata: Mapping[str, str] | None = None
    ) -> WriteResult:
        """Deletes the rows with the keys of `frame`, which needs the record key and partition columns only."""
        return self._write(WriteOperation.DELETE, frame, batch_id, extra_metadata)

    def _write(
        self,
        operation: WriteOperation,
        frame: object,
        batch_id: str | None,
        extra_metadata: Mapping[str, str] | None,
    ) -> WriteResult:
        """`batch_id` makes a repeated call a no-op; `extra_metadata` goes into the commit (checkpoints, say)."""
        setting = self._setting
        start = setting.clock.monotonic()
        table = self._table.reload()
        check_writable(table.config, table.storage.root)
        if batch_id is not None and (done := _committed_batch(table, batch_id)) is not None:
            setting.events.emit("write.repeated", batch_id=batch_id, instant=done.instant.requested_time)
            return done
        with setting.events.step("write", table=table.config.name, operation=operation.value) as found:
            plan = _plan(table, operation, self._engine.schema(frame), setting.options)
            extra = {**(extra_metadata or {}), **({BATCH_ID: batch_id} if batch_id is not None else {})}
            result = self._commit(table, plan, frame, extra)
            result = replace(result, seconds=setting.clock.monotonic() - start)
            found.update(instant=result.instant.requested_time, inserted=result.inserted, updated=result.updated)
        self._tell(result)
        return result

    def _commit(self, table: HudiTable, plan: _Plan, frame: object, extra: Mapping[str, str]) -> WriteResult:
        if plan.operation is WriteOperation.BULK_INSERT:
            with Transaction.begin(table, Action.COMMIT, self._setting) as transaction:
                transaction.inflight(CommitMetadata(operation_type=plan.operation))
                context = plan.context(transaction.table, transaction.instant)
                results = self._engine.stream(frame, plan.keyer, context)
                if results is not None:
                    return self._complete(transaction, plan, results, extra)
                rows = self._engine.rows(frame, plan.keyer)
                try:
                    return self._write_rows(transaction, plan, rows, extra)
                finally:
                    rows.release()
        rows = self._engine.rows(frame, plan.keyer)
        try:
            with Transaction.begin(table, Action.COMMIT, self._setting) as transaction:
                return self._write_rows(transaction, plan, rows, extra)
        finally:
            rows.release()

    def _write_rows(self, transaction: Transaction, plan: _Plan, rows: Rows, extra: Mapping[str, str]) -> WriteResult:
        table, events = transaction.table, self._setting.events
        with events.step("write.tag") as found:
            files = _latest_files(table, rows.partitions()) if plan.uses_files else {}
            tagged = rows.tag(table.storage, files if plan.looks_up_keys else None)
            profiles = _profiles(files, tagged, plan.operation)
            found.update(partitions=len(profiles), files=sum(map(len, files.values())))
        buckets = plan_buckets(profiles, plan.sizing(table), fill_small_files=plan.fills_small_files)
        _refuse_clustering(table, buckets)
        if transaction.is_requested:
            transaction.inflight(_workload(plan.operation, buckets))
        with events.step("write.files", buckets=len(buckets.buckets)):
            results = rows.write(plan.context(table, transaction.instant), buckets)
        return self._complete(transaction, plan, results, extra)

    def _complete(
        self, transaction: Transaction, plan: _Plan, results: Sequence[BucketResult], extra: Mapping[str, str]
    ) -> WriteResult:
        metadata = _metadata(plan, results, extra)
        errors = sum(stat.total_write_errors for stat in metadata.stats)
        if errors and not self._setting.options.value(COMMIT_ON_ERRORS):
            raise RowErrors(
                f"table {transaction.table.config.name}: {errors} rows without ordering value, nothing is committed",
                hint=f"{COMMIT_ON_ERRORS.key}=true leaves them out and commits the others",
                errors=errors,
                table=transaction.table.config.name,
            )
        with self._setting.events.step("write.commit"):
            instant = transaction.complete(metadata)
        _warn_of_nulls({name for result in results for name in result.lists_with_nulls})
        return WriteResult(instant, metadata, plan.schema)

    def _tell(self, result: WriteResult) -> None:
        """The commit stands whatever the hooks do; what they raise is theirs to record, and logged here."""
        config = self._table.config
        told = Committed(self._table.storage.root, config.name, result.instant, result.metadata, result.schema)
        for hook in self._hooks:
            try:
                hook(told)
            except Exception as error:
                log.exception("table %s: a hook failed after %s", config.name, result.instant.requested_time)
                self._setting.events.emit("write.hook_failed", instant=result.instant.requested_time, error=repr(error))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a write knows before it has seen a row."""

    operation: WriteOperation
    schema: Schema
    keyer: Keyer
    rule: MergeRule
    options: Options

    @property
    def looks_up_keys(self) -> bool:
        return self.operation in (WriteOperation.UPSERT, WriteOperation.DELETE)

    @property
    def fills_small_files(self) -> bool:
        return self.operation in (WriteOperation.UPSERT, WriteOperation.INSERT)

    @property
    def uses_files(self) -> bool:
        return self.operation is not WriteOperation.BULK_INSERT

    def context(self, table: HudiTable, instant: Instant) -> WriteContext:
        combine = COMBINE_UPSERT if self.looks_up_keys else COMBINE_INSERT
        auto_keys = not self.keyer.generator.record_fields
        return WriteContext(
            storage=table.storage,
            instant_time=instant.requested_time,
            operation=self.operation,
            schema=self.schema,
            rule=self.rule,
            files=BaseFileOptions.of(self.options),
            max_file_bytes=self.options.value(MAX_FILE_BYTES),
            combine=self.options.value(combine) and not auto_keys,
            auto_keys=auto_keys,
        )

    def sizing(self, table: HudiTable) -> Sizing:
        small = self.options.value(SMALL_FILE_BYTES)
        newest_first = reversed(table.timeline.data().completed().instants)
        learnt = record_bytes(
            (table.commit_metadata(instant) for instant in newest_first),
            default=self.options.value(RECORD_BYTES),
            threshold_bytes=small * self.options.value(RECORD_BYTES_THRESHOLD),
        )
        return Sizing(small, self.options.value(MAX_FILE_BYTES), learnt)


def _plan(table: HudiTable, operation: WriteOperation, incoming: pa.Schema, options: Options) -> _Plan:
    """Checks the frame's columns against the table. InputError for what does not fit."""
    config = table.config
    generator = _as_stored(table, KeyGenerator.of(config, options))
    rule = MergeRule.of(config, options)
    given = plain_schema(pa.schema([field for field in incoming if field.name not in META_FIELDS]))
    generator.check(given)
    stored = table.schema()
    if operation is WriteOperation.DELETE:
        if not generator.record_fields:
            raise KeyFieldError(
                f"table {config.name} has no record key, rows can't be deleted by key", table=config.name
            )
        wanted = {name.partition(".")[0] for name in (*generator.record_fields, *generator.partition_fields)}
        columns = pa.schema([field for field in to_arrow(stored) if field.name in wanted])
        return _Plan(operation, stored, Keyer(generator, columns), rule, options)
    if operation is WriteOperation.UPSERT:
        if not generator.record_fields:
            raise KeyFieldError(
                f"table {config.name} has no record key, so rows can't be updated; use insert", table=config.name
            )
        for name in rule.ordering_fields:
            if name.partition(".")[0] not in given.names:
                raise KeyFieldError(
                    f"table {config.name}: ordering column {name} is not among {', '.join(given.names)}", column=name
                )
    schema = reconcile(stored, from_arrow(given, stored.name, stored.namespace))
    return _Plan(operation, schema, Keyer(generator, to_arrow(schema)), rule.with_defaults(schema), options)


def _as_stored(table: HudiTable, generator: KeyGenerator) -> KeyGenerator:
    """Where Hudi's releases differ in how they write keys, a key that is there decides."""
    if generator.type is not KeyGeneratorType.COMPLEX or len(generator.record_fields) != 1:
        return generator
    for instant in reversed(table.timeline.data().completed().instants):
        for stat in table.commit_metadata(instant).stats:
            if stat.num_writes and not stat.is_log and table.storage.exists(stat.path):
                key = read_footer(table.storage, stat.path).min_key
                return generator.as_in(key) if key else generator
    return generator


def _latest_files(table: HudiTable, partitions: Mapping[str, int]) -> dict[str, tuple[IndexFile, ...]]:
    view = table.view()
    clustering = view.pending_clustering
    return {
        path: tuple(
            IndexFile(
                slice_.file_id,
                slice_.base_file.path,
                slice_.base_instant,
                slice_.base_file.size_bytes,
                clustering.get((path, slice_.file_id)),
            )
            for slice_ in view.slices(path)
            if slice_.base_file is not None
        )
        for path in partitions
    }


def _refuse_clustering(table: HudiTable, plan: BucketPlan) -> None:
    for bucket in plan.buckets:
        if bucket.base is not None and bucket.base.clustering is not None:
            raise CommitConflictError(
                f"table {table.config.name}: rows of this write lie in {bucket.base.path}, which the pending clustering"
                f" {bucket.base.clustering} is to rewrite",
                hint="let the clustering complete, or roll it back",
                instant=bucket.base.clustering,
                path=bucket.base.path,
            )


def _profiles(
    files: Mapping[str, tuple[IndexFile, ...]], tagged: Tagged, operation: WriteOperation
) -> dict[str, PartitionProfile]:
    """Keys of a delete that no file holds are dropped: there is nothing to do for them."""
    profiles = {}
    for path, counts in tagged.items():
        updates = {position: rows for position, rows in counts.items() if position != NEW_KEY}
        inserts = 0 if operation is WriteOperation.DELETE else counts.get(NEW_KEY, 0)
        profiles[path] = PartitionProfile(files.get(path, ()), updates, inserts)
    return profiles


def _workload(operation: WriteOperation, plan: BucketPlan) -> CommitMetadata:
    """What the inflight file says is coming: rows by file group."""
    stats: dict[str, list[WriteStat]] = {}
    for bucket in plan.buckets:
        planned = WriteStat(
            file_id=bucket.file_id if bucket.base else "",
            path="",
            partition_path=bucket.partition_path,
            prev_commit=bucket.base.base_instant if bucket.base else "null",
            num_update_writes=bucket.rows if bucket.base else 0,
            num_inserts=0 if bucket.base else bucket.rows,
        )
        stats.setdefault(bucket.partition_path, []).append(planned)
    return CommitMetadata(
        partition_to_write_stats={path: tuple(planned) for path, planned in stats.items()}, operation_type=operation
    )


def _metadata(plan: _Plan, results: Sequence[BucketResult], extra: Mapping[str, str]) -> CommitMetadata:
    stats: dict[str, list[WriteStat]] = {}
    for result in results:
        for stat in result.stats:
            stats.setdefault(stat.partition_path, []).append(stat)
    ordered = {path: tuple(sorted(stats[path], key=lambda stat: stat.file_id)) for path in sorted(stats)}
    return CommitMetadata(
        partition_to_write_stats=ordered,
        operation_type=plan.operation,
        extra_metadata={**extra, "schema": avro_text(plan.schema)},
    )


def _committed_batch(table: HudiTable, batch_id: str) -> WriteResult | None:
    """The commit on the active timeline that bears the batch id."""
    for instant in reversed(table.timeline.data().completed().instants):
        metadata = table.commit_metadata(instant)
        if metadata.extra_metadata.get(BATCH_ID) == batch_id:
            return WriteResult(instant, metadata, table.schema(), repeated=True)
    return None


def _warn_of_nulls(columns: set[str]) -> None:
    if columns:
        warnings.warn(
            f"null elements in the lists of {', '.join(sorted(columns))}: a JVM Hudi writer rewrites such rows"
            " only with parquet.avro.write-old-list-structure=false in its Hadoop configuration",
            NullInListWarning,
            stacklevel=5,
        )
