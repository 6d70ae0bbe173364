"""A bootstrap: skeletons under the first instant, rows that are written again under the second (format guide 17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa

from skep_format.errors import InputError, KeyFieldError, SchemaError, TableMismatchError, UnsupportedError
from skep_format.instant_time import InstantTime
from skep_format.runner import ReportingRunner, Runner, ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import Schema, type_text
from skep_format.table_config import DROP_PARTITION_COLUMNS, POPULATE_META_FIELDS, update_table_config
from skep_format.timeline.metadata import WriteOperation
from skep_table.commit.parts.batches import CommitLabel
from skep_table.commit.transaction import Transaction
from skep_table.keys import KeyGenerator
from skep_table.slices.bootstrap import BOOTSTRAP_LEFT, METADATA_BOOTSTRAP, indexed_sources
from skep_table.slices.bootstrap_index import write_index
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapMode, BootstrapSettings
from skep_table.write.bootstrap.skeletons import SKELETON, KeyColumns, SkeletonTask, check_partition, write_skeleton
from skep_table.write.bootstrap.source import SourceData
from skep_table.write.input.row_input import RereadInput
from skep_table.write.local import LocalWriter
from skep_table.write.output.bucket import BucketResult
from skep_table.write.planning.operation import data_action
from skep_table.write.planning.plan import WritePlan, plan_write
from skep_table.write.result import WriteResult

FULL_BOOTSTRAP: Final = InstantTime("00000000000002")
"""The instant of rows that are written in full."""


class _Label(CommitLabel):
    """At a time before all others: there are no commits but those of the bootstrap itself."""

    before: tuple[InstantTime, ...] = ()

    def check(self, table: HudiTable) -> None:
        super().check(table)
        refuse_commits(table, self.before)


class _OfSkeletons(_Label):
    at = METADATA_BOOTSTRAP


class _OfRows(_Label):
    at = FULL_BOOTSTRAP
    before = (METADATA_BOOTSTRAP,)


def refuse_commits(table: HudiTable, known: tuple[InstantTime, ...] = ()) -> None:
    """InputError for a table with completed commits at other times than these."""
    found = [each for each in table.timeline.data().completed().instants if each.requested_time not in known]
    if found:
        raise InputError(
            f"table {table.config.name} at {table.storage.root} has commit {found[0].requested_time}, and a bootstrap"
            " is the first write of a table",
            hint="roll that back, or bootstrap another table",
            table=table.config.name,
            path=table.storage.root,
            instant=found[0].requested_time,
        )


class BootstrapWriter(LocalWriter):
    """Makes the first commits of a table of what a folder holds. The folder never changes."""

    def bootstrap(self, source: SourceData, extra_metadata: Mapping[str, str] | None = None) -> list[WriteResult]:
        """The commits: of skeletons, of rows, or both. Where a call was ended between them, the next one goes on.

        InputError for a table with other commits, KeyFieldError and SchemaError for files that don't fit it,
        UnsupportedError for a table that can't have skeletons.
        """
        table = self._table.reload()
        check_apart(table, source)
        skeletons, full = source.of_mode(BootstrapMode.METADATA_ONLY), source.of_mode(BootstrapMode.FULL_RECORD)
        resumes = bool(full) and _has_skeletons(table, source)
        refuse_commits(table, (METADATA_BOOTSTRAP,) if resumes else ())
        check_fits(table, source)
        self._record(table, source)
        hooks, results = self._hooks, []
        try:
            if skeletons and not resumes:
                self._hooks = () if full else hooks  # what follows a commit follows the last one
                self._label = _OfSkeletons
                left = {BOOTSTRAP_LEFT: str(len(full))} if full else {}
                write = partial(self._skeletons, source=source)
                extra = {**(extra_metadata or {}), **left}
                results.append(self._run(WriteOperation.BOOTSTRAP, write, extra_metadata=extra))
            if full:
                self._hooks, self._label = hooks, _OfRows
                self._table = self._table.reload()
                results.append(self.bulk_insert(self._rows(source), extra_metadata=extra_metadata))
        finally:
            self._hooks, self._label = hooks, CommitLabel
        return results

    def _record(self, table: HudiTable, source: SourceData) -> None:
        """What readers of skeletons need, in the settings of the table."""
        key, value = table.format.bootstrap_index
        wanted = {BOOTSTRAP_BASE_PATH.key: source.path, key: value}
        if any(table.config.raw.get(key) != value for key, value in wanted.items()):
            with self._table.context.locked():
                update_table_config(table.storage, wanted)
            self._table = table.reload()

    def _skeletons(self, table: HudiTable, *, label: CommitLabel, source: SourceData) -> WriteResult:
        plan = self._plan_of(table, source)
        settings = BootstrapSettings.of(self._settings.options)
        keys = _key_columns(plan, source)
        pairs = ((f, file) for f in source.of_mode(BootstrapMode.METADATA_ONLY) for file in f.files)
        tasks = [SkeletonTask(number, *pair) for number, pair in enumerate(pairs)]
        with Transaction.begin(table, data_action(table), label) as transaction:
            transaction.inflight(None)
            now, time = transaction.table, transaction.instant.requested_time
            plan.index.before_writing(now, time)
            context = replace(plan.context(now, transaction.instant), schema=SKELETON, facts=None)
            with now.context.events.step("write.files", files=len(tasks)):
                written = self._at_most(settings.parallelism).map(partial(write_skeleton, context, source, keys), tasks)
            millis = int(now.context.clock.now().timestamp() * 1000)
            write_index(now.storage, source.path, [mapped for _, mapped in written], millis)
            results = [BucketResult((stat,)) for stat, _ in written]
            return self._complete(transaction, replace(plan, operation=WriteOperation.BOOTSTRAP), results, label)

    def _plan_of(self, table: HudiTable, source: SourceData) -> WritePlan:
        plan = plan_write(table, WriteOperation.BULK_INSERT, to_arrow(source.columns), self._settings)
        if plan.index.places_new_keys:
            raise UnsupportedError(
                f"table {table.config.name}: its index computes the file group of a key, and METADATA_ONLY makes"
                " a group of each source file",
                hint="bootstrap with FULL_RECORD, or with another hoodie.index.type",
                table=table.config.name,
            )
        return plan

    def _at_most(self, parallelism: int) -> Runner:
        threads = self._table.context.runner
        if isinstance(threads, ThreadRunner) and parallelism < threads.threads:
            return ReportingRunner(
                ThreadRunner(parallelism), partial(self._table.context.events.progress, "write.tasks")
            )
        return self._runner

    def _rows(self, source: SourceData) -> RereadInput:
        """The rows of all folders that are written in full, file by file."""
        generator = KeyGenerator.of(self._table.config, self._settings.options)

        def batches() -> Iterator[pa.RecordBatch]:
            for folder in source.of_mode(BootstrapMode.FULL_RECORD):
                for file in folder.files:
                    for batch in source.rows_of(folder, file, source.columns):
                        if folder.path:  # files of no partition are divided by the generator
                            paths = pa.chunked_array([generator.partition_paths(batch)])
                            check_partition(source, folder, file, paths)
                        yield batch

        return RereadInput(to_arrow(source.columns), batches)


def check_apart(table: HudiTable, source: SourceData) -> None:
    """InputError where one of the folders of table and source lies in the other."""
    ours, theirs = (f"{storage.uri('').rstrip('/')}/" for storage in (table.storage, source.storage))
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise InputError(
            f"the source {source.path} and table {table.config.name} at {table.storage.root} lie in each other",
            path=source.path,
            found=table.storage.root,
        )


def check_fits(table: HudiTable, source: SourceData) -> None:
    """SchemaError where a table that is there has other columns; UnsupportedError where it can't have skeletons."""
    config = table.config
    try:
        known: Schema | None = table.schema()
    except SchemaError:  # it was made without any
        known = None
    if known is not None:
        expected, found = ({f.name: type_text(f.type) for f in each.fields} for each in (known, source.columns))
        differs = next((name for name in (*expected, *found) if expected.get(name) != found.get(name)), None)
        if differs is not None:
            raise SchemaError(
                f"table {config.name}: column {differs} is {expected.get(differs, 'missing')} there, and"
                f" {found.get(differs, 'missing')} in {source.path}, where columns of folder names are text",
                column=differs,
                found=found.get(differs),
                expected=expected.get(differs),
            )
    if not source.of_mode(BootstrapMode.METADATA_ONLY):
        return
    refused = {
        f"{POPULATE_META_FIELDS}=false": not config.populate_meta_fields,
        f"{DROP_PARTITION_COLUMNS}=true": config.drop_partition_columns,
    }
    for what in (name for name, is_so in refused.items() if is_so):
        raise UnsupportedError(
            f"table {config.name}: with {what} it can't have skeletons, which hold meta columns alone",
            hint="bootstrap with FULL_RECORD",
            table=config.name,
        )
    if not config.record_key_fields:
        raise KeyFieldError(
            f"table {config.name} has no record key, which METADATA_ONLY reads from the files",
            hint="bootstrap with FULL_RECORD, or name the key",
            table=config.name,
        )


