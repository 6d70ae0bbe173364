"""The flow of a write, the same for every engine: rows in, commit out.

    frame → schema → keyed rows → transaction { tag → profile → buckets → written files → commit metadata } → hooks

The engine processes rows (`write/rows.py`); every decision is taken here, on the driver.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

from skep_format.errors import CommitConflictError, InexactValueError, InputError, RowErrors, SkepError, os_errors_named
from skep_format.names import DEFAULT_PARTITION
from skep_format.schema.avro import avro_text
from skep_format.schema.change import ColumnChange
from skep_format.schema.types import Schema
from skep_format.table_config import load_table_config, update_table_config
from skep_format.timeline.metadata import CommitMetadata, WriteOperation
from skep_format.timeline.plans import RequestedReplaceMetadata
from skep_table.commit.parts.batches import CommitLabel, NoCommit
from skep_table.commit.plaintext import check_plaintext, marks_of
from skep_table.commit.transaction import Transaction
from skep_table.commit.writable import check_writable
from skep_table.hooks import CommitHook, Committed, started
from skep_table.keys.hash_rings import mark, renewed_rings, with_groups_of_rings
from skep_table.metadata_write.kinds.contract import FoundByTasks
from skep_table.metadata_write.updates import NOTHING_FOUND
from skep_table.query.cleaned import has_lost_indexes
from skep_table.slices.history import ids_of_commit, schema_with_ids
from skep_table.table import HudiTable
from skep_table.write.conflict_retry import AttemptFiles, ConflictRetries, Kept
from skep_table.write.indexes import index_of, refuse_other_buckets
from skep_table.write.input.source import Computed, Frame, FrameEngine, Recomputed, RowSource, deleting
from skep_table.write.output.bucket import BucketResult
from skep_table.write.output.replaced import (
    check_within,
    clusterings_met,
    live_groups,
    matching_partitions,
    refuse_reused_names,
)
from skep_table.write.output.sizes import sizing_of
from skep_table.write.planning.candidates import CandidateFiles, candidate_files
from skep_table.write.planning.doubled import with_copies
from skep_table.write.planning.operation import TRAITS, Replaces, data_action, deletion_of
from skep_table.write.planning.options import COMMIT_ON_ERRORS
from skep_table.write.planning.pending_clusterings import settle_clusterings
from skep_table.write.planning.plan import WritePlan, plan_write
from skep_table.write.planning.profile import plan_buckets
from skep_table.write.planning.settings import check_settings
from skep_table.write.planning.workload import (
    commit_metadata,
    found_by_tasks,
    groups_in_clustering,
    profiles_of,
    tagged_in,
    tagging_of,
    workload,
)
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.result import WriteResult
from skep_table.write.rows import KeyedRows

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from skep_format.runner import Runner
    from skep_table.write.bootstrap.run import SourceRows
    from skep_table.write.bootstrap.source import SourceData

_RECENT_SECONDS: Final = 5.0
_OF_METADATA_TABLE: Final = ("hoodie.table.metadata.", "hoodie.table.index.")

log = logging.getLogger("skep.write")


class NullInListWarning(UserWarning):
    """Lists with null elements were written, which a JVM Hudi writer refuses to rewrite by default."""


class EmptyPartitionWarning(UserWarning):
    """Rows with an empty partition value were written into the default partition, whose value is null."""


class How(TypedDict, total=False):
    """What every write takes.

    A `batch_id` that a commit already has makes the call a no-op; `extra_metadata` goes into the commit (checkpoints,
    for example).
    """

    batch_id: str | None
    extra_metadata: Mapping[str, str] | None


class RowlessCommit(Protocol):
    """A commit that has no rows, of a table as an attempt finds it."""

    def __call__(self, table: HudiTable, *, label: CommitLabel) -> WriteResult: ...


class TableWriter:
    """Writes frames into one table: each call is one commit.

    A call raises InputError for what can't be written (the table is untouched), WriteError or StorageError for a write
    that failed (and was rolled back).
    """

    def __init__(
        self,
        table: HudiTable,
        engine: FrameEngine,
        settings: WriteSettings,
        hooks: Sequence[CommitHook] = (),
        create: Callable[[], object] | None = None,
    ) -> None:
        """`create` makes the table, once the rows of the first write were checked; until then `table` is planned."""
        self._create = create
        self._engine = engine
        self._settings = settings
        self._table = table
        self._hooks = self._started = tuple(hooks)

    def bulk_insert(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Adds rows as new files, without reading the table's."""
        return self.write(WriteOperation.BULK_INSERT, frame, **how)

    def insert(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Adds rows without looking their keys up; small files are filled up."""
        return self.write(WriteOperation.INSERT, frame, **how)

    def upsert(self, frame: object, *, prepped: bool = False, partial: bool = False, **how: Unpack[How]) -> WriteResult:
        """Updates rows whose key is in the table, by its merge rule, and adds the others.

        `prepped` rows were read with their meta columns: only those that name no file are looked up. `partial`: the
        frame has the key, the ordering column and some others; the columns that it lacks stay as they are, and are null
        in rows that are added.
        """
        operation = WriteOperation.UPSERT_PREPPED if prepped else WriteOperation.UPSERT
        return self.write(operation, frame, partial=partial, **how)

    def delete(self, frame: object, *, prepped: bool = False, **how: Unpack[How]) -> WriteResult:
        """Deletes the rows with the keys of `frame`, which needs the record key and partition columns only.

        `prepped`: the rows to delete, as they were read with their meta columns.
        """
        return self.write(WriteOperation.DELETE_PREPPED if prepped else WriteOperation.DELETE, frame, **how)

    def insert_overwrite(
        self, frame: object, *, partitions: Mapping[str, object] | None = None, **how: Unpack[How]
    ) -> WriteResult:
        """Replaces all rows of the partitions that `frame` has rows of.

        `partitions` names others: those in which the columns have these values, {} all of them, whether `frame` has
        rows or not. InputError for rows of another partition.
        """
        return self.write(WriteOperation.INSERT_OVERWRITE, frame, partitions=partitions, **how)

    def insert_overwrite_table(self, frame: object, **how: Unpack[How]) -> WriteResult:
        """Replaces all rows of the table."""
        return self.write(WriteOperation.INSERT_OVERWRITE_TABLE, frame, **how)

    def delete_partitions(self, partitions: Sequence[str], **how: Unpack[How]) -> WriteResult:
        """Drops the rows of whole partitions, by their paths; `*` stands for any text.

        Later snapshots don't contain them, and a clean deletes the files.
        """
        drop = partial(self._drop, partitions=partitions)
        return self._run(WriteOperation.DELETE_PARTITION, drop, **how)

    def alter(self, changes: Sequence[ColumnChange], **how: Unpack[How]) -> WriteResult:
        """Renames, drops, adds, moves or retypes columns by their ids; files stay as they are.

        SchemaError and InputError, with the column, for a change that Hudi refuses.
        """
        from skep_table.write.alter import commit_changes

        return self._run(WriteOperation.ALTER_SCHEMA, partial(commit_changes, changes=changes), **how)

    def bootstrap(self, source: SourceData, *, extra_metadata: Mapping[str, str] | None = None) -> list[WriteResult]:
        """Makes the first commits of a table of what a folder holds: of skeletons, of rows, or one of each.

        Where a call was ended between the two, the next one goes on. InputError for a table with other commits,
        KeyFieldError and SchemaError for files that don't fit it, UnsupportedError where it can't have skeletons.
        """
        from skep_table.write.bootstrap.run import Bootstrap, OfRows, OfSkeletons

        work = Bootstrap(source, self._settings, self._complete, self._executors)
        self._table = work.prepared(self._table.reload())
        results = []
        if work.makes_skeletons(self._table):
            extra = {**(extra_metadata or {}), **work.states}
            write, alone = work.commit_skeletons, not work.makes_rows
            kind = WriteOperation.BOOTSTRAP
            results.append(self._run(kind, write, extra_metadata=extra, labelled=OfSkeletons, is_last=alone))
        if work.makes_rows:
            self._table = self._table.reload()
            frame = Frame(self._engine, self._read(work.rows(self._table)))
            try:
                kind = WriteOperation.BULK_INSERT
                results.append(self._run(kind, frame, extra_metadata=extra_metadata, labelled=OfRows))
            except Exception:
                work.undo(self._table.reload())
                raise
        return results

    @property
    def _executors(self) -> Runner | None:
        """What runs tasks on other machines, where something does."""
        return None

    def _read(self, rows: SourceRows) -> object:
        """A frame of the rows."""
        return rows.read()

    def partitions_of(self, frame: object) -> list[str]:
        """The paths of the partitions that the rows of `frame` belong to."""
        table = self._table.reload()
        with Frame(self._engine, frame) as source:
            plan = self._plan(table, WriteOperation.INSERT, source)
            return sorted(source.rows(plan, table).partitions())

    def change(
        self,
        compute: Callable[[HudiTable], pa.Table],
        sets: Collection[str] | None = None,
        compute_set: Callable[[HudiTable], pa.Table] | None = None,
        **how: Unpack[How],
    ) -> WriteResult:
        """Updates, deletes and adds rows in one commit: those that `compute` makes of the table as the write finds it.

        See `Computed` for what it returns. It is called again after a conflict, with the table as it is then: no
        concurrent write is lost. New rows are looked up as those of an upsert are; the table's merge rule holds. `sets`
        are the columns that its updates change: where the table can have partial updates, only these are written.
        """
        source = Computed(self._engine, compute, sets=sets, compute_set=compute_set)
        return self._run(WriteOperation.UPSERT_PREPPED, source, **how)

    def delete_computed(self, compute: Callable[[HudiTable], pa.Table], **how: Unpack[How]) -> WriteResult:
        """Deletes the stored rows that `compute` finds in the table as the write finds it: their `columns_that_find`.

        `matching` finds those for which a predicate holds.
        """
        return self._run(deleting(self._table), Computed(self._engine, compute, deletes=True), **how)

    def replace_computed(
        self, partitions: Collection[str], compute: Callable[[HudiTable], pa.Table], **how: Unpack[How]
    ) -> WriteResult:
        """Replaces the rows of these partitions by those that `compute` makes of the table as the write finds it."""
        return self._run(WriteOperation.INSERT_OVERWRITE, Recomputed(self._engine, compute, partitions), **how)

    def write(
        self,
        operation: WriteOperation,
        frame: object,
        *,
        partitions: Mapping[str, object] | None = None,
        partial: bool = False,
        **how: Unpack[How],
    ) -> WriteResult:
        """`frame` by an operation that takes rows: the methods above by name."""
        if self._settings.deletes_rows:
            operation = deletion_of(operation)
        return self._run(operation, Frame(self._engine, frame, partial=partial), partitions, **how)

    def _run(
        self,
        operation: WriteOperation,
        source: RowSource | RowlessCommit,
        partitions: Mapping[str, object] | None = None,
        batch_id: str | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        *,
        labelled: type[CommitLabel] = CommitLabel,
        is_last: bool = True,
    ) -> WriteResult:
        """What follows a commit follows the one that `is_last` of a call."""
        self._started = self._hooks
        with self._engine.running():
            context = self._table.context
            start = context.clock.monotonic()
            # The transaction begins with a snapshot under the lock; this one is for planning, and may be a little older
            known = self._create is not None or self._table.age_seconds < _RECENT_SECONDS
            table = self._table if known else self._table.reload()
            check_writable(table.config, table.storage.root)
            if isinstance(source, RowSource) or labelled is not CommitLabel:  # others write no files
                check_plaintext(table)
            extra = {**self._settings.extra_metadata, **(extra_metadata or {}), **marks_of(table)}
            label = labelled(extra, batch_id)
            try:
                try:
                    label.check(table)
                except NoCommit:
                    if table is not self._table:
                        raise
                    # the snapshot is a little older: the commit that holds the batch may have been rolled back since
                    table, label = table.reload(), labelled(label.extra, batch_id)
                    label.check(table)
                with (
                    os_errors_named(f"table {table.config.name}: {operation.value}"),
                    context.events.step("write", table=table.config.name, operation=operation.value) as found,
                ):
                    if isinstance(source, RowSource):
                        with source:
                            result = self._commit(table, operation, source, label, partitions)
                    else:
                        result = self._commit_without_rows(table, operation, source, label)
                    result = replace(result, seconds=context.clock.monotonic() - start)
                    found.update(instant=result.instant.requested_time, **result.counts)
            except NoCommit as done:
                event = "write.repeated" if done.repeated else "write.empty"
                context.events.emit(event, batch_id=batch_id, instant=done.instant.requested_time)
                return WriteResult(
                    done.instant, done.metadata, done.schema, repeated=done.repeated, empty=not done.repeated
                )
            if is_last:
                self._call_hooks(result)
            return result

    def _commit_without_rows(
        self, table: HudiTable, operation: WriteOperation, commit: RowlessCommit, label: CommitLabel
    ) -> WriteResult:
        """Tries again after conflicts, on the table as it is then."""
        check_settings(table.config, table.storage.root, self._settings.options)
        self._settings.options.check_operation(operation.value.lower())
        tries = ConflictRetries(self._table.context, self._settings.conflict_retries)
        while True:
            try:
                return commit(table, label=label)
            except CommitConflictError as error:
                table = table.reload()
                label.check(table)
                tries.again(error)

    def _plan(
        self,
        table: HudiTable,
        operation: WriteOperation,
        source: RowSource,
        partitions: Mapping[str, object] | None = None,
        widened: frozenset[str] = frozenset(),
    ) -> WritePlan:
        columns = source.schema(table)
        return plan_write(table, operation, columns, self._settings, widened, partitions, source.sets)

    def _commit(
        self,
        table: HudiTable,
        operation: WriteOperation,
        source: RowSource,
        label: CommitLabel,
        partitions: Mapping[str, object] | None = None,
    ) -> WriteResult:
        """Tries again after conflicts, as often as the options allow, with the rows that it holds already."""
        tries = ConflictRetries(self._table.context, self._settings.conflict_retries)
        widened: frozenset[str] = frozenset()
        try:
            plan = self._plan(table, operation, source, partitions)
        except SkepError:
            if self._create is not None:
                raise
            fresh = table.reload()
            if fresh.timeline.instants == table.timeline.instants and fresh.config == table.config:
                raise
            table = fresh
            plan = self._plan(table, operation, source, partitions)
        self._settings.options.check_operation(operation.value.lower())
        while True:
            try:
                if self._create is not None:
                    source.check(plan)
                    self._create()
                    self._create, table = None, table.reload()
                return self._attempt(table, plan, source, label, tries)
            except _PlanOutdated:
                pass  # nothing of it remains
            except InexactValueError as error:
                # a column whose type does not hold the frame's values gets one that does, where there is one
                widened |= {str(error.fields["column"])}
                wider = self._plan(table, operation, source, partitions, widened)
                if wider.schema == plan.schema:
                    raise
                source.release()
                plan = wider
                continue
            except CommitConflictError as error:
                if label.batch_id is not None:  # the other write may have been of the same batch
                    label.check(table.reload())
                tries.again(error)
            before, table = table, table.reload()
            if _plan_is_outdated(before, table):
                source.release()
                plan = self._plan(table, operation, source, partitions, widened)

    def _attempt(
        self, table: HudiTable, plan: WritePlan, source: RowSource, label: CommitLabel, tries: ConflictRetries
    ) -> WriteResult:
        source.prepare(plan)
        with Transaction.begin(table, plan.traits.action(data_action(table)), label) as transaction:
            if _plan_is_outdated(table, transaction.table):
                raise _PlanOutdated
            refuse_other_buckets(transaction.table, plan.index)
            if plan.streams:
                transaction.inflight(None)
                plan.index.before_writing(transaction.table, transaction.instant.requested_time)
                context = plan.context(transaction.table, transaction.instant)
                results = source.stream(plan, context)
                if results is not None:
                    return self._complete(transaction, plan, results, label, found=found_by_tasks(context, results))
            rows, former = source.rows(plan, transaction.table), None
            while True:
                written = self._write_rows(transaction, plan, rows, former, source.replaces)
                try:
                    return self._complete(transaction, plan, written.results, label, written.replaced, written.found)
                except CommitConflictError as error:
                    if not (tries and source.is_steady and written.may_stay(plan)):
                        raise
                    former = self._kept(transaction, written, error)
                    tries.again(error, kept=former.kept)

    def _kept(self, transaction: Transaction, written: AttemptFiles, error: CommitConflictError) -> Kept:
        """What need not be written again, at the same instant. Raises the error where it takes another one."""
        before = transaction.table
        changed = transaction.retry()
        if changed is None or _plan_is_outdated(before, transaction.table):
            raise error
        return Kept(written, changed)

    def _write_rows(
        self,
        transaction: Transaction,
        plan: WritePlan,
        rows: KeyedRows,
        former: Kept | None,
        replaces: frozenset[str],
    ) -> AttemptFiles:
        table, events = transaction.table, self._table.context.events
        replaced = self._replaced(table, plan, rows, replaces)  # first: a look-up may make hash rings
        with events.step("write.tag") as found, _whole_indexes(table):
            files = self._candidate_files(table, plan, rows)
            if plan.traits.replaces is not Replaces.NOTHING and plan.index.places_new_keys:
                files = CandidateFiles(dict.fromkeys(rows.partitions(), ()))
            tagging = tagging_of(table, plan, files, all_named=rows.all_named) if plan.uses_index else None
            tagged = rows.tag(tagging)
            profiles = profiles_of(table, files, tagged, plan)
            found.update(partitions=len(profiles), files=sum(map(len, files.values())), index=plan.uses_index)
        context = plan.context(table, transaction.instant)
        sizing = sizing_of(table, plan, profiles, context, rows)
        buckets = plan_buckets(
            profiles,
            sizing,
            fill_small_files=plan.fills_small_files,
            names=plan.index.names,
            named=tagging.look_up.new_group if tagging is not None else None,
        )
        met = groups_in_clustering(buckets)
        if settle_clusterings(table, met, may_double=plan.partial is None):
            buckets = with_copies(table, buckets, met)
        refuse_reused_names(table, buckets.buckets, plan.index.names)
        self._record_index(table, plan)
        if transaction.is_requested:
            transaction.inflight(workload(plan.operation, buckets))
        left, kept = former.rest(buckets) if former else (buckets, ())
        paths = frozenset(bucket.partition_path for bucket in buckets.buckets)
        self._started = tuple(started(self._hooks, table, paths))
        plan.index.before_writing(table, transaction.instant.requested_time)
        with events.step("write.files", buckets=len(buckets.buckets)):
            results = rows.write(context, left)
        every = (*kept, *results)
        return AttemptFiles(buckets, every, replaced, found_by_tasks(context, every, tagged_in(plan, buckets.buckets)))

    def _record_index(self, table: HudiTable, plan: WritePlan) -> None:
        """What later writers need to find the keys of this one."""
        missing = {key: text for key, text in plan.index.recorded.items() if key not in table.config.raw}
        if missing:
            with self._table.context.locked():
                index_of(load_table_config(table.storage), plan.settings.options)  # another first writer may differ
                update_table_config(table.storage, missing)

    def _candidate_files(self, table: HudiTable, plan: WritePlan, rows: KeyedRows) -> CandidateFiles:
        """The files that matter: none where all rows go to new groups."""
        if plan.traits.replaces is not Replaces.NOTHING or not (plan.uses_index or plan.fills_small_files):
            return CandidateFiles()
        if plan.looks_up(all_named=rows.all_named):
            return plan.index.candidate_files(table, rows.partitions(), rows.keys)
        return candidate_files(table, rows.partitions())

    def _replaced(
        self, table: HudiTable, plan: WritePlan, rows: KeyedRows, others: frozenset[str]
    ) -> Mapping[str, tuple[str, ...]] | None:
        """The groups of the partitions of the rows, and of others, where the operation replaces them."""
        if plan.traits.replaces is Replaces.NOTHING:
            return None
        view, partitions = table.view(), (*rows.partitions(), *others)
        if plan.replaced is not None:
            check_within(partitions, plan.replaced, table.config.name)
            partitions = tuple(plan.replaced.of_paths(view.partitions()))
        elif plan.traits.replaces is Replaces.TABLE:
            partitions = tuple(view.partitions())
        replaced = live_groups(view, partitions, self._table.context.runner)
        settle_clusterings(table, clusterings_met(replaced, view))
        return with_groups_of_rings(table, replaced, partitions)

    def _drop(self, table: HudiTable, label: CommitLabel, partitions: Sequence[str]) -> WriteResult:
        operation = WriteOperation.DELETE_PARTITION
        request = RequestedReplaceMetadata(operation_type=operation.value, extra_metadata={}, version=1)
        with Transaction.begin(table, TRAITS[operation].action(data_action(table)), label, request) as transaction:
            table = transaction.table
            view = table.view()
            named = matching_partitions(partitions, view.partitions())
            live = live_groups(view, named, self._table.context.runner)
            settle_clusterings(table, clusterings_met(live, view))
            replaced = with_groups_of_rings(table, live, named)
            transaction.inflight(CommitMetadata(operation_type=operation))
            schema = table.schema()
            metadata = CommitMetadata(
                operation_type=operation,
                extra_metadata={
                    **ids_of_commit(table, table.without_dropped(schema), transaction.instant.requested_time),
                    **label.extra,
                    "schema": avro_text(table.without_dropped(schema)),
                },
                partition_to_replace_file_ids=replaced,
            )
            self._check(transaction, metadata, schema)
            instant = transaction.complete(metadata)
            _mark_rings(transaction, metadata)
            return WriteResult(instant, transaction.committed or metadata, schema, table=transaction.after)

    def _complete(
        self,
        transaction: Transaction,
        plan: WritePlan,
        results: Sequence[BucketResult],
        label: CommitLabel,
        replaced: Mapping[str, tuple[str, ...]] | None = None,
        found: FoundByTasks = NOTHING_FOUND,
    ) -> WriteResult:
        time = transaction.instant.requested_time
        extra = {**ids_of_commit(transaction.table, plan.in_files, time), **label.extra}
        metadata = replace(commit_metadata(plan, results, extra), partition_to_replace_file_ids=replaced)
        errors = sum(stat.total_write_errors for stat in metadata.stats)
        if errors and not self._settings.commit_on_errors:
            raise RowErrors(
                f"table {transaction.table.config.name}: {errors} rows without ordering value, nothing is committed",
                hint=f"{COMMIT_ON_ERRORS.key}=true leaves them out and commits the others",
                errors=errors,
                table=transaction.table.config.name,
            )
        self._check(transaction, metadata, plan.schema)
        with self._table.context.events.step("write.commit"):
            instant = transaction.complete(metadata, found)
        _mark_rings(transaction, metadata)
        try:
            plan.index.after_commit(transaction.after or transaction.table, instant.requested_time)
        except Exception:
            log.exception("table %s: the index failed after %s", self._table.config.name, instant.requested_time)
        _warn_of(results)
        return WriteResult(instant, transaction.committed or metadata, plan.schema, table=transaction.after)

    def _check(self, transaction: Transaction, metadata: CommitMetadata, schema: Schema) -> None:
        """NoCommit for an empty commit where these are off; what validators raise."""
        is_empty = not metadata.stats and not metadata.partition_to_replace_file_ids
        if is_empty and not self._settings.empty_commits:
            raise NoCommit(transaction.instant, metadata, schema, repeated=False)
        if self._settings.validates:
            from skep_table.write.validate import validate

            with self._table.context.events.step("write.validate"):
                validate(transaction.table, transaction.instant, metadata, self._settings.options)

    def _call_hooks(self, result: WriteResult) -> None:
        """Errors of hooks are logged and not raised, since the commit is complete; a hook records what to retry."""
        config = self._table.config
        committed = Committed(result.table or self._table.reload(), result.instant, result.metadata, result.schema)
        for hook in self._started:
            try:
                committed = hook(committed) or committed
            except Exception as error:
                log.exception("table %s: a hook failed after %s", config.name, result.instant.requested_time)
                self._table.context.events.emit(
                    "write.hook_failed", instant=result.instant.requested_time, error=repr(error)
                )
            except BaseException:
                log.warning(
                    "table %s: what follows commit %s (syncs, services, callbacks) was interrupted; the commit remains",
                    *(config.name, result.instant.requested_time),
                )
                raise


class _PlanOutdated(InputError):
    """Columns or settings of the table changed since the write was planned: it would drop columns, or break rules.

    Or its metadata table was dropped while the write looked its keys up.
    """

    def __init__(self) -> None:
        super().__init__("columns or settings of the table were changed since the write was planned")


@contextmanager
def _whole_indexes(table: HudiTable) -> Iterator[None]:
    """Raises _PlanOutdated where a partition of the metadata table was dropped while it was read.

    Of one that is deleted by half, files are missing, and keys that the table holds would be taken for new ones.
    """
    try:
        yield
    except (SkepError, FileNotFoundError) as error:
        if has_lost_indexes(table):
            raise _PlanOutdated from error
        raise
    if has_lost_indexes(table):
        raise _PlanOutdated


def _mark_rings(transaction: Transaction, metadata: CommitMetadata) -> None:
    """Marks the hash rings that a completed commit has renewed."""
    time = transaction.instant.requested_time
    if not metadata.partition_to_replace_file_ids:
        return
    try:
        mark(transaction.table, time, renewed_rings(transaction.table, metadata))
    except OSError:  # the next writer does it
        log.exception("table %s: %s has no markers of its hash rings", transaction.table.config.name, time)


def _plan_is_outdated(before: HudiTable, now: HudiTable) -> bool:
    """Whether a plan for `before` does not fit `now`: columns, or settings other than those of a metadata table."""
    if _settings(before) != _settings(now):
        return True
    if before.timeline.data().completed().last() == now.timeline.data().completed().last():
        return False
    return before.schema() != now.schema() or schema_with_ids(before) != schema_with_ids(now)


def _settings(table: HudiTable) -> dict[str, str]:
    return {key: text for key, text in table.config.raw.items() if not key.startswith(_OF_METADATA_TABLE)}


def _warn_of(results: Iterable[BucketResult]) -> None:
    nulls, empty = set[str](), set[str]()
    for result in results:
        nulls.update(result.lists_with_nulls)
        empty.update(result.empty_partitions)
    if nulls:
        warnings.warn(
            f"null elements in the lists of {', '.join(sorted(nulls))}: a JVM Hudi writer rewrites such rows"
            " only with parquet.avro.write-old-list-structure=false in its Hadoop configuration",
            NullInListWarning,
            stacklevel=5,
        )
    if empty:
        warnings.warn(
            f"empty text, or {DEFAULT_PARTITION}, in partition column {', '.join(sorted(empty))}: the rows are in the"
            " default partition, that of null, and engines that take partition values from paths read null",
            EmptyPartitionWarning,
            stacklevel=5,
        )
