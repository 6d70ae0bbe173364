"""The rows that are measured with: made from their numbers alone, the same on every machine, kept as Parquet folders.

12 columns; 10 partitions; keys of 12 characters. Row `i` of generation `g` is a function of `i` and `g`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PARTITIONS = 10
MAKER = 2  # counts up when the rows change, so that older caches are not used
ROWS_PER_FILE = 500_000  # two cores read two files or more
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
        ("customer", pa.int32()),
        ("product", pa.string()),
        ("quantity", pa.int32()),
        ("price", pa.float64()),
        ("amount", pa.decimal128(12, 2)),
        ("ordered_at", pa.timestamp("us", "UTC")),
        ("ship_date", pa.date32()),
        ("gift", pa.bool_()),
        ("note", pa.string()),
    ]
)


def rows(numbers: np.ndarray, generation: int = 0, partitions: int = PARTITIONS) -> pa.Table:
    """The rows with these numbers. A later `generation` of a row has the same key and partition and other values."""
    mixed = _mix(numbers.astype(np.uint64) + np.uint64(generation * 0x9E3779B97F4A7C15 % 2**64))
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width=10, padding="0")
    product = pa.array((mixed >> np.uint64(8)) % np.uint64(5000)).cast(pa.string())
    note = pa.array(mixed % np.uint64(2**40)).cast(pa.string())
    cents = ((mixed >> np.uint64(5)) % np.uint64(10_000_000)).astype(np.int64)
    day = 86_400_000_000
    ordered_at = 1_600_000_000_000_000 + (mixed % np.uint64(1000 * day)).astype(np.int64)
    columns = [
        pc.binary_join_element_wise("k", digits, "-"),
        pa.array(1_700_000_000_000 + numbers + generation * 10_000_000_000),
        pc.binary_join_element_wise("region", pa.array(numbers % partitions).cast(pa.string()), "_"),
        pa.array((mixed % np.uint64(100_000)).astype(np.int32)),
        pc.binary_join_element_wise("product", product, "-"),
        pa.array((mixed % np.uint64(20)).astype(np.int32)),
        pa.array(cents / 100 + (mixed % np.uint64(97)).astype(np.float64) / 1000),
        _cents(cents),
        pa.array(ordered_at).cast(pa.timestamp("us", "UTC")),
        pa.array((ordered_at // day).astype(np.int32)).cast(pa.date32()),
        pa.array((mixed & np.uint64(1)).astype(bool)),
        pc.binary_join_element_wise("some words about order", note, " "),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def inserts(count: int, start: int = 0, partitions: int = PARTITIONS) -> Path:
    """A Parquet folder with `count` rows from number `start` on."""
    numbers = np.arange(start, start + count)
    made = (rows(chunk, partitions=partitions) for chunk in _chunks(numbers))
    return _cached(f"inserts-{count}-{start}{_among(partitions)}", made)


def sums(found: pa.Table) -> dict[str, Any]:
    """What contenders' tables are compared by; the peers compute `upsert.SUMS`."""
    return {
        "rows": found.num_rows,
        "keys": pc.count_distinct(found["id"]).as_py(),
        "amount": pc.sum(found["amount"]).as_py(),
        "ts": pc.sum(found["ts"]).as_py(),
    }


SUMMED = ("id", "amount", "ts")
"""The columns that `sums` needs."""


def key(number: int) -> str:
    return str(rows(np.array([number]))["id"][0])


def updates(count: int, existing: int, new: int, generation: int = 1) -> Path:
    """A Parquet folder with a later generation of `count` of `existing` rows and `new` rows, both spread evenly."""
    step = existing // max(count, 1)
    turn = np.arange(count)
    old = turn * step + turn % max(step, 1)  # another place in each step, or all would be of one partition
    numbers = np.concatenate([old, existing + np.arange(new)])
    numbers = numbers[np.random.default_rng(7).permutation(len(numbers))]
    made = (rows(chunk, generation) for chunk in _chunks(numbers, 4))
    return _cached(f"updates-{count}-{existing}-{new}{_later(generation, 1)}", made)


def small(
    count: int, existing: int, partitions: int = PARTITIONS, touched: int = PARTITIONS // 2, generation: int = 2
) -> Path:
    """A Parquet folder with a later generation of `count` of `existing` rows, spread over the first partitions."""
    there = np.arange(existing)
    there = there[there % partitions < touched]
    chosen = np.sort(np.random.default_rng(4).choice(there, min(count, len(there)), replace=False))
    made = (rows(chunk, generation, partitions) for chunk in _chunks(chosen))
    return _cached(f"spread-{count}-{existing}-{touched}{_among(partitions)}{_later(generation, 2)}", made)


def one_partition(count: int, partitions: int) -> Path:
    """A Parquet folder with a later generation of the first `count` rows of one partition, new ones among them."""
    numbers = np.arange(count) * partitions
    return _cached(f"one-{count}{_among(partitions)}", (rows(chunk, 3, partitions) for chunk in _chunks(numbers)))


def chosen(numbers: np.ndarray, generation: int) -> Path:
    """A Parquet folder with the rows of some numbers, of one partition."""
    name = f"chosen-{numbers[0]}-{numbers[-1]}-{len(numbers)}-{generation}"
    return _cached(name, iter([rows(numbers, generation, 1)]))


def dense(count: int, width: int, generation: int = 0) -> Path:
    """A Parquet folder with rows of one partition, each with `width` bytes that do not compress."""

    def made() -> Iterator[pa.Table]:
        for chunk in _chunks(np.arange(count), -(-count // 50_000)):
            noise = np.random.default_rng(generation + int(chunk[0])).integers(33, 126, (len(chunk), width), np.uint8)
            text = pa.array(noise.view(f"S{width}").ravel()).cast(pa.string())
            yield rows(chunk, generation, 1).set_column(SCHEMA.get_field_index("note"), SCHEMA.field("note"), text)

    return _cached(f"dense-{count}-{width}-{generation}", made())


def _among(partitions: int) -> str:
    return "" if partitions == PARTITIONS else f"-of-{partitions}"


def _later(generation: int, usual: int) -> str:
    return "" if generation == usual else f"-generation-{generation}"


def cache() -> Path:
    base = Path(os.environ.get("SKEP_BENCHMARK_CACHE", Path(tempfile.gettempdir()) / f"skep-benchmarks-{os.getuid()}"))
    base.mkdir(parents=True, exist_ok=True)
    return base


def _cached(name: str, tables: Iterator[pa.Table]) -> Path:
    folder = cache() / f"{name}-{MAKER}"
    if not folder.exists():
        making = Path(tempfile.mkdtemp(prefix="making-", dir=cache()))
        for number, table in enumerate(tables):
            pq.write_table(table, making / f"{number:03}.parquet", compression="snappy")
        try:
            making.rename(folder)
        except OSError:  # another run was first
            shutil.rmtree(making)
    return folder


def _chunks(numbers: np.ndarray, least: int = 2) -> Iterator[np.ndarray]:
    yield from np.array_split(numbers, max(least, len(numbers) // ROWS_PER_FILE))


def _mix(values: np.ndarray) -> np.ndarray:
    """Well spread 64-bit numbers (the finisher of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _cents(cents: np.ndarray) -> pa.Array:
    """Whole cents as decimal(12,2): the unscaled numbers are the decimal's 128 bits as they are."""
    words = np.zeros((len(cents), 2), dtype=np.int64)
    words[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words)])
