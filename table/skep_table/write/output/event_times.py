"""The least and the greatest event time of the rows that a file gets from a commit, which its stat records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SECONDS = "[0-9]{10}"
_MILLISECONDS = "[0-9]{13}"


@dataclass(slots=True)
class EventTimes:
    """Those of one file, in ms since 1970; None before the first. `column` may be a member of a struct, after dots."""

    column: str
    least: int | None = None
    greatest: int | None = None

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Rows of the commit. As with Hudi 13 digits are ms, 10 digits seconds, and other values no times."""
        name, *inner = self.column.split(".")
        if not rows.num_rows or name not in rows.schema.names:
            return
        found = rows.column(name)
        for member in inner:
            found = pc.struct_field(found, member)
        bounds = pc.min_max(_milliseconds(found)).as_py()
        if bounds["min"] is not None:
            self.least = bounds["min"] if self.least is None else min(self.least, bounds["min"])
            self.greatest = bounds["max"] if self.greatest is None else max(self.greatest, bounds["max"])


def _milliseconds(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    if not (pa.types.is_integer(column.type) or pa.types.is_string(column.type)):
        return pa.nulls(0, pa.int64())
    texts = column.cast(pa.string())
    times = pc.if_else(pc.match_substring_regex(texts, f"^{_MILLISECONDS}$"), texts, None)
    seconds = pc.if_else(pc.match_substring_regex(texts, f"^{_SECONDS}$"), texts, None)
    return pc.coalesce(times.cast(pa.int64()), pc.multiply(seconds.cast(pa.int64()), 1000))
