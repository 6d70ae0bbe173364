"""A bootstrap: skeletons under the first instant, rows that are written again under the second (format guide 17)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import BaseFileOptions
from skep_format.errors import (
    CorruptFileError,
    InputError,
    KeyFieldError,
    SchemaError,
    SkepError,
    TableMismatchError,
    UnsupportedError,
)
from skep_format.instant_time import InstantTime
from skep_format.names import BaseFormat, MarkerType
from skep_format.runner import ReportingRunner, Runner, ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import PARTITION_PATH, Schema, type_text
from skep_format.table_config import DROP_PARTITION_COLUMNS, POPULATE_META_FIELDS, update_table_config
from skep_format.table_config.keys import BASE_FORMAT
from skep_format.timeline.metadata import WriteOperation, WriteStat
from skep_table.commit.parts.batches import CommitLabel
from skep_table.commit.transaction import Transaction
from skep_table.commit.undo.rollback import roll_back
from skep_table.commit.writable import prepared
from skep_table.keys import KeyGenerator
from skep_table.query.ahead import default_workers, in_order
from skep_table.slices.bootstrap import BOOTSTRAP_LEFT, METADATA_BOOTSTRAP, folders_left, indexed_sources
from skep_table.slices.bootstrap_index import Mapped, write_index
from skep_table.slices.options import BOOTSTRAP_BASE_PATH
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapMode, BootstrapSettings
from skep_table.write.bootstrap.source import SourceData, SourceFile, SourceFolder
from skep_table.write.context import WriteContext
from skep_table.write.input.row_input import RereadInput
from skep_table.write.keyed import Keyer
from skep_table.write.output.bucket import BucketResult
from skep_table.write.output.files import BaseFiles
from skep_table.write.planning.operation import data_action
from skep_table.write.planning.plan import WritePlan, plan_write
from skep_table.write.planning.profile import Bucket, new_file_id
from skep_table.write.planning.write_settings import WriteSettings
from skep_table.write.result import WriteResult

SKELETON: Final = Schema((), "HoodieRecordKey", "")
"""The data columns of a skeleton: none. Hudi's name of its Avro record."""


@dataclass(frozen=True, slots=True)
class SkeletonTask:
    """One source file, of which a skeleton is to be made."""

    number: int
    folder: SourceFolder
    file: SourceFile


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """How the rows of a source are keyed, and the columns which that takes."""

    keyer: Keyer
    columns: Schema

    def of(self, source: SourceData, folder: SourceFolder, file: SourceFile) -> Iterator[pa.Table]:
        """Rows with key and partition path, in the order of the file. KeyFieldError as `check_partition`."""
        for batch in source.rows_of(folder, file, self.columns):
            keyed = self.keyer.keyed(batch)
            check_partition(source, folder, file, keyed.column(PARTITION_PATH))
            yield keyed


def check_partition(source: SourceData, folder: SourceFolder, file: SourceFile, paths: pa.ChunkedArray) -> None:
    """KeyFieldError where the key generator puts rows into another partition than that of their folder.

    Updates would look for them there.
    """
    others = [path for path in pc.unique(paths).to_pylist() if path != folder.partition_path]
    if others:
        raise KeyFieldError(
            f"{source.storage.uri(file.path)}: its rows would be in partition {folder.partition_path!r}, and the"
            f" table's key generator puts them into {others[0]!r}",
            hint="hive_style names folders column=value, url_encode encodes what is special in them; the option"
            " hoodie.bootstrap.partitionpath.translator.class decodes it",
            path=source.storage.uri(file.path),
            found=others[0],
            expected=folder.partition_path,
        )


