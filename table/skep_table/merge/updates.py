"""Updates on their way into base files: one row per key, looked up by the keys of the base batches that pass."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import RowCondition
from skep_format.schema.exact import cast_exactly
from skep_format.schema.types import COMMIT_SEQNO, RECORD_KEY
from skep_table.keys.text import single
from skep_table.merge.combine import combine, is_partial, is_text, newer_of_pairs
from skep_table.merge.rows import DELETED, ORDERING, PARTIAL, POSITION, Mask, as_mask, deleted, without_helpers
from skep_table.merge.rule import Fill, MergeRule

if TYPE_CHECKING:
    from typing_extensions import Self

# Text and bytes of so much are not joined to be taken from: their offsets have 32 bits.
_TAKEN_BYTES: Final = 1 << 30
# Values that are compared before all are: most columns that change have others among them.
_FEW_COMPARED: Final = 64


class Watch(Protocol):
    """Is passed the rows that a merge changes."""

    def inserted(self, rows: pa.Table) -> None:
        """Rows whose keys the base file lacks."""

    def replaced(self, before: pa.RecordBatch, after: pa.RecordBatch) -> None:
        """Rows, and what became of them, in the same order."""

    def deleted(self, rows: pa.RecordBatch) -> None:
        """Rows that are left out."""


class Updates:
    """`rows` may hold deletes (marked as in `merge/rows.py`); of rows with equal keys the last counts.

    `updated` and `deleted` count base rows that were replaced and removed so far. Rows with the helper column POSITION
    find base rows by that, where `apply` gets the number of the first row of each batch. `watch` is passed the base
    rows that change, as they pass. `kept`: columns that base rows keep where their update is marked as PARTIAL.
    """

    def __init__(self, rows: pa.Table, rule: MergeRule, watch: Watch | None = None, kept: Collection[str] = ()) -> None:
        self._rule = rule
        self._watch = watch
        self._rows = last_of_each(rows.combine_chunks())
        self._keys = single(self._rows.column(RECORD_KEY))
        self._is_delete = deleted(self._rows, rule)
        self._whole = rule.merger is not None or rule.base.fill is not Fill.NOTHING or is_partial(rows)
        self._kept = frozenset(kept)
        self._is_partial = as_mask(self._rows.column(PARTIAL)) if kept else np.zeros(0, np.bool_)
        self._places = _places(self._rows)
        self._met = np.zeros(len(self._keys), np.bool_)
        self.updated = 0
        self.deleted = 0

    @property
    def takes_encoded(self) -> bool:
        """Whether base rows may come with the dictionaries of text columns, but for keys and ordering columns.

        Not where rows are combined column by column.
        """
        return not self._whole

    @property
    def replaces_rows(self) -> bool:
        """Whether base rows that have an update are replaced by it or stay, and none is deleted or combined with it."""
        return not self._whole and not self._is_delete.any()

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def rows(self) -> pa.Table:
        """The updates themselves, one row per key, helper columns included."""
        return self._rows

    def apply(
        self, batch: pa.RecordBatch, start: int | None = None, condition: RowCondition | None = None
    ) -> pa.RecordBatch:
        """The base rows with what became of them, in their order and with their columns.

        `start`: the position of the first one in its file; the rows then need no key, but are compared by it.
        `condition`: rows without an update may be left out that fail it.
        """
        hits, arriving = self._found(batch) if start is None else self._placed(start, batch)
        if condition is not None:
            batch, hits = _chosen(batch, hits, condition)
        if not len(hits):
            return batch
        self._met[arriving] = True
        if self._whole:
            return self._apply_combined(batch, hits, arriving)
        if self._rule.base.by_ordering:
            wins = self._wins(batch, hits, arriving)
            hits, arriving = hits[wins], arriving[wins]
        is_delete = self._is_delete[arriving]
        replaced = batch
        stays = ~is_delete
        if stays.any():
            replaced = self._replaced(batch, hits[stays], arriving[stays])
            self.updated += int(stays.sum())
        self._report(batch, replaced, hits, is_delete)
        return self._without(replaced, hits[is_delete])

    def _found(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The base rows that have an update, and these, by key."""
        found = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys)
        hits = np.flatnonzero(pc.is_valid(found).to_numpy(zero_copy_only=False))
        return hits, pc.drop_null(found).to_numpy().astype(np.int64)

    def _placed(self, start: int, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The same by position; a row with another key there is none, and its update is `missed`."""
        positions, order = self._places
        low, high = np.searchsorted(positions, [start, start + batch.num_rows])
        hits, arriving = positions[low:high] - start, order[low:high]
        if RECORD_KEY in batch.schema.names:
            keys = batch.column(RECORD_KEY).take(pa.array(hits))
            fits = as_mask(pc.equal(keys, self._keys.take(pa.array(arriving))))
            hits, arriving = hits[fits], arriving[fits]
        return hits, arriving

    @property
    def missed(self) -> int:
        """How many rows with a position in the base file have met no row of it so far."""
        return int((self._places[0] >= 0).sum() - (self._met[self._places[1]] & (self._places[0] >= 0)).sum())

    def rest(self) -> pa.Table:
        """The rows whose key no base batch had, deletes left out, without helper columns."""
        left = ~self._met & ~self._is_delete
        if left.all():
            return without_helpers(self._rows)
        return without_helpers(self._rows.filter(pa.array(left)))

    def _wins(self, batch: pa.RecordBatch, hits: npt.NDArray[np.int64], arriving: npt.NDArray[np.int64]) -> Mask:
        rule = self._rule
        old = pa.Table.from_batches([_ordering_part(batch, rule)]).take(pa.array(hits))
        new = _ordering_part(self._rows, rule).take(pa.array(arriving))
        nothing = np.zeros(len(hits), np.bool_)
        return newer_of_pairs(old, new, rule, rule.base, nothing, self._is_delete[arriving])

    def _replaced(
        self, batch: pa.RecordBatch, places: npt.NDArray[np.int64], arriving: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        every = _Replacement.of(batch, places, self._rows, arriving)
        if not self._kept:
            return every.in_all(batch)
        is_whole = ~self._is_partial[arriving]
        whole = _Replacement.of(batch, places[is_whole], self._rows, arriving[is_whole])
        columns = [(whole if name in self._kept else every).column(batch, name) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _apply_combined(
        self, batch: pa.RecordBatch, hits: npt.NDArray[np.int64], arriving: npt.NDArray[np.int64]
    ) -> pa.RecordBatch:
        old = pa.Table.from_batches([batch]).take(pa.array(hits))
        new = self._rows.take(pa.array(arriving))
        merged = combine(old, new, self._rule, self._rule.base)
        is_delete = deleted(merged, self._rule)
        self.updated += int((~is_delete).sum())
        replaced = _Replacement.of(batch, hits, merged, np.arange(len(hits))).in_all(batch)
        if self._watch is not None:
            changed = is_delete | self._may_differ(old, merged)
            self._report(batch, replaced, hits[changed], is_delete[changed])
        return self._without(replaced, hits[is_delete])

    def _may_differ(self, old: pa.Table, merged: pa.Table) -> Mask:
        """Which rows are not just the stored ones. A row that loses may have filled what the stored one lacked."""
        if self._rule.base.late_fills and self._rule.base.fill is not Fill.NOTHING:
            return np.ones(old.num_rows, np.bool_)
        return ~as_mask(pc.equal(old.column(COMMIT_SEQNO), merged.column(COMMIT_SEQNO)))

    def _report(
        self, batch: pa.RecordBatch, replaced: pa.RecordBatch, hits: npt.NDArray[np.int64], is_delete: Mask
    ) -> None:
        if self._watch is None:
            return
        stays, goes = pa.array(hits[~is_delete]), pa.array(hits[is_delete])
        if len(stays):
            self._watch.replaced(batch.take(stays), replaced.take(stays))
        if len(goes):
            self._watch.deleted(batch.take(goes))

    def _without(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
        if not len(places):
            return batch
        self.deleted += len(places)
        left = np.ones(batch.num_rows, np.bool_)
        left[places] = False
        return _filtered(batch, left)


def _filtered(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    chosen = pa.array(mask)  # column by column: Arrow takes the rows of a batch one by one
    return pa.RecordBatch.from_arrays([column.filter(chosen) for column in batch.columns], schema=batch.schema)


def _chosen(
    batch: pa.RecordBatch, hits: npt.NDArray[np.int64], condition: RowCondition
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows `hits`, and of the others those that fulfil a condition, if these are not most; and where `hits` are."""
    kept = np.zeros(batch.num_rows, np.bool_)
    kept[hits] = True
    # what rows with an update have is not looked at: a value that is replaced must cause no error
    rows = _filtered(batch.select(list(condition.columns)), ~kept)
    kept[~kept] = as_mask(condition.mask(rows))
    if np.count_nonzero(kept) * 2 > batch.num_rows:
        return batch, hits
    return _filtered(batch, kept), (np.cumsum(kept) - 1)[hits]


def _places(rows: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The positions of rows in ascending order, and the row of each; none for rows that are found by key."""
    if POSITION not in rows.schema.names:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    positions = rows.column(POSITION).to_numpy()
    order = np.argsort(positions, kind="stable")
    return positions[order], order


def last_of_each(rows: pa.Table) -> pa.Table:
    """Of rows with equal keys the last, in the order of the rows."""
    keys = single(rows.column(RECORD_KEY)).dictionary_encode(null_encoding="encode")
    count = len(keys.dictionary)
    if count == rows.num_rows:
        return rows
    last = np.zeros(count, np.int64)
    last[keys.indices.to_numpy()] = np.arange(rows.num_rows)
    return rows.take(pa.array(np.sort(last))).combine_chunks()


def _ordering_part(rows: pa.Table | pa.RecordBatch, rule: MergeRule) -> pa.Table | pa.RecordBatch:
    from_struct = {name.partition(".")[0] for name in rule.ordering_fields}
    wanted = {*from_struct, *rule.ordering_fields}
    wanted.add(DELETED)
    return rows.select([name for name in rows.schema.names if name in wanted or name.startswith(ORDERING)])


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Rows `taken` of `rows`, which are put at `places` of a batch, in ascending order; `mask` is True there.

    `at`: where all rows are then, if these are behind the batch.
    """

    rows: pa.Table
    taken: pa.Array
    places: pa.Array
    mask: pa.Array
    at: pa.Array

    @classmethod
    def of(
        cls, batch: pa.RecordBatch, places: npt.NDArray[np.int64], rows: pa.Table, sources: npt.NDArray[np.int64]
    ) -> Self:
        """Rows `sources` of `rows` at `places`."""
        mask = np.zeros(batch.num_rows, np.bool_)
        mask[places] = True
        at = np.arange(batch.num_rows)
        at[places] = batch.num_rows + np.arange(len(places))
        return cls(rows, pa.array(sources), pa.array(places), pa.array(mask), pa.array(at))

    def in_all(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """In all columns."""
        columns = [self.column(batch, name) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        """In one column, which is copied once, or is that of the batch where its values stay."""
        old, new = batch.column(name), single(self.rows.column(name)).take(self.taken)
        if not len(self.places) or _has(old, self.places, new):
            return old
        if pa.types.is_dictionary(old.type):
            return _replace_encoded(old, self.mask, new)
        if pa.types.is_nested(old.type):
            return pa.concat_arrays([old, cast_exactly(new, old.type, name)]).take(self.at)
        if is_text(old.type) and old.nbytes + new.nbytes < _TAKEN_BYTES:
            return pa.concat_arrays([old, new]).take(self.at)  # `replace_with_mask` takes three times as long
        return pc.replace_with_mask(old, self.mask, new)


def _has(column: pa.Array, places: pa.Array, values: pa.Array) -> bool:
    """Whether a column has these values at some places, bit for bit. False where that takes long to know."""
    few = slice(0, _FEW_COMPARED)
    return _are_same(column.take(places[few]), values[few]) and _are_same(column.take(places), values)


def _are_same(one: pa.Array, other: pa.Array) -> bool:
    one, other = (each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in (one, other))
    if one.type != other.type or pa.types.is_nested(one.type):
        return False
    if pa.types.is_floating(one.type):  # zeros of both signs are equal, and NaN is not
        kind = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[one.type.bit_width]
        one, other = one.view(kind), other.view(kind)
    return bool(one.equals(other))


def _replace_encoded(old: pa.DictionaryArray, mask: pa.Array, new: pa.Array) -> pa.DictionaryArray:
    encoded = new if pa.types.is_dictionary(new.type) else new.dictionary_encode()
    before, after = pa.chunked_array([old, encoded], old.type).unify_dictionaries().chunks
    return pa.DictionaryArray.from_arrays(pc.replace_with_mask(before.indices, mask, after.indices), before.dictionary)
