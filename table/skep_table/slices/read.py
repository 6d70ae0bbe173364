"""Reading one file slice: the base file streams by, log entries that fit its keys are merged in, the rest follows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from skep_format.basefile import RowCondition, read_base
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import to_arrow
from skep_format.schema.history import SchemaVersion
from skep_format.schema.types import COMMIT_TIME, Schema
from skep_table.merge import Updates, Watch, latest_per_key
from skep_table.merge.rows import loose
from skep_table.slices.bootstrap import read_stitched, source_of
from skep_table.slices.context import CommitTimes, MergeCounts, SliceContext
from skep_table.slices.logs import BlockPositions, as_table, log_rows, open_blocks
from skep_table.slices.options import MERGE_BYTES, SPILL_FOLDER
from skep_table.slices.spill import Spill
from skep_table.table import HudiTable
from skep_table.view import FileSlice

BATCH_ROWS: Final = 128 * 1024
_LARGEST_BATCH_ROWS: Final = 1024 * 1024


def read_slice(
    table: HudiTable,
    slice: FileSlice,
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | None = None,
    as_of: InstantTime | None = None,
    condition: RowCondition | None = None,
    of_keys: RowCondition | None = None,
    commit_times: CommitTimes | None = None,
    options: Mapping[str, str] | None = None,
    history: tuple[SchemaVersion, ...] | None = None,
    counts: MergeCounts | None = None,
    watch: Watch | None = None,
    changed_rows: Callable[[Updates], Iterator[pa.RecordBatch]] | None = None,
    number_as: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice in the reader's `schema` (the table's, with meta columns, when None), only `columns` of it.

    `as_of` leaves out log blocks of later instants. `condition` spares reading rows of a slice without logs, and
    merging rows that no log changes: rows that fail it may still come. `of_keys`, a condition on the record key alone,
    does so for the base file under logs; what logs hold of other keys may then come unmerged. `commit_times` reads as
    if no other commit had written to the slice: rows of others are left out before the merge. `options` win over the
    table's; log entries above `hoodie.memory.merge.max.size` bytes spill to disk. `history` is the table's schema
    history where it is known already. `counts` is filled while the rows are read, and `watch` is passed those that
    differ from the base file's. `changed_rows` gets the updates, where memory holds them, and returns the rows of the
    base file that these may change, with all columns: only they and what the logs add are then returned. `number_as` is
    the column of `schema` for the numbers of the rows in the base file, of a slice without logs. Raises
    CorruptFileError and FormatError naming the file, SchemaError naming the column.
    """
    if schema is None:
        schema = table.schema(as_of)
        schema = schema.with_meta() if table.config.populate_meta_fields else schema
    wanted = schema.names() if columns is None else tuple(columns)
    every = table.options.with_values(options or {})
    context = SliceContext(table, schema, wanted, as_of, every, commit_times, history, counts or MergeCounts(), watch)
    if not slice.log_files:
        yield from _base_rows(context, slice, context.answer, condition, BATCH_ROWS, number_as)
        return
    with open_blocks(context, slice.log_files) as blocks:
        if not blocks:
            yield from _base_rows(context, slice, context.answer, condition, BATCH_ROWS)
            return
        context = context.with_operations_in(blocks)
        positions = BlockPositions.of(context, slice, blocks)
        entries = log_rows(context, blocks, positions)
        yield from _merged(context, slice, entries, positions is not None, condition, of_keys, changed_rows)


def _merged(
    context: SliceContext,
    slice: FileSlice,
    entries: Iterator[pa.RecordBatch],
    by_position: bool,
    condition: RowCondition | None,
    of_keys: RowCondition | None,
    changed_rows: Callable[[Updates], Iterator[pa.RecordBatch]] | None,
) -> Iterator[pa.RecordBatch]:
    limit = context.options.value(MERGE_BYTES)
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in entries:
        held.append(batch)
        size += batch.nbytes
        if size > limit:
            base_rows = _keyed_base_rows(context, slice, of_keys, BATCH_ROWS)
            yield from _merged_on_disk(context, itertools.chain(_drained(held), entries), base_rows, limit)
            return
    rows = as_table(held)
    del held
    updates = Updates(latest_per_key(rows, context.rule), context.rule, context.watch)
    context.counts.entries += rows.num_rows
    # Each batch looks its keys up in a table of the updates' keys, which is rebuilt: the more updates, the fewer.
    batch_rows = min(max(BATCH_ROWS, len(updates)), _LARGEST_BATCH_ROWS)
    if changed_rows is not None:
        for base in changed_rows(updates):
            yield _answer(context, updates.apply(_loose(base)))
    elif by_position:
        start = 0
        for base in _base_rows(context, slice, context.without_key, None, batch_rows):
            yield _answer(context, updates.apply(_loose(base), start, condition))
            start += base.num_rows
    else:
        for base in _keyed_base_rows(context, slice, of_keys, batch_rows):
            yield _answer(context, updates.apply(base, condition=condition))
    yield from _rest(context, updates)


