"""One row per key out of rows in their order of arrival."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skep_format.schema.types import RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.combine import Side, combine, newer_wins
from skep_table.merge.ordering import comparable
from skep_table.merge.rows import HAS, deleted, in_delete_block, ordering_keys
from skep_table.merge.rule import Fill, MergeRule

Places = npt.NDArray[np.int64]


def latest_per_key(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """One row for each `_hoodie_record_key`, by the rule's log stage. Deletes stay in, as rows marked as such.

    The result is in the order in which the winning rows arrived.
    """
    codes = _codes(rows)
    counts = np.bincount(codes)
    if len(counts) == rows.num_rows:
        return rows
    partial = any(name.startswith(HAS) for name in rows.schema.names)
    if rule.merger is not None or rule.log.fill is not Fill.NOTHING or partial:
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
