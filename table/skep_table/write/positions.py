"""Record positions: log blocks name the rows of the base file that they change, beside the keys (format guide 6.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_table.logfile import HeaderKey, format_positions
from skep_table.merge.rows import POSITION
from skep_table.names import BaseFileName
from skep_table.schema.types import RECORD_KEY
from skep_table.write.context import WriteContext
from skep_table.write.held import in_base_file, positions_of
from skep_table.write.keyed import single
from skep_table.write.profile import Bucket


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
        wanted = context.logs.positions and context.format.logs.has_positions and context.files.meta
        name = BaseFileName.parse(base.path.rpartition("/")[2]) if base is not None and base.path else None
        if not wanted or base is None or name is None or base.source is not None:
            return cls(context)
        return cls(context, base.path, base.known_size, name.instant_time)

    def added(self, rows: pa.Table) -> pa.Table:
        """Rows with their positions as a helper column, below zero for those without one."""
        if not self.path or not rows.num_rows:
            return rows
        found = positions_of(self.context.storage, self.path, self.size, single(rows.column(RECORD_KEY)))
        return rows.append_column(POSITION, pa.chunked_array([pa.array(found)]))

    def ordered(self, rows: pa.Table) -> pa.Table:
        """Rows in the order of the base file, where all have a position; else as they are, without positions."""
        if POSITION not in rows.schema.names:
            return rows
        if not in_base_file(rows):
            return rows.drop_columns([POSITION])
        return rows.take(pa.array(np.argsort(rows.column(POSITION).to_numpy(), kind="stable")))

    def headers(self, rows: pa.Table) -> Mapping[HeaderKey, str]:
        """Of a block with these rows, which `ordered` returned or are a part of them."""
        if POSITION not in rows.schema.names:
            return {}
        return {
            HeaderKey.RECORD_POSITIONS: format_positions(rows.column(POSITION).to_numpy().astype(np.uint64)),
            HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS: self.base_instant,
        }