def _drained(held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while held:
        yield held.pop(0)


def _merged_on_disk(
    context: SliceContext,
    entries: Iterator[pa.RecordBatch],
    base_rows: Iterator[pa.RecordBatch],
    limit: int,
    level: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Both sides in parts by the hash of the key, one part in memory at a time; a part above the limit in parts again,
    unless it is all that there was: the entries of one key.
    """
    with Spill(context.options.value(SPILL_FOLDER), level) as spill:
        for batch in entries:
            context.counts.entries += batch.num_rows if level == 0 else 0
            spill.add_entries(batch)
        for base in base_rows:
            yield _answer(context, spill.add_base(base))
        for held, below in spill.parts():
            if limit < held.bytes < spill.entries_bytes and level < Spill.MOST_LEVELS:
                yield from _merged_on_disk(context, held.batches(), below.batches(), limit, level + 1)
                continue
            updates = Updates(latest_per_key(as_table(list(held.batches())), context.rule), context.rule, context.watch)
            for base in below.batches():
                yield _answer(context, updates.apply(base))
            yield from _rest(context, updates)


def _rest(context: SliceContext, updates: Updates) -> Iterator[pa.RecordBatch]:
    rest = updates.rest()
    if context.watch is not None:
        context.watch.inserted(rest)
    context.counts.applied(updates, rest.num_rows)
    context.counts.beyond_base = True
    for batch in rest.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield _answer(context, batch)


def _answer(context: SliceContext, rows: pa.RecordBatch) -> pa.RecordBatch:
    schema = to_arrow(context.answer)
    return pa.RecordBatch.from_arrays([rows.column(name) for name in context.columns], schema=schema)


def _keyed_base_rows(
    context: SliceContext, slice: FileSlice, of_keys: RowCondition | None, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    names, schema = list(context.keyed.names()), loose(to_arrow(context.keyed))
    for batch in _base_rows(context, slice, context.merged, of_keys, batch_rows):
        rows = context.stored_keys.filled(batch)
        yield pa.RecordBatch.from_arrays([rows.column(name) for name in names], schema=schema)


def _loose(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=loose(batch.schema))


def _base_rows(
    context: SliceContext,
    slice: FileSlice,
    wanted: Schema,
    condition: RowCondition | None,
    batch_rows: int,
    number_as: str | None = None,
) -> Iterator[pa.RecordBatch]:
    if context.commit_times is None:
        yield from _all_base_rows(context, slice, wanted, condition, batch_rows, number_as)
        return
    names = list(wanted.names())
    read = wanted if COMMIT_TIME in wanted else context.schema.select((*names, COMMIT_TIME))
    for batch in _all_base_rows(context, slice, read, condition, batch_rows, number_as):
        yield batch.filter(context.commit_times.mask(batch.column(COMMIT_TIME))).select(names)


def _all_base_rows(
    context: SliceContext,
    slice: FileSlice,
    wanted: Schema,
    condition: RowCondition | None,
    batch_rows: int,
    number_as: str | None,
) -> Iterator[pa.RecordBatch]:
    if slice.base_file is None:
        return
    storage, path = context.table.storage, slice.base_file.path
    names = context.names_at(slice.base_file.name.instant_time)
    source = source_of(context.table, slice, context.options)
    if source is not None:
        yield from read_stitched(storage, path, source, wanted, batch_rows, names)
        return
    size = slice.base_file.known_size
    yield from read_base(
        storage,
        path,
        size=size,
        schema=wanted,
        names=names,
        condition=condition,
        batch_rows=batch_rows,
        number_as=number_as,
    )
