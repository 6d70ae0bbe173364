"""What a statement answers: rows as an Arrow table, and what a write changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from skep_table.write.result import WriteResult

Column = tuple[str, pa.DataType]
_KINDS: Final = {
    "": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """`rows` has no columns for statements that answer none. `writes` are the commits, as a write returns them."""

    rows: pa.Table = field(default_factory=lambda: pa.table({}))
    writes: tuple[WriteResult, ...] = ()


def columns_of(text: str) -> tuple[Column, ...]:
    """Columns as `name, number:long`; what has no type is a text."""
    pairs = (each.partition(":") for each in " ".join(text.split()).split(", "))
    return tuple((name, _KINDS[kind]) for name, _, kind in pairs)


def answer(columns: str | Sequence[Column], rows: Sequence[Sequence[object]]) -> Answer:
    """Rows of plain values; a text lists the columns as `columns_of` takes them."""
    schema = pa.schema(columns_of(columns) if isinstance(columns, str) else columns)
    values = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return Answer(
        pa.Table.from_arrays([pa.array(v, f.type) for v, f in zip(values, schema, strict=True)], schema=schema)
    )
