"""Rows that a global index tags: one for each key, and what happens to rows that arrive for another partition.

A row whose key lies in another partition stays there, or moves: then it is deleted where it was and inserted where it
arrived. Whether the arriving row wins at all is settled here, by the merge rule, as the two never meet in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.types import FILE_NAME, PARTITION_PATH, RECORD_KEY, Schema
from skep_table.keys.text import single
from skep_table.merge import DELETED, Fill, MergeRule, combine, latest_per_key, newer_of_pairs
from skep_table.merge.rows import PARTIAL, Mask, deleted
from skep_table.slices import read_slice
from skep_table.table import HudiTable
from skep_table.write.keyed import comparable, named, partition_codes, rows_by
from skep_table.write.planning.candidates import CandidateFiles
from skep_table.write.tags import Located, Tags

# Columns of prepped rows that a row which moves does not keep: it is new, and whole.
_OF_PREPPED = (FILE_NAME, PARTIAL)


@dataclass(frozen=True)
class Relocation:
    """What happens to rows whose key a global index found. `schema` is that of the data columns after the write.

    `combine`: of rows with one key, from whatever partitions, one stays by the rule. `moves`: see `Index.moves`.
    """

    rule: MergeRule
    combine: bool
    moves: bool
    table: HudiTable
    schema: Schema
    files: CandidateFiles
    deletes: bool

    def combined(self, keyed: pa.Table) -> pa.Table:
        """One row for each key, given all rows of some keys. Those that name their file stay: they change that file."""
        if not self.combine or self.deletes:
            return keyed
        if FILE_NAME not in keyed.schema.names:
            return one_a_key(keyed, self.rule.of_batch)
        has_name = pa.array(named(keyed.column(FILE_NAME)))
        return pa.concat_tables(
            [keyed.filter(has_name), one_a_key(keyed.filter(pc.invert(has_name)), self.rule.of_batch)]
        )

    def settled(self, rows: pa.Table, partitions: pa.Array, found: Located) -> tuple[pa.Table, Located]:
        """The rows to be written, with the partition in which they are, and where in it their keys are.

        `partitions` are those in which the keys were found, null for none. Rows that only delete a key where it was
        have the helper column of deletes.
        """
        if self.deletes or not self.moves:
            return _relocated(rows, partitions), found
        if DELETED not in rows.schema.names:
            rows = rows.append_column(DELETED, [pa.repeat(False, rows.num_rows)])
        is_deleted = deleted(rows, self.rule)
        elsewhere = (found.tags >= 0) & ~_same(partitions, single(rows.column(PARTITION_PATH)))
        moving = elsewhere & ~is_deleted
        if not moving.any():
            return _relocated(rows, partitions), found
        staying = pa.array(~moving)
        kept = _relocated(rows.filter(staying), partitions.filter(staying))
        where = np.flatnonzero(moving)
        plain = [name for name in rows.schema.names if name not in _OF_PREPPED]
        arriving = rows.select(plain).take(pa.array(where))
        moved, located = self._move(arriving, partitions.take(pa.array(where)), found.of(where))
        return pa.concat_tables([kept, _like(kept.schema, moved)]), Located.joined([found.of(~moving), located])

    def _move(self, new: pa.Table, partitions: pa.Array, found: Located) -> tuple[pa.Table, Located]:
        """A delete where each row was and an insert where it arrives, unless the stored row wins."""
        rule = self.rule
        wins: Mask = np.ones(new.num_rows, np.bool_)
        losers, losing = new.slice(0, 0), found.of(slice(0))
        if rule.base.by_ordering or rule.base.fill is not Fill.NOTHING or rule.merger is not None:
            old = self._stored(new, partitions, found.tags)
            nothing = np.zeros(new.num_rows, np.bool_)
            wins = newer_of_pairs(old, new, rule, rule.base, nothing, nothing)
            merged = combine(old, new, rule, rule.base)
            if rule.base.fill is not Fill.NOTHING:
                # The stored row stays where it is, and takes over what it lacks.
                lost = pa.array(~wins)
                losers = _with_path(merged.filter(lost), partitions.filter(lost))
                losing = found.of(~wins)
            new = _with_path(merged, single(new.column(PARTITION_PATH)))
        won = pa.array(wins)
        inserts = new.filter(won)
        deletes = _deletes(inserts, partitions.filter(won))
        located = [Located.new(inserts.num_rows), found.of(wins), losing]
        return pa.concat_tables([inserts, deletes, losers]), Located.joined(located)

    def _stored(self, new: pa.Table, partitions: pa.Array, tags: Tags) -> pa.Table:
        """Row by row the stored row of the keys of `new`."""
        named = new.select([RECORD_KEY]).append_column(PARTITION_PATH, partitions)
        columns = [name for name in new.schema.names if name != DELETED]
        paths, codes = partition_codes(named)
        found = []
        for code, rows in rows_by(codes, len(paths)):
            slices = {slice_.file_id: slice_ for slice_ in self.table.view().slices(paths[code])}
            for tag, part in rows_by(tags[rows], len(self.files[paths[code]])):
                keys = single(new.column(RECORD_KEY)).take(pa.array(rows[part]))
                slice_ = slices[self.files[paths[code]][tag].file_id]
                batches = read_slice(self.table, slice_, columns=columns, schema=self.schema.with_meta())
                found += [batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches]
        stored = pa.Table.from_batches(found).combine_chunks()
        at = pc.index_in(single(new.column(RECORD_KEY)), value_set=single(stored.column(RECORD_KEY)))
        aligned = stored.take(at)
        return pa.table(
            {name: aligned.column(name).cast(new.schema.field(name).type) for name in columns}
        ).append_column(DELETED, [pa.repeat(False, new.num_rows)])


def one_a_key(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """One row for each key, by the merge rule. Rows that it can't compare stay: they are counted as errors later."""
    valid = comparable(rows, rule.ordering_fields)
    if valid is None:
        return latest_per_key(rows, rule)
    return pa.concat_tables([latest_per_key(rows.filter(valid), rule), rows.filter(pc.invert(valid))])


