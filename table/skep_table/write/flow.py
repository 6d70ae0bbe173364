"""The flow of a write, the same for every engine: rows in, commit out.

    frame → schema → keyed rows → transaction { tag → profile → buckets → written files → commit metadata } → hooks

What is done with rows is the engine's (`write/rows.py`); what is decided is decided here, on the driver.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from skep_table.commit.admission import check_writable
from skep_table.commit.setting import CommitSetting
from skep_table.commit.transaction import Transaction
from skep_table.errors import CommitConflictError, InexactValueError, InputError, RowErrors, os_errors_named
from skep_table.hooks import CommitHook, Committed
from skep_table.lock import held
from skep_table.names import DEFAULT_PARTITION
from skep_table.schema.avro import avro_text
from skep_table.schema.types import Schema
from skep_table.slices.history import schema_with_ids
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.table import HudiTable
from skep_table.table_config import load_table_config, update_table_config
from skep_table.timeline.metadata import CommitMetadata, WriteOperation
from skep_table.write.again import Kept, Tries, Written
from skep_table.write.batch import Label, NoCommit
from skep_table.write.bucket import BucketResult
from skep_table.write.clustered import settle_clusterings
from skep_table.write.indexes.registry import IndexSetting
from skep_table.write.latest import latest_files
from skep_table.write.operation import TRAITS, Replaces, data_action, deletion_of
from skep_table.write.options import COMMIT_METADATA_PREFIX, COMMIT_ON_ERRORS, EMPTY_COMMITS, VALIDATORS
from skep_table.write.plan import WritePlan, plan_write
from skep_table.write.profile import plan_buckets
from skep_table.write.replaced import clusterings_met, live_groups, matching_partitions
from skep_table.write.result import WriteResult
from skep_table.write.rows import Rows
from skep_table.write.settings import check_settings, deletes_rows
from skep_table.write.sizes import sizing_of
from skep_table.write.source import Engine, Frame, Matching, Source, deleting
from skep_table.write.workload import account, groups_in_clustering, index_of, profiles_of, workload

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("skep.write")


class NullInListWarning(UserWarning):
    """Lists with null elements were written, which a JVM Hudi writer refuses to rewrite by default."""


class EmptyPartitionWarning(UserWarning):
    """Rows with an empty partition value were written into the default partition, whose value is null."""


class How(TypedDict, total=False):
    """What every write takes.

    A `batch_id` that a commit already bears makes the call a no-op; `extra_metadata` goes into the commit (checkpoints,
    say).
    """

    batch_id: str | None
    extra_metadata: Mapping[str, str] | None


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
        self._engine = engine
        self._setting = setting or CommitSetting()
        moved = self._setting.options.value(BOOTSTRAP_BASE_PATH)
        self._table = table.with_options({BOOTSTRAP_BASE_PATH.key: moved}) if moved else table
        self._hooks = tuple(hooks)

    def bulk_insert(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Adds rows as new files without looking at what is there."""
        return self.write(WriteOperation.BULK_INSERT, frame, **how)

    def insert(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Adds rows without looking for their keys; small files are filled up."""
        return self.write(WriteOperation.INSERT, frame, **how)

    def upsert(self, frame: object, *, prepped: bool = False, **how: Unpack[How]) -> WriteResult:
        """Updates rows whose key is there, by the table's merge rule, and adds the others.

        `prepped` rows were read with their meta columns, which say where they are: nothing is looked up.
        """
        return self.write(WriteOperation.UPSERT_PREPPED if prepped else WriteOperation.UPSERT, frame, **how)

    def delete(self, frame: object, *, prepped: bool = False, **how: Unpack[How]) -> WriteResult:
        """Deletes the rows with the keys of `frame`, which needs the record key and partition columns only.

        `prepped`: the rows to delete, as they were read with their meta columns.
        """
        return self.write(WriteOperation.DELETE_PREPPED if prepped else WriteOperation.DELETE, frame, **how)

    def insert_overwrite(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Replaces all rows of the partitions that `frame` has rows of."""
        return self.write(WriteOperation.INSERT_OVERWRITE, frame, **how)

    def insert_overwrite_table(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Replaces all rows of the table."""
        return self.write(WriteOperation.INSERT_OVERWRITE_TABLE, frame, **how)

    def delete_partitions(self, partitions: Sequence[str], **how: Unpack[How]) -> WriteResult:
        """Drops the rows of whole partitions, by their paths; `*` stands for any text.

        Readers that come after it don't see them, and a clean takes the files away.
        """

        def commit(table: HudiTable, label: Label) -> WriteResult:
            check_settings(table.config, table.storage.root, self._setting.options)
            self._setting.options.check_operation(WriteOperation.DELETE_PARTITION.value.lower())
            tries = Tries(self._setting)
            while True:
                try:
                    return self._drop(table, partitions, label)
                except CommitConflictError as error:
                    table = table.reload()
                    label.check(table)
                    tries.again(error)

        return self._once(WriteOperation.DELETE_PARTITION, commit, **how)

    def partitions_of(self, frame: object) -> list[str]:
        """The paths of the partitions that the rows of `frame` belong to."""
        table = self._table.reload()
        with Frame(self._engine, frame, table) as source:
            plan = plan_write(table, WriteOperation.INSERT, source.schema(table), self._setting.options)
            return sorted(source.rows(plan, table).partitions())

    def delete_where(self, where: str, **how: Unpack[How]) -> WriteResult:
        """Deletes the rows for which a SQL predicate holds in the table as the write finds it."""
        operation = deleting(self._table)

        def commit(table: HudiTable, label: Label) -> WriteResult:
            with Matching(self._engine, where, table.options) as source:
                return self._commit(table, operation, source, label)

        return self._once(operation, commit, **how)

    def write(self, operation: WriteOperation, frame: object, **how: Unpack[How]) -> WriteResult:
        """`frame` by an operation that takes rows: the methods above by name."""
        if deletes_rows(self._setting.options):
            operation = deletion_of(operation)

        def commit(table: HudiTable, label: Label) -> WriteResult:
            with Frame(self._engine, frame, table) as source:
                return self._commit(table, operation, source, label)

        return self._once(operation, commit, **how)

    def _once(
        self,
        operation: WriteOperation,
        commit: Callable[[HudiTable, Label], WriteResult],
        batch_id: str | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> WriteResult:
        setting = self._setting
        start = setting.clock.monotonic()
        table = self._table.reload()
        check_writable(table.config, table.storage.root)
        prefix = setting.options.value(COMMIT_METADATA_PREFIX)
        extra = {key: value for key, value in setting.options.items() if prefix and key.startswith(prefix)}
        label = Label({**extra, **(extra_metadata or {})}, batch_id)
        try:
            label.check(table)
            with (
                os_errors_named(f"table {table.config.name}: {operation.value}"),
                setting.events.step("write", table=table.config.name, operation=operation.value) as found,
            ):
                result = replace(commit(table, label), seconds=setting.clock.monotonic() - start)
                found.update(instant=result.instant.requested_time, **result.counts)
        except NoCommit as done:
            told = "write.repeated" if done.result.repeated else "write.empty"
            setting.events.emit(told, batch_id=batch_id, instant=done.result.instant.requested_time)
            return done.result
        self._tell(result)
        return result

    def _commit(self, table: HudiTable, operation: WriteOperation, source: Source, label: Label) -> WriteResult:
        """Tries again after conflicts, as often as the options say, with the rows that it holds already."""
        options, tries = self._setting.options, Tries(self._setting)
        widened: frozenset[str] = frozenset()
        plan = plan_write(table, operation, source.schema(table), options)
        options.check_operation(operation.value.lower())
        while True:
            try:
                return self._attempt(table, plan, source, label, tries)
            except _ColumnsChanged:
                pass  # nothing was written yet
            except InexactValueError as error:
                # a column whose type does not hold the frame's values gets one that does, where there is one
                widened |= {str(error.fields["column"])}
                wider = plan_write(table, operation, source.schema(table), options, widened)
                if wider.schema == plan.schema:
                    raise
                source.release()
                plan = wider
                continue
            except CommitConflictError as error:
                label.check(table.reload())
                tries.again(error)
            before, table = table, table.reload()
            if _columns_differ(before, table):
                source.release()
                plan = plan_write(table, operation, source.schema(table), options, widened)

    def _attempt(self, table: HudiTable, plan: WritePlan, source: Source, label: Label, tries: Tries) -> WriteResult:
        source.prepare(plan)
        with Transaction.begin(table, plan.traits.action(data_action(table)), self._setting) as transaction:
            label.check(transaction.table)
            if _columns_differ(table, transaction.table):
                raise _ColumnsChanged
            if plan.streams:
                transaction.inflight(CommitMetadata(operation_type=plan.operation))
                results = source.stream(plan, plan.context(transaction.table, transaction.instant))
                if results is not None:
                    return self._complete(transaction, plan, results, label)
            rows, former = source.rows(plan, transaction.table), None
            while True:
                written = self._write_rows(transaction, plan, rows, former)
                try:
                    return self._complete(transaction, plan, written.results, label, written.replaced)
                except CommitConflictError as error:
                    if not (tries and source.is_steady and written.may_stay(plan)):
                        raise
                    former = self._kept(transaction, written, error)
                    label.check(transaction.table)
                    tries.again(error, kept=former.kept)

    def _kept(self, transaction: Transaction, written: Written, error: CommitConflictError) -> Kept:
        """What need not be written again, at the same instant. Raises the error where it takes another one."""
        before = transaction.table
        changed = transaction.go_on()
        if changed is None or _columns_differ(before, transaction.table):
            raise error
        return Kept(written, changed)

    def _write_rows(self, transaction: Transaction, plan: WritePlan, rows: Rows, former: Kept | None) -> Written:
        table, events = transaction.table, self._setting.events
        with events.step("write.tag") as found:
            files = latest_files(table, self._searched(table, plan, rows.partitions()))
            tagged = rows.tag(index_of(table, plan, files) if plan.asks_index else None)
            profiles = profiles_of(table, files, tagged, plan)
            found.update(partitions=len(profiles), files=sum(map(len, files.values())))
        replaced = self._replaced(table, plan, rows.partitions())
        context = plan.context(table, transaction.instant)
        sizing = sizing_of(table, plan, profiles, context, rows.sample)
        buckets = plan_buckets(profiles, sizing, fill_small_files=plan.fills_small_files)
        settle_clusterings(table, groups_in_clustering(buckets), self._setting)
        self._record_index(table, plan)
        if transaction.is_requested:
            transaction.inflight(workload(plan.operation, buckets))
        left, kept = former.rest(buckets) if former else (buckets, ())
        with events.step("write.files", buckets=len(buckets.buckets)):
            results = rows.write(context, left)
        return Written(buckets, (*kept, *results), replaced)

    def _record_index(self, table: HudiTable, plan: WritePlan) -> None:
        """What later writers need to find the keys of this one."""
        missing = {key: text for key, text in plan.index.recorded.items() if key not in table.config.raw}
        if missing:
            with held(self._setting.lock, self._setting.lock_timeout_seconds):
                IndexSetting.of(load_table_config(table.storage), plan.options)  # another first writer may differ
                update_table_config(table.storage, missing)

    def _searched(self, table: HudiTable, plan: WritePlan, partitions: Iterable[str]) -> Iterable[str]:
        """The partitions whose files matter: none where all rows go to new groups."""
        if plan.traits.replaces is not Replaces.NOTHING:
            return ()
        if plan.asks_index and plan.index.is_global and not plan.traits.prepped:
            return table.view().partitions()
        return partitions if plan.asks_index or plan.fills_small_files else ()

    def _replaced(
        self, table: HudiTable, plan: WritePlan, partitions: Iterable[str]
    ) -> Mapping[str, tuple[str, ...]] | None:
        if plan.traits.replaces is Replaces.NOTHING:
            return None
        view = table.view()
        every = plan.traits.replaces is Replaces.TABLE
        replaced = live_groups(view, view.partitions() if every else partitions, self._setting.runner)
        settle_clusterings(table, clusterings_met(replaced, view), self._setting)
        return replaced

    def _drop(self, table: HudiTable, partitions: Sequence[str], label: Label) -> WriteResult:
        operation = WriteOperation.DELETE_PARTITION
        check_settings(table.config, table.storage.root, self._setting.options)
        with Transaction.begin(table, TRAITS[operation].action(data_action(table)), self._setting) as transaction:
            table = transaction.table
            label.check(table)
            view = table.view()
            replaced = live_groups(view, matching_partitions(partitions, view.partitions()), self._setting.runner)
            settle_clusterings(table, clusterings_met(replaced, view), self._setting)
            transaction.inflight(CommitMetadata(operation_type=operation))
            schema = table.schema()
            metadata = CommitMetadata(
                operation_type=operation,
                extra_metadata={
                    **schema_with_ids(table),
                    **label.extra,
                    "schema": avro_text(table.without_dropped(schema)),
                },
                partition_to_replace_file_ids=replaced,
            )
            self._refuse_empty(transaction, metadata, schema)
            self._validate(transaction, metadata)
            return WriteResult(transaction.complete(metadata, label.check), metadata, schema)

    def _complete(
        self,
        transaction: Transaction,
        plan: WritePlan,
        results: Sequence[BucketResult],
        label: Label,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
    ) -> WriteResult:
        extra = {**schema_with_ids(transaction.table), **label.extra}
        metadata = replace(account(plan, results, extra), partition_to_replace_file_ids=replaced)
        errors = sum(stat.total_write_errors for stat in metadata.stats)
        if errors and not self._setting.options.value(COMMIT_ON_ERRORS):
            raise RowErrors(
                f"table {transaction.table.config.name}: {errors} rows without ordering value, nothing is committed",
                hint=f"{COMMIT_ON_ERRORS.key}=true leaves them out and commits the others",
                errors=errors,
                table=transaction.table.config.name,
            )
        self._refuse_empty(transaction, metadata, plan.schema)
        self._validate(transaction, metadata)
        if plan.index.keeps_keys:
            from skep_table.write.indexes.hbase import record_keys

            with self._setting.events.step("write.index"):
                record_keys(transaction.table, plan.options, transaction.instant.requested_time, metadata.stats)
        with self._setting.events.step("write.commit"):
            instant = transaction.complete(metadata, label.check)
        _warn_of_nulls({name for result in results for name in result.lists_with_nulls})
        _warn_of_empty({name for result in results for name in result.empty_partitions})
        return WriteResult(instant, transaction.committed or metadata, plan.schema)

    def _refuse_empty(self, transaction: Transaction, metadata: CommitMetadata, schema: Schema) -> None:
        is_empty = not metadata.stats and not metadata.partition_to_replace_file_ids
        if is_empty and not self._setting.options.value(EMPTY_COMMITS):
            raise NoCommit(WriteResult(transaction.instant, metadata, schema, empty=True))

    def _validate(self, transaction: Transaction, metadata: CommitMetadata) -> None:
        if VALIDATORS.key in self._setting.options:
            from skep_table.write.validate import validate

            with self._setting.events.step("write.validate"):
                validate(transaction.table, transaction.instant, metadata, self._setting.options)

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
            except BaseException:
                log.warning(
                    "table %s: what follows commit %s (syncs, services, callbacks) was interrupted; the commit stands",
                    *(config.name, result.instant.requested_time),
                )
                raise


class _ColumnsChanged(InputError):
    """Another write changed the table's columns since this one was planned: it would drop what it does not know."""

    def __init__(self) -> None:
        super().__init__("the table's columns were changed meanwhile")


def _columns_differ(before: HudiTable, now: HudiTable) -> bool:
    if before.timeline.data().completed().last() == now.timeline.data().completed().last():
        return False
    return before.schema() != now.schema()


def _warn_of_nulls(columns: set[str]) -> None:
    if columns:
        warnings.warn(
            f"null elements in the lists of {', '.join(sorted(columns))}: a JVM Hudi writer rewrites such rows"
            " only with parquet.avro.write-old-list-structure=false in its Hadoop configuration",
            NullInListWarning,
            stacklevel=5,
        )


def _warn_of_empty(columns: set[str]) -> None:
    if columns:
        warnings.warn(
            f"empty text in partition column {', '.join(sorted(columns))}: the rows are in the default partition"
            f" ({DEFAULT_PARTITION}), and engines that take partition values from paths read null",
            EmptyPartitionWarning,
            stacklevel=5,
        )
