"""The log entries of a slice as Arrow rows in their order of arrival, deletes among them, and by position or key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from skep_format.basefile import read_footer
from skep_format.errors import CorruptFileError, SchemaError
from skep_format.logfile import BlockType, HeaderKey, LogBlock, read_blocks, valid_blocks
from skep_format.schema.arrow import arrow_type, to_arrow
from skep_format.schema.evolve import floats_widened_exactly, project
from skep_format.schema.types import ALL_META_FIELDS, PARTITION_PATH, RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.rows import DELETED, HAS, ORDERING, POSITION, loose, ordering_columns
from skep_table.slices.bootstrap import source_of
from skep_table.slices.context import SliceContext
from skep_table.slices.options import BY_POSITION
from skep_table.view import FileSlice, LogFile

_HINT = f"{BY_POSITION.key}=false merges by key"


@dataclass(frozen=True, slots=True)
class BlockPositions:
    """The positions of blocks in a base file with `rows` rows, which their entries change.

    Base rows then need no key, which a query may not even ask for. It takes all blocks of a slice: where one has no
    positions, or those of another base file, all entries are merged by key.
    """

    base: str
    rows: int

    @classmethod
    def of(cls, context: SliceContext, slice: FileSlice, blocks: Sequence[LogBlock]) -> BlockPositions | None:
        """None where the slice is merged by key."""
        base, table = slice.base_file, context.table
        if (
            base is None
            or not context.options.value(BY_POSITION)
            or not table.config.populate_meta_fields
            or context.commit_times is not None
            or context.rule.reads_whole_rows
            or source_of(table, slice, context.options) is not None
        ):
            return None
        of_base = HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS
        for block in blocks:
            named = block.headers.get(of_base)
            if named != base.name.instant_time or HeaderKey.RECORD_POSITIONS not in block.headers:
                return None
        return cls(base.path, read_footer(table.storage, base.path).num_rows)

    def added(self, block: LogBlock, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The entries of a block with their positions. CorruptFileError where these don't fit entries or base file."""
        found = block.record_positions
        positions = np.zeros(0, np.int64) if found is None else found.astype(np.int64)
        if len(positions) and positions[-1] >= self.rows:
            raise self._misfit(block, f"position {positions[-1]}", f"less than the {self.rows} rows of {self.base}")
        start = 0
        for batch in batches:
            part = positions[start : start + batch.num_rows]
            start += batch.num_rows
            if len(part) == batch.num_rows:
                yield batch.append_column(pa.field(POSITION, pa.int64()), pa.array(part))
        if start != len(positions):
            raise self._misfit(block, f"{len(positions)} positions", f"one for each of the {start} entries")

    def _misfit(self, block: LogBlock, found: str, expected: str) -> CorruptFileError:
        return CorruptFileError.of_file(
            block.path,
            f"block at byte {block.offset}: record positions: found {found}, expected {expected}",
            hint=_HINT,
            offset=block.offset,
            found=found,
            expected=expected,
        )


@contextmanager
def open_blocks(context: SliceContext, logs: Sequence[LogFile]) -> Iterator[list[LogBlock]]:
    """The blocks that count, oldest first. Their contents can be read while the context is open."""
    with ExitStack() as files:

        def every() -> Iterator[LogBlock]:
            for log in logs:
                if not log.name.cdc:
                    file = files.enter_context(context.table.storage.open_input(log.path))
                    yield from read_blocks(file, log.path)

        yield valid_blocks(context.counts.seen(every()), context.block_rule)


def log_rows(
    context: SliceContext, blocks: Sequence[LogBlock], positions: BlockPositions | None = None
) -> Iterator[pa.RecordBatch]:
    """The blocks' entries as rows of `context.keyed` with the helper columns of `merge/rows.py`.

    All batches have one schema: the columns that mark what a partial update contains are added when a block is partial,
    and POSITION where `positions` are given.
    """
    schema = _row_schema(context, any(block.is_partial for block in blocks))
    for block in blocks:
        batches: Iterable[pa.RecordBatch] = ()
        if block.type is BlockType.DELETE:
            batches = [_deletes(context, block, schema)]
        elif block.type.has_records:
            batches = _records(context, block, schema)
        yield from batches if positions is None else positions.added(block, batches)


