"""The rows of a base file on their way into its next version: row groups that nothing changes stay as they are.

Which row groups a batch changes is known by the positions of its keys, where the index has found these; else by the
key column, of the row groups whose statistics don't exclude all keys.

Rows that are appended make a row group. The one before it is written again with them where it is not larger and both
fit into one, and so on with the one before that: the rows of a row group have at least doubled each time that they are
written again, and a file has no more small row groups than the binary logarithm of the rows of a large one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from skep_format.basefile import BaseFileWriter, OpenBaseFile
from skep_format.basefile.reader import BATCH_ROWS
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.rows import POSITION
from skep_table.write.context import WriteContext
from skep_table.write.output.held import positions_among
from skep_table.write.planning.candidates import CandidateFile
from skep_table.write.tags import NOT_HELD, Positions

# A row group of more bytes is decoded in parts.
_LARGEST_BATCH_BYTES = 64 << 20


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


@dataclass(frozen=True, slots=True)
class BaseRows:
    """An open base file on its way into the file of a writer. `unchanged` are the row groups that are copied.

    `known`: the writer has the keys of the file from its footer.
    """

    base: CandidateFile
    held: OpenBaseFile
    writer: BaseFileWriter
    context: WriteContext
    known: bool
    unchanged: frozenset[int] = field(default_factory=frozenset)

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
        if groups is None or not writer.takes(held):
            return cls(base, held, writer, context, known)
        changed, new = _changed(held, groups.rows, arriving)
        largest = writer.block_bytes // max(1, arriving.row_bytes)
        changed |= set(_written_again(groups.rows, arriving.appended + new, largest))
        return cls(base, held, writer, context, known, frozenset(range(len(groups.rows))) - changed)

    def batches(self, encoded: Collection[str]) -> Iterator[pa.RecordBatch]:
        """The other rows in their order, each batch to be written before the next is taken: what lies between them is
        copied meanwhile. `encoded`: as for `OpenBaseFile.rows`.
        """
        schema = self.context.schema.with_meta()
        groups = self.held.row_groups
        if groups is None or not self.unchanged:
            yield from self.base.rows(self.context.storage, schema, self.held, encoded)
            return
        for number, count in enumerate(groups.rows):
            if number in self.unchanged:
                self.writer.copy(self.held, number, new_keys=not self.known)
            else:
                rows = count if groups.sizes[number] <= _LARGEST_BATCH_BYTES else BATCH_ROWS
                yield from self.held.rows(schema=schema, encoded=encoded, groups=(number,), batch_rows=max(1, rows))


def _row_bytes(rows: pa.Table) -> int:
    return rows.nbytes // max(1, rows.num_rows)


def _changed(held: OpenBaseFile, rows: Sequence[int], arriving: ArrivingKeys) -> tuple[set[int], int]:
    """The row groups that have rows of the keys, and how many of the keys are in none."""
    if arriving.positions is not None and arriving.are_placed:
        placed = arriving.positions[arriving.positions != NOT_HELD]
        numbers = np.searchsorted(np.cumsum(rows), placed, side="right")
        return set(numbers.tolist()), len(arriving.keys) - len(placed)
    ends, changed, found = np.cumsum(rows), set(), np.zeros(len(arriving.keys), np.bool_)
    for start, keys in held.text_among(RECORD_KEY, arriving.keys):
        hits = positions_among(arriving.keys, [(start, keys)]) != NOT_HELD
        if hits.any():
            changed.add(int(np.searchsorted(ends, start, side="right")))
            found |= hits
    return changed, len(arriving.keys) - int(found.sum())


def _written_again(rows: Sequence[int], new: int, largest: int) -> Iterator[int]:
    """The row groups at the end of the file that are joined with `new` rows behind them."""
    behind = new
    for number in reversed(range(len(rows))):
        if not 0 < rows[number] <= behind or behind + rows[number] > largest:
            return
        behind += rows[number]
        yield number
