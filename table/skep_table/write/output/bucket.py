"""Writing one bucket: a new version of a base file with updates merged in, new files with inserts, or log files.

Streams: the base file passes row group by row group, only the bucket's own rows are in memory. Kept rows keep their
meta columns but for the file name (format guide 5.1); a file whose rows are all deleted is written empty (8.3).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import OpenBaseFile, open_base
from skep_format.errors import CorruptFileError, FormatError
from skep_format.names import BaseFormat, MarkerType
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_format.storage import FileStatus
from skep_format.timeline.metadata import WriteStat
from skep_table.merge import DELETED, MergeRule, Updates, latest_per_key, mark_deleted
from skep_table.merge.rows import POSITION, deleted, in_delete_block
from skep_table.write.context import WriteContext
from skep_table.write.input.conform import empty_partitions, lists_with_nulls
from skep_table.write.keyed import comparable
from skep_table.write.output.append import append_rows
from skep_table.write.output.base_rows import ArrivingKeys, BaseRows
from skep_table.write.output.change_log import ChangeLog, changes_beside
from skep_table.write.output.files import BaseFiles, OpenFile, RowNumbers, file_id_of
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.planning.profile import OVER, Bucket
from skep_table.write.planning.range_sort import arranged
from skep_table.write.tags import NOT_HELD, Positions

if TYPE_CHECKING:  # tasks import it where there are statistics to be kept
    from skep_table.metadata_write.facts.files import ColumnReader, FileFacts

_BATCH_ROWS = 65_536
_BATCH_SHARE = 0.1


class Noted:
    """List columns with null elements, and partition columns with empty text, in the rows that a task writes."""

    def __init__(self) -> None:
        self.lists: dict[str, None] = {}
        self.empty: dict[str, None] = {}

    def add(self, context: WriteContext, partition_path: str, rows: pa.Table) -> None:
        """Rows of one partition."""
        if context.files.format is BaseFormat.PARQUET:  # JVM Hudi writes such lists into ORC files
            self.lists.update(dict.fromkeys(lists_with_nulls(rows)))
        self.empty.update(dict.fromkeys(empty_partitions(rows, context.partition_fields, (partition_path,))))


@dataclass(frozen=True, slots=True)
class BucketResult:
    """The files a bucket became, and what column statistics record of them.

    The driver warns of list columns with null elements, and of partition columns with empty text.
    """

    stats: tuple[WriteStat, ...]
    lists_with_nulls: tuple[str, ...] = ()
    empty_partitions: tuple[str, ...] = ()
    facts: tuple[FileFacts, ...] = ()

    @classmethod
    def of(
        cls, context: WriteContext, stats: Iterable[WriteStat], noted: Noted, known: Sequence[FileFacts] = ()
    ) -> BucketResult:
        """With the facts of the files, in a table that keeps column statistics; those that are not `known` are read
        from the files. Facts that are not sure are left to a reader that knows the table.
        """
        stats, names = tuple(stats), {facts.name for facts in known}
        unread = [stat for stat in stats if stat.path.rpartition("/")[2] not in names]
        facts = () if context.facts is None else _sure_facts(context.facts, unread)
        return cls(stats, tuple(noted.lists), tuple(noted.empty), (*known, *facts))


def _sure_facts(reader: ColumnReader, stats: Iterable[WriteStat]) -> Iterator[FileFacts]:
    for stat in (each for each in stats if each.path):
        file = stat.partition_path, FileStatus(stat.path, stat.file_size_in_bytes, 0)
        with suppress(FormatError, FileNotFoundError):  # a rollback may delete it: the commit fails then
            found = reader.read(file)
            if found.summaries:
                yield found


def write_bucket(context: WriteContext, bucket: Bucket, rows: pa.Table | Iterable[pa.Table]) -> BucketResult:
    """Writes keyed rows (`write/keyed.py`) into the bucket's file group. Raises what storage and merge raise.

    Rows may come in several tables, each key in one of them where rows are combined: new groups and logs hold only one
    table at a time, a merge into a base file holds them all.
    """
    return _BucketWriter(context, bucket).write((rows,) if isinstance(rows, pa.Table) else rows)


class InsertWriter:
    """New file groups for one partition: the bucket's own, and further ones with its UUID when a file is full.

    Rows are written in the order in which they come, but for those that are marked as deletes. Leaving the block
    without `close` deletes the open file.
    """

    def __init__(
        self,
        context: WriteContext,
        bucket: Bucket,
        numbers: RowNumbers | None = None,
        files: BaseFiles | None = None,
        noted: Noted | None = None,
    ) -> None:
        self._files = files or BaseFiles(context, bucket, numbers)
        self._noted = noted or Noted()
        self._context = context
        self._bucket = bucket
        self._stats: list[WriteStat] = []
        self._open: ExitStack | None = None
        self._file: OpenFile | None = None

    def __enter__(self) -> InsertWriter:
        return self

    def __exit__(self, *error: object) -> None:
        if self._open is not None:
            self._open.__exit__(*sys.exc_info())

    def write(self, rows: pa.Table) -> None:
        """Appends keyed rows; a full file is closed and another one opened, except in a bucket of one file."""
        self._noted.add(self._context, self._bucket.partition_path, rows)
        rows = _without_deletes(rows, self._context.rule)
        step = _batch_rows(rows, self._context.max_file_bytes)
        for start in range(0, rows.num_rows, step):
            file = self._file or self._next_file()
            file.insert(self._files.new(rows.slice(start, step), file.name))
            if not self._bucket.one_file and self._is_full(file, rows.num_rows - start - step):
                self._close_file()

    def _is_full(self, file: OpenFile, left: int) -> bool:
        """Unless what is left to write is too little for a file of its own."""
        most, writer = self._context.max_file_bytes, file.writer
        return writer.reaches(most) and not 0 < left * writer.record_bytes <= writer.rows * OVER * most

    @property
    def held_bytes(self) -> int:
        """Arrow data of the open file that is not in it yet."""
        return 0 if self._file is None else self._file.writer.held_bytes

    def flush(self) -> None:
        """Ends the row group of the open file."""
        if self._file is not None:
            self._file.writer.flush()

    def close(self) -> list[WriteStat]:
        """The stats of all files. An empty bucket still gets its file: a new group without rows."""
        if self._file is None and not self._stats:
            self._next_file()
        self._close_file()
        return self._stats

    def result(self) -> BucketResult:
        """Of all files, which it closes."""
        return BucketResult.of(self._context, self.close(), self._noted)

    def _next_file(self) -> OpenFile:
        self._open = ExitStack()
        file_id = file_id_of(self._bucket, len(self._stats))
        self._file = self._open.enter_context(self._files.open(file_id, MarkerType.CREATE))
        return self._file

    def _close_file(self) -> None:
        file, stack = self._file, self._open
        self._file = self._open = None
        if file is not None and stack is not None:
            stack.close()
            self._stats.append(self._files.stat(file, num_inserts=file.rows))


class _BucketWriter:
    def __init__(self, context: WriteContext, bucket: Bucket) -> None:
        self._context = context
        self._bucket = bucket
        self._files = BaseFiles(context, bucket)
        self._errors = 0
        self._noted = Noted()

    def write(self, tables: Iterable[pa.Table]) -> BucketResult:
        base = self._bucket.base
        facts: list[FileFacts] = []
        if self._bucket.to_log:
            stats, facts = append_rows(self._context, self._bucket, map(self._observed, tables))
        elif base is None:
            stats = self._insert(map(self._settled, tables))
        else:
            rows = self._observed(pa.concat_tables(tables))
            stats = [self._add(base, rows) if self._context.appends else self._merge(base, rows)]
        stats[0] = replace(stats[0], total_write_errors=self._errors)
        return BucketResult.of(self._context, stats, self._noted, facts)

    def _settled(self, rows: pa.Table) -> pa.Table:
        """Rows that can be written, one a key where that is asked for."""
        context, partial = self._context, self._context.partial
        rows, errors = _without_null_ordering(_placed_once(rows), context)
        self._errors += errors
        if context.combine and not context.deletes:
            rule = context.rule.of_batch
            rows = latest_per_key(rows, rule) if partial is None else partial.latest(rows, rule)
        return rows

    def _observed(self, rows: pa.Table) -> pa.Table:
        rows = self._settled(rows)
        self._noted.add(self._context, self._bucket.partition_path, rows)
        return rows

    def _insert(self, tables: Iterable[pa.Table]) -> list[WriteStat]:
        context = self._context
        if context.arrangement is not None:
            tables = arranged(tables, context.arrangement, context.memory)
        with InsertWriter(context, self._bucket, files=self._files, noted=self._noted) as inserts:
            for rows in tables:
                inserts.write(rows)
            return inserts.close()

    def _add(self, base: CandidateFile, rows: pa.Table) -> WriteStat:
        """`insert` into a small file: what it holds stays, equal keys too."""
        rows = _without_deletes(rows, self._context.rule)
        with (
            self._files.open(base.file_id, MarkerType.MERGE) as file,
            self._opened(base) as held,
            self._changes(file) as changes,
        ):
            inserts = self._files.new(rows, file.name)
            passing = BaseRows.of(self._context, base, held, file.writer, ArrivingKeys.after(inserts))
            for batch in passing.batches(self._texts):
                passing.write(batch, file.name)
            file.insert(inserts)
            logged = _ended(changes, inserts)
        return self._files.stat(file, base, num_inserts=rows.num_rows, changes=logged)

    def _merge(self, base: CandidateFile, rows: pa.Table) -> WriteStat:
        with (
            self._files.open(base.file_id, MarkerType.MERGE) as file,
            self._opened(base) as held,
            self._changes(file) as changes,
        ):
            rows = _placed_in(base, rows)
            arriving = self._files.new(rows, file.name, merges=True)
            if self._context.deletes:
                arriving = mark_deleted(arriving)
            elif DELETED in rows.schema.names:
                arriving = arriving.append_column(DELETED, rows.column(DELETED))
            partial = self._context.partial
            if partial is not None:
                arriving = partial.merging(rows, arriving)
            passing = BaseRows.of(self._context, base, held, file.writer, ArrivingKeys.of(rows))
            if passing.positions is not None:
                arriving = arriving.append_column(POSITION, pa.array(passing.positions))
            kept = () if partial is None else partial.kept_in_files
            updates = Updates(arriving, self._context.rule, changes, kept)
            needed = self._needed(base, rows, passing.positions, updates) if changes is None else None
            for batch in passing.batches(self._texts if updates.takes_encoded else (), needed):
                merged = updates.apply(self._keyed(batch), passing.start)
                passing.write(merged, file.name)
                file.merged(merged, self._context.instant_time)
            _check_met(base, updates)
            inserts = updates.rest()
            if partial is not None:
                partial.check_new(inserts.num_rows)
            file.insert(inserts)
            logged = _ended(changes, inserts)
        return self._files.stat(
            file,
            base,
            num_inserts=inserts.num_rows,
            num_update_writes=updates.updated,
            num_deletes=updates.deleted,
            changes=logged,
        )

    def _needed(
        self, base: CandidateFile, rows: pa.Table, positions: Positions | None, updates: Updates
    ) -> Collection[str] | None:
        """The columns of stored rows that may get other values, where `rows` are updates, of all columns or of some, or
        new; None for all.

        And their keys, where rows come with positions and some name another file than this one, or none.
        """
        context, partial = self._context, self._context.partial
        if positions is None or not updates.replaces_rows:
            return None
        checked = () if _are_positions_in(base, rows) else (RECORD_KEY,)
        compared = {*checked, *(name.partition(".")[0] for name in context.rule.ordering_fields), context.event_time}
        if partial is None:  # rows of one key in one partition have these in common
            fixed = {RECORD_KEY, PARTITION_PATH, FILE_NAME, context.key_column}
            every = frozenset(context.schema.with_meta().names())
            return every - fixed | compared if self._are_keys_stored else None
        if not partial.kept_in_files or not (partial.flags(rows) | (positions == NOT_HELD)).all():
            return None
        return frozenset((COMMIT_TIME, COMMIT_SEQNO, *partial.names, *compared))

    def _changes(self, file: OpenFile) -> AbstractContextManager[ChangeLog | None]:
        return changes_beside(self._context, self._bucket.partition_path, file.name)

    def _opened(self, base: CandidateFile) -> AbstractContextManager[OpenBaseFile]:
        return open_base(self._context.storage, base.path, base.known_size)

    def _keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = self._context.keys
        return batch if keys is None else keys.filled(batch)

    @property
    def _are_keys_stored(self) -> bool:
        """And not made of columns, as in tables without meta columns."""
        keys = self._context.keys
        return keys is None or keys.generator is None

    @cached_property
    def _texts(self) -> Collection[str]:
        """The columns that may keep the dictionaries which they have in a base file: none that rows are compared by."""
        context = self._context
        if not self._are_keys_stored:
            return ()
        return frozenset(context.schema.with_meta().names()) - {RECORD_KEY, *context.rule.ordering_fields}


def _check_met(base: CandidateFile, updates: Updates) -> None:
    """CorruptFileError where the base file has not the rows at the positions that its keys were found at."""
    if updates.missed:
        problem = f"{updates.missed} keys are not in the row groups in which they were found"
        raise CorruptFileError.of_file(base.path, problem, found=updates.missed, expected=0)


def _batch_rows(rows: pa.Table, max_file_bytes: int) -> int:
    """Rows to be written before the file's size is looked at again: a small part of what goes into a file."""
    share = max_file_bytes * _BATCH_SHARE / max(1, rows.nbytes)
    return min(_BATCH_ROWS, max(1, int(rows.num_rows * share)))