def tagged_counts(rows: pa.Table, tags: Tags) -> Mapping[str, Mapping[int, int]]:
    """Partition path → tag → how many rows."""
    paths, codes = partition_codes(rows)
    counts: dict[str, dict[int, int]] = {}
    for code, at in rows_by(codes, len(paths)):
        values, numbers = np.unique(tags[at], return_counts=True)
        counts[paths[code]] = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    return counts


def _like(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Rows with the columns of a schema, null where they have none."""
    names, count = rows.schema.names, rows.num_rows
    columns = [rows.column(each.name) if each.name in names else pa.nulls(count, each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _same(found: pa.Array, own: pa.Array) -> Mask:
    same: Mask = pc.fill_null(pc.equal(found, own), False).to_numpy(zero_copy_only=False)
    return same


def _relocated(rows: pa.Table, partitions: pa.Array) -> pa.Table:
    """With the partition in which the key is, where it is in one."""
    return _with_path(rows, pc.coalesce(partitions, single(rows.column(PARTITION_PATH))))


def _with_path(rows: pa.Table, paths: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(PARTITION_PATH)
    return rows.set_column(at, rows.schema.field(at), paths)


def _deletes(rows: pa.Table, paths: pa.Array) -> pa.Table:
    """Entries that delete the rows' keys in `paths`. Without ordering value they always win."""
    columns = {RECORD_KEY: rows.column(RECORD_KEY), PARTITION_PATH: paths, DELETED: pa.repeat(True, rows.num_rows)}
    return pa.Table.from_arrays(
        [columns[f.name] if f.name in columns else pa.nulls(rows.num_rows, f.type) for f in rows.schema],
        schema=rows.schema,
    )
