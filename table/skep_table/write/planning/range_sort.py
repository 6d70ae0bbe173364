"""The rows of one bucket in the order of an arrangement, sorted in ranges where they don't fit into memory at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from skep_format.schema.types import PARTITION_PATH
from skep_table.write.context import Memory
from skep_table.write.planning.arrange import Arrangement
from skep_table.write.row_store import RowStore


def arranged(tables: Iterable[pa.Table], arrangement: Arrangement, memory: Memory) -> Iterator[pa.Table]:
    """Rows of one partition in the order in which the arrangement writes them.

    More than `memory` allows are divided into ranges of the sort columns, with bounds from a sample, and each range is
    sorted by itself. A plug-in sorts all rows at once, whatever they take.
    """
    if not arrangement.own and set(arrangement.columns) <= {PARTITION_PATH}:
        yield from tables
        return
    held: list[pa.Table] = []
    size = 0
    arriving = iter(tables)
    for rows in arriving:
        held.append(rows)
        size += rows.nbytes
        if size > memory.max_bytes and not arrangement.own:
            yield from _by_ranges(held, arriving, arrangement, memory)
            return
    if held:
        yield arrangement.sort(pa.concat_tables(held).combine_chunks())


def _by_ranges(
    held: list[pa.Table], arriving: Iterator[pa.Table], arrangement: Arrangement, memory: Memory
) -> Iterator[pa.Table]:
    store, ranges = RowStore[int](0, memory.folder), RowStore[int](0, memory.folder)
    try:
        while held:
            _add(store, held.pop(0))
        for rows in arriving:
            _add(store, rows)
        count = -(-2 * store.bytes // memory.max_bytes)
        bounds = arrangement.bounds(store.sample(max(1000, 16 * count)), count)
        for batch in store.batches(0):
            ranges.add(batch, range(count), arrangement.parts(pa.Table.from_batches([batch]), count, bounds))
        store.close()
        for number in range(count):
            if number in ranges.labels:
                yield arrangement.sort(pa.Table.from_batches(list(ranges.batches(number))).combine_chunks())
    finally:
        store.close()
        ranges.close()


def _add(store: RowStore[int], rows: pa.Table) -> None:
    for batch in rows.to_batches():
        store.add(batch, (0,), np.zeros(batch.num_rows, np.int32))
