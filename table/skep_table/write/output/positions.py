"""Record positions: log blocks name the rows of the base file that they change, beside the keys (format guide 6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.logfile import HeaderKey, format_positions
from skep_format.names import BaseFileName
from skep_format.schema.types import RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.rows import POSITION
from skep_table.write.context import WriteContext
from skep_table.write.output.held import in_base_file, positions_of
from skep_table.write.planning.profile import Bucket
from skep_table.write.tags import HELD


@dataclass(frozen=True, slots=True)
class BasePlaces:
    """Finds rows in the base file of their slice. `path` is empty where blocks name no positions.

    A block has positions where all its rows are in the base file, each key once. Its rows then are in the order of the
    base file: a reader pairs them with the positions, which are a set.
    """

    context: WriteContext
    path: str = ""
    size: int | None = None
    base_instant: str = ""

    @classmethod
    def of(cls, context: WriteContext, bucket: Bucket) -> BasePlaces:
        """For the rows of a bucket. A skeleton file counts rows as its source does, which other readers need not."""
        base = bucket.base
        name = BaseFileName.parse(base.path.rpartition("/")[2]) if base is not None and base.path else None
        if not context.logs.positions or base is None or name is None or base.source is not None:
            return cls(context)
        return cls(context, base.path, base.known_size, name.instant_time)

    def added(self, rows: pa.Table) -> pa.Table:
        """Rows with their positions as a helper column, below zero for those without one.

        The key column is read where the index has not found the rows, or a merge of rows has made others of them.
        """
        known = POSITION in rows.schema.names
        if self.path and rows.num_rows and known and not _unread(rows.column(POSITION)):
            return rows
        rows = rows.drop_columns([POSITION]) if known else rows
        if not self.path or not rows.num_rows:
            return rows
        found = positions_of(self.context.storage, self.path, self.size, single(rows.column(RECORD_KEY)))
        return rows.append_column(POSITION, pa.chunked_array([pa.array(found)]))

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of the base file, where each has a position of its own; else as they are, without them."""
        if POSITION not in rows.schema.names:
            return rows
        if in_base_file(rows):
            positions = rows.column(POSITION).to_numpy()
            if (np.diff(positions) > 0).all():
                return rows
            order = np.argsort(positions, kind="stable")
            if np.diff(positions[order]).all():
                return rows.take(pa.array(order))
        return rows.drop_columns([POSITION])

    def headers(self, rows: pa.Table) -> Mapping[HeaderKey, str]:
        """Of a block with these rows, which `ordered` returned or are a part of them."""
        if POSITION not in rows.schema.names:
            return {}
        return {
            HeaderKey.RECORD_POSITIONS: format_positions(rows.column(POSITION).to_numpy().astype(np.uint64)),
            HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: self.base_instant,
        }


def _unread(positions: pa.ChunkedArray) -> bool:
    return positions.null_count > 0 or pc.any(pc.equal(positions, HELD)).as_py()
