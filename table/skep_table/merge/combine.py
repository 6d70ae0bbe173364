"""Combining pairs of rows with equal keys: which one wins, and what the winner takes over from the loser."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SchemaError
from skep_format.schema.types import ALL_META_FIELDS
from skep_table.keys.text import single
from skep_table.merge.custom import find_merger
from skep_table.merge.ordering import Numbers, comparable
from skep_table.merge.rows import HAS, Mask, deleted, in_delete_block, is_helper, ordering_keys, without_helpers
from skep_table.merge.rule import Fill, MergeRule, MergeStep


class Side(NamedTuple):
    """The older or the newer rows of pairs: their ordering values and which have none, which are deletes, and which
    entries of delete blocks."""

    values: Numbers
    missing: Mask
    is_delete: Mask
    in_block: Mask

    def at(self, rows: npt.NDArray[np.int64]) -> Side:
        """Of some of the rows."""
        return Side(self.values[rows], self.missing[rows], self.is_delete[rows], self.in_block[rows])


def newer_wins(stage: MergeStep, old: Side, new: Side) -> Mask:
    """For pairs of rows, whether the newer one stays.

    A delete without an ordering value is one by commit time: it wins over what is older, and loses to what is newer.
    """
    (old_value, old_missing, old_deleted, old_in_block), (new_value, new_missing, new_deleted, new_in_block) = old, new
    if not stage.by_ordering:
        return np.ones(len(old_deleted), np.bool_)
    wins: Mask = (new_value >= old_value) | (new_deleted & new_missing) | (old_deleted & old_missing)
    if stage.first_wins:
        wins &= (new_value > old_value) | old_missing | old_in_block | new_in_block
    if stage.rows_newer:
        wins |= ~old_deleted & ~new_deleted
    if stage.delete_wins:
        wins |= new_deleted
    if stage.block_wins:
        wins |= new_in_block
    if stage.after_delete_newer:
        wins |= old_in_block & ~new_deleted
    if stage.unordered_delete_stays:
        wins &= ~(old_deleted & old_missing & new_deleted)
    return wins


def combine(old: pa.Table, new: pa.Table, rule: MergeRule, stage: MergeStep) -> pa.Table:
    """Row i of `old` with row i of `new`, which arrived later: one row each, with the columns of `new`.

    A result row that is a delete stays marked as one, in the helper column or in its own delete column.
    """
    old_deleted, new_deleted = deleted(old, rule), deleted(new, rule)
    if rule.merger is not None:
        return _combine_custom(old, new, rule.merger, old_deleted | new_deleted)
    wins = newer_of_pairs(old, new, rule, stage, old_deleted, new_deleted)
    if stage.fill is Fill.NOTHING and not _partial(old) and not _partial(new):
        return pick(old, new, wins)
    winner, loser = pick(old, new, wins), pick(old, new, ~wins)
    # A delete has nothing to give, and takes nothing.
    keep = old_deleted | new_deleted
    columns = {name: winner.column(name) for name in winner.schema.names}
    may_fill = pa.array(~keep)
    fills = pa.array(~keep if stage.late_fills else ~keep & wins)
    for name in new.schema.names:
        if is_helper(name):
            continue
        if name in ALL_META_FIELDS:
            if stage.newer_meta:
                columns[name] = pc.if_else(pa.array(old_deleted | new_deleted), columns[name], new.column(name))
            continue
        lacking = pc.or_(
            pc.and_(_lacks(winner, name, rule, stage.fill), fills), pc.and_(_absent(winner, name), may_fill)
        )
        columns[name] = pc.if_else(lacking, loser.column(name), winner.column(name))
        if HAS + name in columns:
            # What a row lacks behind a delete is null: an older row below both may not fill it any more.
            known = pc.or_(pa.array(old_deleted & wins), pc.and_(may_fill, loser.column(HAS + name)))
            columns[HAS + name] = pc.or_(columns[HAS + name], known)
    return pa.table(columns, schema=winner.schema)


def pick(old: pa.Table, new: pa.Table, newer: Mask) -> pa.Table:
    """Row by row from `new` where the mask is true, else from `old`."""
    if newer.all():
        return new
    if not newer.any():
        return align(old, new.schema)
    rows = np.arange(len(newer))
    both = pa.concat_tables([align(old, new.schema), new])
    return both.combine_chunks().take(pa.array(np.where(newer, rows + len(newer), rows)))


def align(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with the columns of `schema`: helper columns that they have not are filled with what they mean."""
    if rows.schema.equals(schema):
        return rows
    columns = []
    for field in schema:
        if field.name in rows.schema.names:
            columns.append(rows.column(field.name))
        elif field.name.startswith(HAS):
            columns.append(pa.chunked_array([pa.repeat(True, rows.num_rows)]))
        else:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
    return pa.Table.from_arrays(columns, schema=schema)


