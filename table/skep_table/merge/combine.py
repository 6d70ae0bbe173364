"""Combining rows with equal keys: which one wins, what the winner takes over from the loser, and one row per key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.errors import SchemaError
from skep_format.schema.types import ALL_META_FIELDS, RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.custom import find_merger
from skep_table.merge.rows import HAS, Mask, deleted, in_delete_block, is_helper, ordering_keys, without_helpers
from skep_table.merge.rule import Fill, MergeRule, MergeStep

Numbers = npt.NDArray[np.int64]
_MAGNITUDE = np.int64(2**63 - 1)


def comparable(columns: Sequence[pa.Array]) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """For the rows of these columns (first field first): numbers in the order of the values, and which rows have none.

    The order is that of Java's `compareTo` of what Hudi holds: numbers, times and decimals by value, false before true,
    texts by their UTF-8 bytes as Avro has them. Of floating-point numbers, -0.0 comes before 0.0, NaN after infinity.

    A row has no value when the fields are null, all of them; a single null among several counts as the smallest value.
    """
    missing = np.logical_and.reduce([pc.is_null(column).to_numpy(zero_copy_only=False) for column in columns])
    if len(columns) == 1:
        return _numbers(columns[0]), missing
    combined = np.zeros(len(missing), np.int64)
    for column in columns:
        ranks = _ranks(column)
        # Dense ranks of the pair so far: below the number of rows, so the product of two can't overflow.
        combined = combined * (int(ranks.max(initial=0)) + 1) + ranks
        combined = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return combined, missing


def _numbers(column: pa.Array) -> Numbers:
    kind = column.type
    t = pa.types
    if t.is_floating(kind):
        return _numbers(_as_integers(column))
    if t.is_signed_integer(kind):
        return column.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_timestamp(kind) or t.is_time64(kind) or t.is_date64(kind):
        return column.view(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    if t.is_date32(kind) or t.is_time32(kind):
        return column.view(pa.int32()).cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
    return _ranks(column)


def _as_integers(column: pa.Array) -> pa.Array:
    """Floating-point numbers as integers in the order of `Double.compare`: by their bits, with one NaN."""
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _MAGNITUDE, bits), mask=pc.is_null(column).to_numpy(zero_copy_only=False))


def _ranks(column: pa.Array) -> npt.NDArray[np.int64]:
    """Dense ranks from 1 on, null as 0."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_floating(column.type):
        column = _as_integers(column)
    encoded = column.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.zeros(len(order) + 1, np.int64)
    rank_of[order] = np.arange(1, len(order) + 1)
    # Null has no place in the dictionary: it takes the one behind the last.
    return rank_of[pc.fill_null(encoded.indices, len(order)).to_numpy()]


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
    if stage.fill is Fill.NOTHING and not is_partial(old) and not is_partial(new):
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


def is_partial(rows: pa.Table) -> bool:
    """Whether some of the rows may be of partial updates."""
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


Places = npt.NDArray[np.int64]