def _has_skeletons(table: HudiTable, source: SourceData) -> bool:
    """Whether skeletons are there, and their commit states that rows are to follow.

    TableMismatchError where they are of other files.
    """
    completed = table.timeline.data().completed()
    last = completed.last()
    if last is None or last.requested_time != METADATA_BOOTSTRAP or BOOTSTRAP_LEFT not in table.commit_extra(last):
        return False
    folders = source.of_mode(BootstrapMode.METADATA_ONLY)
    expected = {source.storage.uri(file.path) for folder in folders for file in folder.files}
    differs = sorted(expected ^ indexed_sources(table))
    if differs:
        raise TableMismatchError(
            f"table {table.config.name}: its bootstrap was ended in the middle, and the one that is to go on differs in"
            f" {len(differs)} files such as {differs[0]}",
            hint="repeat it with the same options, or roll it back",
            table=table.config.name,
            path=differs[0],
        )
    return True


def _key_columns(plan: WritePlan, source: SourceData) -> KeyColumns:
    """A key generator of the user's own gets all columns."""
    generator = plan.keyer.generator
    wanted = {name.partition(".")[0] for name in (*generator.record_fields, *generator.partition_fields)}
    names = tuple(name for name in source.columns.names() if generator.own or name in wanted)
    target = pa.schema([plan.keyer.target.field(name) for name in names])
    return KeyColumns(replace(plan.keyer, target=target), source.columns.select(names))