def write_skeleton(
    context: WriteContext, source: SourceData, keys: KeyColumns, task: SkeletonTask
) -> tuple[WriteStat, Mapped]:
    """Writes the skeleton of one file. CorruptFileError where that has changed meanwhile, else as `KeyColumns.of`."""
    folder, file = task.folder, task.file
    file_id = new_file_id().rpartition("-")[0]  # Hudi's have no number
    files = BaseFiles(context, Bucket(task.number, folder.partition_path, file_id))
    with files.open(file_id, MarkerType.CREATE) as skeleton:
        for keyed in keys.of(source, folder, file):
            skeleton.insert(files.new(keyed, skeleton.name))
    uri = source.storage.uri(file.path)
    if skeleton.rows != file.rows:
        raise CorruptFileError(
            f"{uri} had {file.rows} rows a moment ago, and now {skeleton.rows}",
            path=uri,
            found=skeleton.rows,
            expected=file.rows,
        )
    stat = files.stat(skeleton, num_inserts=skeleton.rows)
    return stat, Mapped(folder.partition_path, file_id, folder.path, uri, file.size_bytes, file.modified_ms)


FULL_BOOTSTRAP: Final = InstantTime("00000000000002")
"""The instant of rows that are written in full."""

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("skep.write")


class _FirstCommit(CommitLabel):
    """At a time before all others: there are no commits but those of the bootstrap itself."""

    before: tuple[InstantTime, ...] = ()

    def check(self, table: HudiTable) -> None:
        super().check(table)
        refuse_commits(table, self.before)


class OfSkeletons(_FirstCommit):
    """The commit of skeletons."""

    at = METADATA_BOOTSTRAP


class OfRows(_FirstCommit):
    """The commit of rows, before which the one of skeletons may be there."""

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


Complete = Callable[[Transaction, WritePlan, Sequence[BucketResult], CommitLabel], WriteResult]
"""Completes a write with the stats of its files: `TableWriter`'s."""


@dataclass(frozen=True, slots=True)
class SourceRows:
    """The rows of source files, of which so many are read at the same time at most. Pickles."""

    source: SourceData
    generator: KeyGenerator
    files: tuple[tuple[SourceFolder, SourceFile], ...]
    parallelism: int

    def of(self, place: tuple[SourceFolder, SourceFile]) -> Iterator[pa.RecordBatch]:
        """Those of one file. KeyFieldError as `check_partition`."""
        folder, file = place
        for batch in self.source.rows_of(folder, file, self.source.columns):
            if folder.path:  # files of no partition are divided by the generator
                paths = pa.chunked_array([self.generator.partition_paths(batch)])
                check_partition(self.source, folder, file, paths)
            yield batch

    def read(self) -> RereadInput:
        """In this process: all of them in the order of the files; a few are read at once."""
        workers = min(self.parallelism, default_workers())
        return RereadInput(to_arrow(self.source.columns), lambda: in_order(self.files, self.of, workers))


