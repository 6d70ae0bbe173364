"""What a statement answers: rows as an Arrow table, and what a write changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from skep_table.write.result import WriteResult


@dataclass(frozen=True, slots=True)
class Answer:
    """`rows` has no columns for statements that answer none. `writes` are the commits, as a write returns them."""

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    writes: tuple[WriteResult, ...] = ()


def answer(columns: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[object]]) -> Answer:
    """Rows of plain values."""
    schema = pa.schema(columns)
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return Answer(
        pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)
    )