def _row_schema(context: SliceContext, partial: bool) -> pa.Schema:
    fields = list(to_arrow(context.keyed))
    fields.append(pa.field(DELETED, pa.bool_()))
    for number, name in enumerate(context.rule.ordering_fields):
        kind = _ordering_type(context, name)
        if name not in context.keyed and kind is not None:
            fields.append(pa.field(f"{ORDERING}{number}", kind))
    if partial:
        data = (name for name in context.keyed.names() if name not in ALL_META_FIELDS)
        fields += [pa.field(HAS + name, pa.bool_()) for name in data]
    return pa.schema(fields)


def _ordering_type(context: SliceContext, name: str) -> pa.DataType | None:
    found = context.keyed.fields_to(name)
    return arrow_type(found[-1].type) if found else None


def _records(context: SliceContext, block: LogBlock, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    names = context.names_at(block.instant_time)
    merged = context.merged
    wanted = {names.get(name, name) for name in merged.names()}
    for batch in block.batches({name for name in wanted if name is not None}):
        rows = context.stored_keys.filled(_projected(context, block, batch))
        present = set(batch.schema.names)
        columns = []
        for field in schema:
            if field.name in rows.schema.names:
                columns.append(rows.column(field.name))
            elif field.name == DELETED:
                columns.append(pa.repeat(False, rows.num_rows))
            elif field.name.startswith(HAS):
                source = names.get(field.name[len(HAS) :], field.name[len(HAS) :])
                columns.append(pa.repeat(not block.is_partial or source in present, rows.num_rows))
            else:
                number = int(field.name[len(ORDERING) :])
                columns.append(ordering_columns(rows, context.rule)[number])
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _projected(context: SliceContext, block: LogBlock, batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        if block.type is BlockType.AVRO_DATA and context.widens_exactly:
            batch = floats_widened_exactly(batch, context.merged)
        wanted = context.merged_in_part if block.is_partial else context.merged
        return project(batch, wanted, context.names_at(block.instant_time))
    except SchemaError as error:
        raise SchemaError.of_file(
            block.path,
            f"block at byte {block.offset}: {error.message}",
            offset=block.offset,
            column=error.fields.get("column"),
        ) from error


def _deletes(context: SliceContext, block: LogBlock, schema: pa.Schema) -> pa.RecordBatch:
    entries = block.deletes()
    count = entries.num_rows
    ordering = _ordering_of_deletes(context, single(entries.column("ordering_value")))
    columns = []
    for field in schema:
        if field.name == RECORD_KEY:
            columns.append(single(entries.column("record_key")).cast(pa.string()))
        elif field.name == PARTITION_PATH:
            columns.append(single(entries.column("partition_path")).cast(pa.string()))
        elif field.name == DELETED or field.name.startswith(HAS):
            columns.append(pa.repeat(True, count))
        else:
            value = ordering.get(field.name)
            columns.append(pa.nulls(count, field.type) if value is None else value)
    return pa.RecordBatch.from_arrays(columns, schema=loose(schema))  # the merge removes them


def _ordering_of_deletes(context: SliceContext, values: pa.Array) -> dict[str, pa.Array]:
    """The ordering values by the column that holds them; none where the types can't be compared."""
    fields = context.rule.ordering_fields
    if pa.types.is_null(values.type) or not fields:
        return {}
    parts = values.flatten() if pa.types.is_struct(values.type) else [values]
    if len(parts) != len(fields):
        return {}
    found = {}
    for number, (name, part) in enumerate(zip(fields, parts, strict=True)):
        kind = _ordering_type(context, name)
        column = None if kind is None else _same_class(part, kind)
        if column is None:
            return {}
        found[name if name in context.keyed else f"{ORDERING}{number}"] = column
    return found


def _same_class(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Values in the column's type if they are of one class to Java; else None, and the delete applies in any order."""
    t = pa.types
    found = values.type
    if found == kind:
        return values
    if t.is_null(found):
        return values.cast(kind)
    if t.is_timestamp(kind):
        if t.is_int64(found):
            return values.cast(pa.timestamp(kind.unit)).cast(kind)
        return values.cast(kind) if t.is_timestamp(found) else None
    if t.is_date32(kind) and t.is_int32(found):
        return values.cast(pa.date32())
    if t.is_int32(found) and t.is_signed_integer(kind) and kind.bit_width < 32:
        return values.cast(kind)
    if t.is_decimal(kind) and t.is_decimal(found):
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            return values.cast(kind, safe=False)
    if t.is_time(kind) and t.is_int64(found):
        return values.cast(kind)
    if t.is_fixed_size_binary(kind) and t.is_binary(found):
        return values.cast(kind)
    return None


def as_table(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Batches whose schemas differ in nullability only, as one table."""
    schema = loose(batches[0].schema)
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in batches], schema)