class Bootstrap:
    """What becomes of a source, for the writer that commits it. The source never changes."""

    def __init__(
        self, source: SourceData, settings: WriteSettings, complete: Complete, executors: Runner | None = None
    ) -> None:
        """`executors` make the skeletons; without any the threads of the table's runner do."""
        self._source, self._settings, self._complete = source, settings, complete
        self._executors = executors
        self._folders = source.of_mode(BootstrapMode.METADATA_ONLY)
        self._full = source.of_mode(BootstrapMode.FULL_RECORD)

    @property
    def makes_rows(self) -> bool:
        """Whether some folders are written in full."""
        return bool(self._full)

    @property
    def states(self) -> dict[str, str]:
        """In the extra metadata of the commit of skeletons: that rows are to follow."""
        return {BOOTSTRAP_LEFT: str(len(self._full))} if self._full else {}

    def makes_skeletons(self, table: HudiTable) -> bool:
        """Whether some are to be made, and are not there."""
        return bool(self._folders) and not self._resumes(table)

    def prepared(self, table: HudiTable) -> HudiTable:
        """The table with the settings by which its readers find the source. Raises what does not fit."""
        check_apart(table, self._source)
        refuse_commits(table, (METADATA_BOOTSTRAP,) if self._resumes(table) else ())
        check_fits(table, self._source)
        key, value = table.format.bootstrap_index
        wanted = {BOOTSTRAP_BASE_PATH.key: self._source.path, key: value}
        if any(table.config.raw.get(key) != value for key, value in wanted.items()):
            with table.context.locked():
                update_table_config(table.storage, wanted)
            table = table.reload()
        return table

    def commit_skeletons(self, table: HudiTable, *, label: CommitLabel) -> WriteResult:
        """One commit of a skeleton for each file."""
        source, plan = self._source, self._plan(table)
        settings, keys = BootstrapSettings.of(self._settings.options), _key_columns(plan, source)
        tasks = [SkeletonTask(number, *place) for number, place in enumerate(_places(self._folders))]
        with Transaction.begin(table, data_action(table), label) as transaction:
            transaction.inflight(None)
            now, time = transaction.table, transaction.instant.requested_time
            plan.index.before_writing(now, time)
            context = replace(plan.context(now, transaction.instant), schema=SKELETON, facts=None)
            write = partial(write_skeleton, context, source.unlisted(), keys)
            with now.context.events.step("write.files", files=len(tasks)):
                written = self._each(now, settings.parallelism, write, tasks)
            millis = int(now.context.clock.now().timestamp() * 1000)
            write_index(now.storage, source.path, [mapped for _, mapped in written], millis)
            results = [BucketResult((stat,)) for stat, _ in written]
            return self._complete(transaction, replace(plan, operation=WriteOperation.BOOTSTRAP), results, label)

    def rows(self, table: HudiTable) -> SourceRows:
        """The rows of all folders that are written in full."""
        return SourceRows(
            self._source.unlisted(),
            KeyGenerator.of(table.config, self._settings.options),
            tuple(_places(self._full)),
            BootstrapSettings.of(self._settings.options).parallelism,
        )

    def undo(self, table: HudiTable) -> None:
        """After rows that could not be written: the commit of skeletons is rolled back, unless others wrote since.

        A failure in that is logged: the next call goes on where this one ended.
        """
        try:
            with table.context.locked():
                fresh = prepared(table)
                data = fresh.timeline.data().completed()
                last = data.last()
                if last is not None and last.requested_time == METADATA_BOOTSTRAP:
                    roll_back(fresh, last)
        except SkepError:
            log.exception("table %s: the skeletons of its bootstrap stay", table.config.name)

    def _each(self, table: HudiTable, most: int, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Results in any order. So many tasks at the same time, at most."""
        if self._executors is None:
            return list(_at_most(table, most).map(function, tasks))
        found = self._executors.map(partial(_all, function), [tasks[at::most] for at in range(min(most, len(tasks)))])
        return [result for part in found for result in part]

    def _plan(self, table: HudiTable) -> WritePlan:
        plan = plan_write(table, WriteOperation.BULK_INSERT, to_arrow(self._source.columns), self._settings)
        if plan.index.places_new_keys:
            problem = "its index computes the file group of a key, and METADATA_ONLY makes a group of each source file"
            hint = "bootstrap with FULL_RECORD, or with another hoodie.index.type"
            raise table.error(UnsupportedError, problem, hint=hint)
        return plan

    def _resumes(self, table: HudiTable) -> bool:
        """Whether skeletons are there, and their commit states that rows are to follow.

        TableMismatchError where they are of other files.
        """
        if not self._full or not folders_left(table):
            return False
        uri = self._source.storage.uri
        differs = sorted({uri(file.path) for each in self._folders for file in each.files} ^ indexed_sources(table))
        if differs:
            raise table.error(
                TableMismatchError,
                f"its bootstrap was ended in the middle, and the one that is to go on differs in {len(differs)} files"
                f" such as {differs[0]}",
                hint="repeat it with the same options, or roll it back",
                path=differs[0],
            )
        return True


def _places(folders: Iterable[SourceFolder]) -> Iterator[tuple[SourceFolder, SourceFile]]:
    """Each file with its folder, which does not bring the others along to a task."""
    for folder in folders:
        alone = replace(folder, files=())
        yield from ((alone, file) for file in folder.files)


def _all(function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    return [function(task) for task in tasks]


def _at_most(table: HudiTable, parallelism: int) -> Runner:
    runner, report = table.context.runner, partial(table.context.events.progress, "write.tasks")
    if isinstance(runner, ThreadRunner) and parallelism < runner.threads:
        runner = ThreadRunner(parallelism)
    return ReportingRunner(runner, report)


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
            raise SchemaError.of_table(
                config.name,
                f"column {differs} is {expected.get(differs, 'missing')} there, and {found.get(differs, 'missing')} in"
                f" {source.path}, where columns of folder names are text",
                column=differs,
                found=found.get(differs),
                expected=expected.get(differs),
            )
    check_format(source, config.base_format, config.name)
    if not source.of_mode(BootstrapMode.METADATA_ONLY):
        return
    refused = {
        f"{POPULATE_META_FIELDS}=false": not config.populate_meta_fields,
        f"{DROP_PARTITION_COLUMNS}=true": config.drop_partition_columns,
    }
    for what in (name for name, is_so in refused.items() if is_so):
        problem = f"with {what} it can't have skeletons, which hold meta columns alone"
        raise UnsupportedError.of_table(config.name, problem, hint="bootstrap with FULL_RECORD")
    if not config.record_key_fields:
        raise KeyFieldError(
            f"table {config.name} has no record key, which METADATA_ONLY reads from the files",
            hint="bootstrap with FULL_RECORD, or name the key",
            table=config.name,
        )


def check_format(source: SourceData, base_format: BaseFormat, table: str) -> None:
    """UnsupportedError where a table with base files in this format can't have the skeletons."""
    found = source.skeletons
    if found not in (None, base_format):
        raise UnsupportedError.of_table(
            table,
            f"its base files are {base_format.value} ({BASE_FORMAT}), and the files of {source.path}, whose skeletons"
            f" would be among them, are {found.value}: Hudi reads both in one format",
            hint=f"a new table without {BASE_FORMAT} has that of the files; FULL_RECORD writes their rows in any",
            path=source.path,
            found=found.value,
            expected=base_format.value,
        )


def _key_columns(plan: WritePlan, source: SourceData) -> KeyColumns:
    """A key generator of the user's own gets all columns."""
    generator = plan.keyer.generator
    wanted = {name.partition(".")[0] for name in (*generator.record_fields, *generator.partition_fields)}
    names = tuple(name for name in source.columns.names() if generator.own or name in wanted)
    target = pa.schema([plan.keyer.target.field(name) for name in names])
    return KeyColumns(replace(plan.keyer, target=target), source.columns.select(names))


_FOOTER_BYTES: Final = 2048
_NUMBER_BYTES: Final = 5  # of a row, for its number in the commit


def check_planned(table: HudiTable, source: SourceData) -> None:
    """What a bootstrap of a table that is there would raise before it writes."""
    check_apart(table, source)
    refuse_commits(table, (METADATA_BOOTSTRAP,) if folders_left(table) else ())
    check_fits(table, source)


def folders_of(source: SourceData, files: BaseFileOptions) -> list[dict[str, Any]]:
    """A row for each folder: what is read of it, and about what is written, by listings and footers alone."""
    return [
        {
            "folder": folder.path,
            "partition": folder.partition_path,
            "mode": folder.mode.value,
            "files": len(folder.files),
            "rows": folder.rows,
            "bytes_read": sum(_read(folder, file) for file in folder.files),
            "bytes_written": sum(_written(folder, file, files) for file in folder.files),
        }
        for folder in source.folders
    ]


def _read(folder: SourceFolder, file: SourceFile) -> int:
    return file.size_bytes if folder.mode is BootstrapMode.FULL_RECORD else file.key_bytes


def _written(folder: SourceFolder, file: SourceFile, files: BaseFileOptions) -> int:
    """Keys are written in the meta columns, whose other values hardly take anything, and in the filter."""
    meta = file.key_bytes + file.rows * _NUMBER_BYTES + files.filter_bytes(file.rows) + _FOOTER_BYTES
    return meta + (file.size_bytes if folder.mode is BootstrapMode.FULL_RECORD else 0)
