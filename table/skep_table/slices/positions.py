"""Merging by record position: the entries of log blocks name the rows of the base file that they change.

Base rows then need no key, which a query may not even ask for. It takes all blocks of a slice: where one has no
positions, or those of another base file, all entries are merged by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.errors import CorruptFileError
from skep_format.logfile import HeaderKey, LogBlock
from skep_table.merge.rows import POSITION
from skep_table.slices.bootstrap import source_of
from skep_table.slices.context import SliceContext
from skep_table.slices.options import BY_POSITION
from skep_table.view import FileSlice

_HINT = f"{BY_POSITION.key}=false merges by key"


@dataclass(frozen=True, slots=True)
class BlockPositions:
    """The positions of blocks in a base file with `rows` rows."""

    base: str
    rows: int

    @classmethod
    def of(cls, context: SliceContext, slice: FileSlice, blocks: Sequence[LogBlock]) -> BlockPositions | None:
        """None where the slice is merged by key."""
        base, table = slice.base_file, context.table
        if (
            base is None
            or not context.options.value(BY_POSITION)
            or not table.config.populate_meta_fields
            or context.commit_times is not None
            or context.rule.reads_whole_rows
            or source_of(table, slice, context.options) is not None
        ):
            return None
        of_base = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS
        for block in blocks:
            named = block.headers.get(of_base)
            if named != base.name.instant_time or HeaderKey.RECORD_POSITIONS not in block.headers:
                return None
        return cls(base.path, read_footer(table.storage, base.path).num_rows)

    def added(self, block: LogBlock, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The entries of a block with their positions. CorruptFileError where these don't fit entries or base file."""
        found = block.record_positions
        positions = np.zeros(0, np.int64) if found is None else found.astype(np.int64)
        if len(positions) and positions[-1] >= self.rows:
            raise self._misfit(block, f"position {positions[-1]}", f"less than the {self.rows} rows of {self.base}")
        start = 0
        for batch in batches:
            part = positions[start : start + batch.num_rows]
            start += batch.num_rows
            if len(part) == batch.num_rows:
                yield batch.append_column(pa.field(POSITION, pa.int64()), pa.array(part))
        if start != len(positions):
            raise self._misfit(block, f"{len(positions)} positions", f"one for each of the {start} entries")

    def _misfit(self, block: LogBlock, found: str, expected: str) -> CorruptFileError:
        return CorruptFileError(
            f"{block.path}: block at byte {block.offset}: record positions: found {found}, expected {expected}",
            hint=_HINT, path=block.path, offset=block.offset, found=found, expected=expected,
        )  # fmt: skip