def newer_of_pairs(
    old: pa.Table, new: pa.Table, rule: MergeRule, stage: MergeStep, old_deleted: Mask, new_deleted: Mask
) -> Mask:
    """As newer_wins, for rows with their ordering values and helper columns."""
    if not stage.by_ordering:
        return np.ones(new.num_rows, np.bool_)
    before, after = ordering_keys(old, rule), ordering_keys(new, rule)
    values, missing = comparable([pa.concat_arrays([a, b]) for a, b in zip(before, after, strict=True)])
    count = old.num_rows
    before_it = Side(values[:count], missing[:count], old_deleted, in_delete_block(old))
    return newer_wins(stage, before_it, Side(values[count:], missing[count:], new_deleted, in_delete_block(new)))


def _partial(rows: pa.Table) -> bool:
    return any(name.startswith(HAS) for name in rows.schema.names)


def _lacks(rows: pa.Table, name: str, rule: MergeRule, fill: Fill) -> pa.ChunkedArray:
    """Which rows have not got the column, in the sense of the rule."""
    column = rows.column(name)
    if fill is Fill.NULLS:
        return pc.is_null(column)
    if fill is Fill.DEFAULTS:
        default = dict(rule.defaults).get(name)
        return pc.is_null(column) if default is None else _equals(column, default)
    if fill is Fill.UNAVAILABLE and rule.unavailable is not None and is_text(column.type):
        return _equals(column, rule.unavailable)
    return pa.chunked_array([pa.repeat(False, rows.num_rows)])


def _absent(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Which rows are of a partial update without the column."""
    if HAS + name in rows.schema.names:
        return pc.invert(rows.column(HAS + name))
    return pa.chunked_array([pa.repeat(False, rows.num_rows)])


def is_text(kind: pa.DataType) -> bool:
    """Text and bytes."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _equals(column: pa.ChunkedArray, value: object) -> pa.ChunkedArray:
    if pa.types.is_nested(column.type):
        return pc.is_null(column)
    if isinstance(value, str) and pa.types.is_binary(column.type):
        value = value.encode()
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)


def _combine_custom(old: pa.Table, new: pa.Table, name: str, is_delete: Mask) -> pa.Table:
    """The merger sees pairs of rows; where one of the two is a delete, the newer stays."""
    alive = np.flatnonzero(~is_delete)
    if not len(alive):
        return new
    merger = find_merger(name)
    old_rows, new_rows = (without_helpers(rows.take(pa.array(alive))).combine_chunks() for rows in (old, new))
    answer = merger(_batch(old_rows), _batch(new_rows))
    if answer.num_rows != len(alive) or answer.schema.names != new_rows.schema.names:
        raise SchemaError(
            f"merger {name} returned {answer.num_rows} rows of {', '.join(answer.schema.names)}",
            found=answer.num_rows,
            expected=f"{len(alive)} rows of {', '.join(new_rows.schema.names)}",
        )
    merged = align(pa.Table.from_batches([answer]).cast(new_rows.schema), new.schema)
    places = np.arange(new.num_rows)
    places[alive] = new.num_rows + np.arange(len(alive))
    return pa.concat_tables([new, merged]).combine_chunks().take(pa.array(places))


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([single(column) for column in rows.columns], schema=rows.schema)