def _ended(changes: ChangeLog | None, inserts: pa.Table) -> Mapping[str, int] | None:
    """Closes a change log with the rows that are new in the file group. What the stat of the base file states of it."""
    if changes is None:
        return None
    changes.inserted(inserts)
    changes.close()
    return changes.paths


def _without_deletes(rows: pa.Table, rule: MergeRule) -> pa.Table:
    deletes = deleted(rows, rule)
    return rows.filter(pa.array(~deletes)) if deletes.any() else rows


def _are_positions_in(base: CandidateFile, rows: pa.Table) -> bool:
    """Whether the positions of rows are those in a base file: its keys were looked through for them, by the index or
    since they came with none, or all rows name it.
    """
    if not {POSITION, FILE_NAME} <= set(rows.schema.names):
        return True
    return pc.all(pc.equal(rows.column(FILE_NAME), base.path.rpartition("/")[2]), skip_nulls=False).as_py() is True


def _placed_in(base: CandidateFile, rows: pa.Table) -> pa.Table:
    """The rows without positions where some are those in another file, such as an earlier version of the base file."""
    if POSITION not in rows.schema.names or FILE_NAME not in rows.schema.names:
        return rows
    named_otherwise = pc.not_equal(rows.column(FILE_NAME), base.path.rpartition("/")[2])
    elsewhere = pc.and_(named_otherwise, pc.greater_equal(rows.column(POSITION), 0))
    return rows.drop_columns(POSITION) if pc.any(elsewhere).as_py() else rows


def _placed_once(rows: pa.Table) -> pa.Table:
    """The rows without positions where several stored rows of one key were read: one row becomes all of these."""
    if POSITION not in rows.schema.names or FILE_NAME not in rows.schema.names:
        return rows
    if pc.count_distinct(rows.column(RECORD_KEY)).as_py() == rows.num_rows:
        return rows
    found = rows.group_by(RECORD_KEY).aggregate([(POSITION, "min_max")]).column(f"{POSITION}_min_max")
    low, high = (pc.struct_field(found, name) for name in ("min", "max"))
    return rows if low.equals(high) else rows.drop_columns(POSITION)


def _without_null_ordering(rows: pa.Table, context: WriteContext) -> tuple[pa.Table, int]:
    """Rows that the merge rule can't compare fail; how many they were."""
    if not context.combine or context.deletes:
        return rows, 0
    valid = comparable(rows, context.rule.ordering_fields)
    if valid is None:
        return rows, 0
    valid = pc.or_(valid, pa.array(in_delete_block(rows)))  # a delete by the index needs none
    kept = rows.filter(valid)
    return kept, rows.num_rows - kept.num_rows
