"""The rows of a base file on their way into its next version: row groups that nothing changes stay as they are, and of
those whose rows are updated the columns that the updates leave as they were.

Which row groups a batch changes is known by the positions of its keys, where the index has found these; else by the
key column, of the row groups whose statistics don't exclude all keys.

Rows that are appended make a row group. The one before it is written again with them where it is not larger and both
fit into one, and so on with the one before that: the rows of a row group have at least doubled each time that they are
written again, and a file has no more small row groups than the binary logarithm of the rows of a large one.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_format.basefile import BaseFileWriter, OpenBaseFile
from skep_format.basefile.reader import BATCH_ROWS
from skep_format.basefile.row_groups import share
from skep_format.schema.types import FILE_NAME, RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.rows import POSITION
from skep_table.write.context import WriteContext
from skep_table.write.output.files import renamed
from skep_table.write.output.held import positions_among
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.tags import NOT_HELD, SEVERAL, Positions

# A row group of more bytes is decoded in parts.
_LARGEST_BATCH_BYTES = 64 << 20
# Two row groups are small whose pages together take less than one of so many parts of a large one's Arrow data.
_SMALL = 4
# Fewer keys arrive than one of so many parts of the rows: what a column's values are like stays.
_FEW = 4
# The least part of a row group's bytes for which columns are copied.
_WORTH_COPYING = 0.3


@dataclass(frozen=True, slots=True)
class ArrivingKeys:
    """The keys that rows are written or deleted for, and the positions of these in the base file where they are known.

    `row_bytes`: about what one of the rows takes as Arrow data.
    """

    keys: pa.Array
    positions: Positions | None = None
    appended: int = 0
    row_bytes: int = 1

    @classmethod
    def of(cls, rows: pa.Table) -> ArrivingKeys:
        """Keyed rows that are merged into the file."""
        known = POSITION in rows.schema.names
        positions = rows.column(POSITION).to_numpy() if known else None
        return cls(single(rows.column(RECORD_KEY)), positions, row_bytes=_row_bytes(rows))

    @classmethod
    def after(cls, rows: pa.Table) -> ArrivingKeys:
        """Rows that come after those of the file."""
        return cls(pa.array([], pa.string()), np.zeros(0, np.int64), rows.num_rows, _row_bytes(rows))

    @property
    def are_placed(self) -> bool:
        """Whether the positions name all rows of the file that have one of the keys."""
        return self.positions is not None and bool((self.positions >= NOT_HELD).all())


@dataclass(slots=True)
class BaseRows:
    """An open base file on its way into the file of a writer. `unchanged` are the row groups that are copied, `updated`
    those of which columns may be.

    `known`: the writer has the keys of the file from its footer. `positions`: those of the arriving keys, where they
    are known and the file has each of them once at most. `are_few`: few of the file's rows have one of the keys.
    `start`: where the positions are known, that of the first row of the batch that came last.
    """

    base: CandidateFile
    held: OpenBaseFile
    writer: BaseFileWriter
    context: WriteContext
    known: bool
    positions: Positions | None = None
    unchanged: frozenset[int] = frozenset()
    updated: frozenset[int] = frozenset()
    are_few: bool = False
    start: int | None = None
    _passing: tuple[int, pa.RecordBatch] | None = None

    @classmethod
    def of(
        cls,
        context: WriteContext,
        base: CandidateFile,
        held: OpenBaseFile,
        writer: BaseFileWriter,
        arriving: ArrivingKeys,
    ) -> BaseRows:
        """Looks for what can be copied. CorruptFileError where the footer of the base file is wrong."""
        known = writer.continue_keys(held.footer())
        # Keys that are made of columns are not read for themselves.
        found = arriving.are_placed or context.keys is None or context.keys.generator is None
        groups = held.row_groups if found and base.is_plain else None
        placed = arriving.positions if arriving.are_placed and base.is_plain else None
        if groups is None or not writer.takes(held):
            return cls(base, held, writer, context, known, placed)
        changed, new, placed = _changed(held, groups.rows, arriving)
        largest = writer.block_bytes // max(1, arriving.row_bytes)
        joined = set(_written_again(groups.rows, arriving.appended + new, largest))
        unchanged = frozenset(range(len(groups.rows))) - changed - joined
        alone = frozenset(_alone(groups.sizes, changed | joined, writer.block_bytes)) - joined
        are_few = len(arriving.keys) * _FEW <= sum(groups.rows)
        return cls(base, held, writer, context, known, placed, unchanged, alone, are_few)

    def batches(self, encoded: Collection[str], needed: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The other rows in their order, each batch to be written before the next is taken: what lies between them is
        copied meanwhile. `encoded`: as for `OpenBaseFile.rows`.

        `needed`: the columns of which rows may get other values, where none of them is deleted: a batch may come
        without the others, which stay as they are. For rows whose `positions` are known.
        """
        every = self.context.schema.with_meta()
        groups = self.held.row_groups
        if groups is None or not (self.unchanged or self.updated):
            yield from self._in_order(self.base.rows(self.context.storage, every, self.held, encoded), 0)
            return
        starts = [0, *itertools.accumulate(groups.rows)]
        for number, count in enumerate(groups.rows):
            if number in self.unchanged:
                if number - 1 not in self.unchanged:
                    behind = itertools.takewhile(self.unchanged.__contains__, itertools.count(number))
                    self.writer.copy_all(self.held, list(behind), new_keys=not self.known)
                continue
            is_one = groups.sizes[number] <= _LARGEST_BATCH_BYTES and number in self.updated
            names = tuple(name for name in every.names() if not is_one or needed is None or name in needed)
            schema = every.select(names)
            batches = self.held.rows(
                schema=schema, encoded=encoded, groups=(number,), batch_rows=max(1, count if is_one else BATCH_ROWS)
            )
            for batch in self._in_order(batches, starts[number]):
                self._passing = (number, batch) if is_one else None
                yield batch
            self._passing = None

    def _in_order(self, batches: Iterator[pa.RecordBatch], start: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.start = None if self.positions is None else start
            yield batch
            start += batch.num_rows

    def write(self, rows: pa.RecordBatch, file_name: str) -> None:
        """Writes what became of the batch that came last, in its order and with its columns."""
        if self._passing is not None and self._passing[1].num_rows == rows.num_rows:
            number, before = self._passing
            columns = zip(before.columns, rows.columns, rows.schema.names, strict=True)
            changed = [name for old, new, name in columns if name != FILE_NAME and not _is_same(old, new)]
            if self._is_worth_it(number, changed, rows.num_columns):
                self.writer.copy(
                    self.held, number, new_keys=not self.known, changed=rows.select(changed), are_few=self.are_few
                )
                return
        self.writer.write(renamed(rows, file_name), new_keys=not self.known)

    def _is_worth_it(self, number: int, changed: Sequence[str], columns: int) -> bool:
        """Whether the columns that stay take longer to encode than the others take to be put between them."""
        groups = self.held.row_groups
        if groups is None or columns < len(self.context.schema.with_meta().names()):
            return True  # the others have not been read
        return share(list(groups.column_bytes(number)), lambda name: name in changed) <= 1 - _WORTH_COPYING


def _is_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays are one in memory."""
    if one.type != other.type or len(one) != len(other) or one.offset != other.offset:
        return False
    buffers = zip(one.buffers(), other.buffers(), strict=True)
    if any((a and a.address) != (b and b.address) for a, b in buffers):
        return False
    return not pa.types.is_dictionary(one.type) or _is_same(one.dictionary, other.dictionary)


def _row_bytes(rows: pa.Table) -> int:
    return rows.nbytes // max(1, rows.num_rows)


def _changed(held: OpenBaseFile, rows: Sequence[int], arriving: ArrivingKeys) -> tuple[set[int], int, Positions | None]:
    """The row groups that have rows of the keys, how many of the keys are in none, and the positions of these."""
    if arriving.positions is not None and arriving.are_placed:
        placed = arriving.positions[arriving.positions != NOT_HELD]
        numbers = np.searchsorted(np.cumsum(rows), placed, side="right")
        return set(numbers.tolist()), len(arriving.keys) - len(placed), arriving.positions
    ends, changed, positions = np.cumsum(rows), set(), np.full(len(arriving.keys), NOT_HELD, np.int64)
    for start, keys in held.text_among(RECORD_KEY, arriving.keys):
        found = positions_among(arriving.keys, [(start, keys)])
        hits = found != NOT_HELD
        if hits.any():
            changed.add(int(np.searchsorted(ends, start, side="right")))
            positions[hits] = np.where(positions[hits] == NOT_HELD, found[hits], SEVERAL)
    new = int((positions == NOT_HELD).sum())
    return changed, new, None if (positions == SEVERAL).any() else positions


def _alone(sizes: Sequence[int], changed: Collection[int], block_bytes: int) -> Iterator[int]:
    """The row groups that change and are not small ones beside another: those are joined, or a file would keep them."""
    for number in changed:
        beside = [at for at in (number - 1, number + 1) if at in changed]
        if all((sizes[number] + sizes[at]) * _SMALL >= block_bytes for at in beside):
            yield number


def _written_again(rows: Sequence[int], new: int, largest: int) -> Iterator[int]:
    """The row groups at the end of the file that are joined with `new` rows behind them."""
    behind = new
    for number in reversed(range(len(rows))):
        if not 0 < rows[number] <= behind or behind + rows[number] > largest:
            return
        behind += rows[number]
        yield number
