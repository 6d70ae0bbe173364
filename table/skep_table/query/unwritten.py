"""Rows of a snapshot as they will be after changes that are not written yet: those of statements before, in one commit.

Changes are rows with the meta columns with which they were read, the data columns as they are to be, and a mark of
those to be deleted; see `Computed` of the writes. They are few, and in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SkepError
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.rows import DELETED
from skep_table.query.filters.predicate import Predicate
from skep_table.query.options import QueryType
from skep_table.query.request import ReadRequest
from skep_table.unwritten import Unwritten

_PLACE: Final = (PARTITION_PATH, RECORD_KEY)


class UnwrittenRowsError(SkepError):
    """A read of what is not known before the changes before it are written. Nothing was read: try it after them."""


def places(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Partition and key of each row, as one text."""
    paths, keys = (single(rows.column(name)).cast(pa.string()) for name in _PLACE)
    return pc.binary_join_element_wise(paths, keys, "\0")


def with_later(earlier: pa.Table, later: pa.Table) -> pa.Table:
    """Both changes as one: of a row that both change, what the later ones make of it."""
    stays = pc.invert(pc.is_in(places(earlier), places(later)))
    return pa.concat_tables([earlier.filter(stays), later]).combine_chunks()


def holds(found: Unwritten, request: ReadRequest, columns: Iterable[str]) -> bool:
    """Whether the rows that are held answer a request, which needs these columns."""
    plain = request.query is QueryType.SNAPSHOT and request.as_of is None
    return plain and found.held is not None and set(columns) <= set(found.held.schema.names)


def check_readable(changes: pa.Table, request: ReadRequest, schema: pa.Schema) -> None:
    """UnwrittenRowsError for requests whose answer depends on the commit that is still to come."""
    if request.query is not QueryType.SNAPSHOT or request.as_of is not None:
        raise UnwrittenRowsError(f"a {request.query.value} read reads commits, and the changes before it have none yet")
    for name in (COMMIT_TIME, COMMIT_SEQNO):
        if name in schema.names:
            raise UnwrittenRowsError(f"{name} is not known before the changes before are written")
    if changes.column(FILE_NAME).null_count:
        raise UnwrittenRowsError("it is not known yet in which files new rows will be")


def overlaid(
    found: Unwritten,
    request: ReadRequest,
    schema: pa.Schema,
    predicate: Predicate | None,
    stored: Callable[[ReadRequest], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """The answer to a request of this schema: stored rows that are not changed, then the changed ones."""
    changes, left = found.changes, request.limit
    changed = None if changes is None else places(changes)

    def kept() -> Iterator[pa.RecordBatch]:
        columns = (*(name for name in _PLACE if name not in schema.names), *schema.names)
        asked = replace(request, columns=columns, limit=None)
        for batch in stored(asked) if found.held is None else _matching(found.held, predicate):
            yield batch if changed is None else batch.filter(pc.invert(pc.is_in(places(batch), changed)))
        if changes is not None:
            there = changes
            if DELETED in changes.schema.names:
                there = changes.filter(pc.invert(changes.column(DELETED)))
            yield from _matching(there, predicate)

    for each in kept():
        batch = pa.RecordBatch.from_arrays([each.column(f.name).cast(f.type) for f in schema], schema=schema)
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        if batch.num_rows:
            yield batch
        if left == 0:
            return


def _matching(rows: pa.Table, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
    for batch in rows.combine_chunks().to_batches() if rows.num_rows else ():
        yield batch if predicate is None else predicate.filter(batch)