def latest_per_key(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """One row for each `_hoodie_record_key`, by the rule's log stage. Deletes stay in, as rows marked as such.

    The result is in the order in which the winning rows arrived.
    """
    codes = _codes(rows)
    counts = np.bincount(codes)
    if len(counts) == rows.num_rows:
        return rows
    if rule.merger is not None or rule.log.fill is not Fill.NOTHING or is_partial(rows):
        return _folded(rows, rule, codes, counts)
    if not rule.log.by_ordering:
        return _taken(rows, _last_places(codes, len(counts)))
    return _taken(rows, _greatest_places(rows, rule, codes, counts))


def _codes(rows: pa.Table) -> npt.NDArray[np.int32]:
    encoded = rows.column(RECORD_KEY).unify_dictionaries() if rows.num_rows == 0 else rows.column(RECORD_KEY)
    codes: npt.NDArray[np.int32] = single(encoded).dictionary_encode(null_encoding="encode").indices.to_numpy()
    return codes


def _taken(rows: pa.Table, places: Places) -> pa.Table:
    return rows.take(pa.array(np.sort(places)))


def _last_places(codes: npt.NDArray[np.int32], keys: int) -> Places:
    last = np.zeros(keys, np.int64)
    last[codes] = np.arange(len(codes))  # of equal indices the last assignment stays
    return last


def _greatest_places(
    rows: pa.Table, rule: MergeRule, codes: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]
) -> Places:
    """By ordering value. A sort settles keys of which no entry is a delete; the others are folded in order."""
    values, missing = comparable(ordering_keys(rows, rule))
    is_delete = deleted(rows, rule)
    single = counts[codes] == 1
    with_delete = np.zeros(len(counts), np.bool_)
    with_delete[codes[is_delete]] = True
    folding = with_delete[codes] & ~single
    sorting = np.flatnonzero(~single & ~folding)
    if rule.log.first_wins:
        sorting = sorting[::-1]  # of equal values the first to arrive comes last
    ranks = np.zeros_like(values) if rule.log.rows_newer else values
    order = sorting[np.lexsort((ranks[sorting], codes[sorting]))]
    ends = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], np.ones(min(len(order), 1), np.bool_)))
    places = [np.flatnonzero(single), order[ends]]
    if folding.any():
        every = Side(values, missing, is_delete, in_delete_block(rows))
        winners = np.full(len(counts), -1, np.int64)
        for keys, newer in _rounds(codes, np.flatnonzero(folding)):
            older = winners[keys]
            first = older < 0
            wins = first | newer_wins(rule.log, every.at(np.where(first, newer, older)), every.at(newer))
            winners[keys] = np.where(wins, newer, older)
        places.append(winners[winners >= 0])
    return np.concatenate(places)


def _rounds(codes: npt.NDArray[np.int32], chosen: Places) -> list[tuple[npt.NDArray[np.int32], Places]]:
    """The chosen rows in rounds: the first of each key, the second, … ; (keys, rows) of each round."""
    order = chosen[np.argsort(codes[chosen], kind="stable")]
    keys = codes[order]
    starts = np.flatnonzero(np.append(np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1]))
    lengths = np.diff(np.append(starts, len(keys)))
    turn = np.arange(len(keys)) - np.repeat(starts, lengths)
    by_turn = np.argsort(turn, kind="stable")
    bounds = np.searchsorted(turn[by_turn], np.arange(int(lengths.max(initial=0)) + 1))
    return [(keys[by_turn[low:high]], order[by_turn[low:high]]) for low, high in pairwise(bounds)]


def _folded(rows: pa.Table, rule: MergeRule, codes: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> pa.Table:
    """Keys with several entries combined pair by pair, all keys at once in each round."""
    rows = rows.combine_chunks()
    repeated = np.flatnonzero(counts[codes] > 1)
    merged: pa.Table | None = None
    place = np.zeros(len(counts), np.int64)  # of a key's row in `merged`
    last = np.zeros(len(counts), np.int64)
    for keys, newer in _rounds(codes, repeated):
        arriving = rows.take(pa.array(newer))
        last[keys] = newer
        if merged is None:
            place[keys] = np.arange(len(keys))
            merged = arriving
            continue
        at = place[keys]
        combined = combine(merged.take(pa.array(at)), arriving, rule, rule.log)
        positions = np.arange(merged.num_rows)
        positions[at] = merged.num_rows + np.arange(len(keys))
        merged = pa.concat_tables([merged, combined]).combine_chunks().take(pa.array(positions))
    if merged is None:
        return rows
    single = np.flatnonzero(counts[codes] == 1)
    # Back into the order of arrival: a combined row takes the place of its last entry.
    keys_of_merged = np.zeros(merged.num_rows, np.int64)
    several = np.flatnonzero(counts > 1)
    keys_of_merged[place[several]] = several
    arrival = np.concatenate([single, last[keys_of_merged]])
    every = pa.concat_tables([rows.take(pa.array(single)), merged]).combine_chunks()
    return every.take(pa.array(np.argsort(arrival, kind="stable")))
