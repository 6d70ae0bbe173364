"""Conditions beside the predicate of a read: rows with one of many values, and two conditions at once."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.basefile import RowCondition
from skep_format.basefile.matching import STEP_ROWS
from skep_format.batching import in_groups

# Of rows that are compared at once with the values.
_COMPARED_BYTES: Final = 32 << 20
# From so many on, Arrow's join takes a third of the time of its look-up: it has a faster hash table, and threads.
_JOINED_ROWS: Final = 100_000
_NUMBER: Final = "_skep_number"


@dataclass(frozen=True, eq=False)
class OneOf:
    """Rows that have one of some values, of its type, in a column.

    There may be many, which Arrow hashes for each call: it pays where several times as many rows are compared.
    """

    column: str
    values: pa.Array

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def rows_at_once(self) -> int:
        return max(STEP_ROWS, 8 * len(self.values))

    @cached_property
    def expression(self) -> pc.Expression | None:
        """That the column is between the least and the greatest."""
        least, greatest = (pc.min_max(self.values)[name] for name in ("min", "max"))
        if not least.is_valid:
            return None
        return (pc.field(self.column) >= least) & (pc.field(self.column) <= greatest)

    def mask(self, rows: pa.RecordBatch | pa.Table) -> pa.Array | pa.ChunkedArray:
        column = rows.column(self.column)
        if len(column) < _JOINED_ROWS:
            return pc.is_in(column, value_set=self.values, skip_nulls=True)
        numbered = pa.table([column, np.arange(len(column))], [self.column, _NUMBER])
        found = numbered.join(pa.table([self.values], [self.column]), self.column, join_type="left semi")
        mask = np.zeros(len(column), np.bool_)
        mask[found.column(_NUMBER).to_numpy()] = True
        return pa.array(mask)

    def filtered(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
        """The rows of batches, several of which are compared at once, in a schema that has plain columns in place of
        their dictionaries.
        """
        for _, alike in itertools.groupby(batches, lambda batch: batch.schema):
            for group in in_groups(alike, lambda batch: int(batch.nbytes), _COMPARED_BYTES):
                rows = pa.Table.from_batches(group)
                yield from rows.filter(self.mask(rows)).cast(schema).to_batches()


@dataclass(frozen=True, slots=True, eq=False)
class Both:
    """Rows that fulfil two conditions."""

    one: RowCondition
    other: RowCondition

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.one.columns, *self.other.columns)))

    @property
    def rows_at_once(self) -> int:
        return max(self.one.rows_at_once, self.other.rows_at_once)

    @property
    def expression(self) -> pc.Expression | None:
        one, other = self.one.expression, self.other.expression
        return one & other if one is not None and other is not None else one if other is None else other

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.and_kleene(self.one.mask(rows), self.other.mask(rows))


def both(one: RowCondition | None, other: RowCondition | None) -> RowCondition | None:
    """What both leave, of which one may be none."""
    return Both(one, other) if one is not None and other is not None else one if other is None else other
