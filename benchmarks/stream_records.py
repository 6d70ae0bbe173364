"""Records of JSON for the streams that are measured, and what a table of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable

SCHEMA_OF_AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "part", "type": "string"},
        {"name": "customer", "type": "int"},
        {"name": "product", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "gift", "type": "boolean"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
SCHEMA_OF_SPARK: Final = (
    "id string, ts long, part string, customer int, product string, quantity int, price double"
    ", gift boolean, note string"
)
_PARTITIONS: Final = 10


def records(count: int, first: int = 0, generation: int = 0) -> list[bytes]:
    """`count` objects of JSON from number `first` on, in a later generation with other values."""
    numbers = np.arange(first, first + count)
    values: dict[str, pa.Array] = {
        "id": _quoted(pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")),
        "ts": pa.array(numbers + generation).cast(pa.string()),
        "part": _quoted(pc.binary_join_element_wise("region", pa.array(numbers % _PARTITIONS).cast(pa.string()), "_")),
        "customer": pa.array(numbers * 7 % 100_000).cast(pa.string()),
        "product": _quoted(pc.binary_join_element_wise("product", pa.array(numbers % 997).cast(pa.string()), "-")),
        "quantity": pa.array(numbers % 50 + generation).cast(pa.string()),
        "price": pa.array((numbers % 10_007) / 4).cast(pa.string()),
        "gift": pa.array(np.where(numbers % 3 == 0, "true", "false")),
        "note": _quoted(pc.binary_join_element_wise("a note of order", pa.array(numbers).cast(pa.string()), " ")),
    }
    members = [pc.binary_join_element_wise(f'"{name}"', value, ": ") for name, value in values.items()]
    joined = pc.binary_join_element_wise(*members, ", ")
    lines: list[bytes] = pc.binary_join_element_wise("{", joined, "}", "").cast(pa.binary()).to_pylist()
    return lines


def _quoted(values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', values, '"', "")


def sums(table: Path) -> dict[str, int]:
    """What the table holds, in short."""
    rows = read(HudiTable.open(str(table)), ReadRequest(columns=("id", "ts", "quantity"))).to_arrow()
    return {
        "rows": rows.num_rows,
        "keys": pc.count_distinct(rows["id"]).as_py(),
        "ts": pc.sum(rows["ts"]).as_py(),
        "quantity": pc.sum(rows["quantity"]).as_py(),
    }


def expected_sums(count: int, small: int, rounds: int) -> dict[str, int]:
    """The sums after `count` records and rounds of `small` ones: each repeats half of the round before."""
    last = count + rounds * small // 2
    numbers, generation = np.arange(last), np.zeros(last, np.int64)
    for turn in range(rounds):
        first = count - small // 2 + turn * small // 2
        generation[first : first + small] = turn + 1
    quantity = numbers % 50 + generation
    return {"rows": last, "keys": last, "ts": int((numbers + generation).sum()), "quantity": int(quantity.sum())}
