"""Rows of a snapshot as they will be after changes that are not written yet: those of statements before, in one commit.

Changes are rows with the meta columns with which they were read, the data columns as they are to be, and a mark of
those to be deleted; see `Computed` of the writes. They are few, and in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SkepError
from skep_format.schema.types import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from skep_table.keys.text import joined_places
from skep_table.merge.rows import DELETED
from skep_table.query.filters.predicate import Predicate
from skep_table.query.options import QueryType
from skep_table.query.request import ReadRequest
from skep_table.table import Unwritten

_PLACE: Final = (PARTITION_PATH, RECORD_KEY)


class UnwrittenRowsError(SkepError):
    """A read of what is not known before the changes before it are written. Nothing was read: try it after them."""


def places(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Partition and key of each row, as one text."""
    return joined_places(*(rows.column(name) for name in _PLACE))


def with_later(earlier: pa.Table, later: pa.Table) -> pa.Table:
    """Both changes as one: of a row that both change, what the later ones make of it."""
    stays = pc.invert(pc.is_in(places(earlier), places(later)))
    return pa.concat_tables([earlier.filter(stays), later]).combine_chunks()


def is_plain(request: ReadRequest) -> bool:
    """Whether a read is of the newest rows."""
    return request.query is QueryType.SNAPSHOT and request.as_of is None


def check_readable(changes: pa.Table | None, request: ReadRequest) -> None:
    """UnwrittenRowsError for requests whose answer depends on the commit that is still to come."""
    if changes is None:
        return
    if not is_plain(request):
        raise UnwrittenRowsError(f"a {request.query.value} read reads commits, and the changes before it have none yet")
    if changes.column(FILE_NAME).null_count:
        raise UnwrittenRowsError("it is not known yet in which files new rows will be")


def may_overlay(found: Unwritten, schema: pa.Schema, predicate: Predicate | None) -> bool:
    """Whether `overlaid` gives an answer of this schema: not without changes, where the rows that are held lack a
    column. UnwrittenRowsError for a column that changes get by the commit.
    """
    if found.changes is None:
        needed = {*schema.names, *(predicate.columns if predicate else ())}
        return found.held is not None and needed <= set(found.held.schema.names)
    for name in (COMMIT_TIME, COMMIT_SEQNO):
        if name in schema.names:
            raise UnwrittenRowsError(f"{name} is not known before the changes before are written")
    return True


def overlaid(
    found: Unwritten,
    request: ReadRequest,
    schema: pa.Schema,
    predicate: Predicate | None,
    stored: Callable[[ReadRequest], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """The answer to a request of this schema, but for its limit: stored rows that are not changed, then the changed
    ones. `stored` reads what files hold.
    """
    changes = found.changes
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
        if batch.num_rows:
            yield batch


def _matching(rows: pa.Table, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
    for batch in rows.combine_chunks().to_batches() if rows.num_rows else ():
        yield batch if predicate is None else predicate.filter(batch)
