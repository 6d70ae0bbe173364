"""Statistics of columns that a metadata table states, against those of the rows: wider ones are loose, narrower wrong.

By narrower bounds, and by counts that hide nulls or values, a query leaves out files whose rows it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skep_format.schema.arrow import arrow_type
from skep_table.keys.text import single
from skep_table.metadata_table.records.summaries import Columns, ColumnSummary
from skep_table.services.metadata_check.findings import Findings, MetadataProblem

_LONGEST: Final = 1024  # summaries cut texts there, so that longer ones can't be compared with them
# Java orders characters from there on in another way than their bytes are.
_BEYOND_PLAIN_ORDER: Final = r"[\x{d800}-\x{10ffff}]"
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Described:
    """A file or partition, with the summaries of its columns by name; a column that is not in it has only nulls.

    `path` is the partition path; the `name` of a partition is its path.
    """

    path: str
    name: str
    summaries: Mapping[str, ColumnSummary]

    def of(self, column: str) -> ColumnSummary:
        """The summary of a column."""
        rows = max((each.values for each in self.summaries.values()), default=0)
        return self.summaries.get(column) or ColumnSummary(column, None, None, None, rows, rows)


def check_bounds(
    described: Sequence[Described], columns: Columns, stated: Mapping[str, pa.Table], findings: Findings
) -> None:
    """Compares what is stated of files or partitions, by column and in their order, as
    `MetadataTable.statistics_of_files` returns it."""
    known = {column: _mask(pc.is_valid(single(stated[column]["value_count"]))) for column in columns}
    any_known = np.zeros(len(described), np.bool_)
    for mask in known.values():
        any_known |= mask
    for each in np.flatnonzero(~any_known).tolist():
        detail = "no statistics: queries look into it"
        findings.add(MetadataProblem.LOOSE, described[each].path, described[each].name, detail)
    for column, kind in columns.items():
        expected = _expected(described, column, arrow_type(kind))
        findings.checked += int(known[column].sum())
        for mask, problem, detail in _problems(expected, stated[column], known[column], any_known):
            for at in np.flatnonzero(mask).tolist():
                one, subject = described[at], f"{described[at].name} {column}"
                found = _text(stated[column], at) if known[column][at] else None
                findings.add(problem, one.path, subject, detail, found=found, expected=_text(expected, at))


def _expected(described: Sequence[Described], column: str, kind: pa.DataType) -> pa.Table:
    found = [each.of(column) for each in described]
    return pa.table(
        {
            "min_value": _typed([each.low for each in found], kind),
            "max_value": _typed([each.high for each in found], kind),
            "value_count": pa.array([each.values for each in found], pa.int64()),
            "null_count": pa.array([each.nulls for each in found], pa.int64()),
        }
    )


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Bounds as summaries have them, times and dates as numbers, in the type of the column."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _problems(
    expected: pa.Table, stated: pa.Table, known: _Mask, any_known: _Mask
) -> list[tuple[_Mask, MetadataProblem, str]]:
    low, high = (single(expected[name]) for name in ("min_value", "max_value"))
    least, most = (single(stated[name]) for name in ("min_value", "max_value"))
    values, nulls = (single(expected[name]).to_numpy() for name in ("value_count", "null_count"))
    has_values, has_nulls = nulls < values, nulls > 0
    compared = known & _comparable(low, least) & _comparable(high, most)
    narrow = compared & (_mask(pc.greater(least, low)) | _mask(pc.less(most, high)) | _hides_nan(high, most))
    count = single(stated["null_count"])
    hides_nulls = known & has_nulls & _mask(pc.equal(count, 0))
    hides_values = known & has_values & _mask(pc.equal(count, single(stated["value_count"])))
    without_bounds = known & has_values & (_mask(pc.is_null(least)) | _mask(pc.is_null(most)))
    wide = compared & has_values & (_mask(pc.less(least, low)) | _mask(pc.greater(most, high)))
    other_counts = (
        known
        & ~hides_nulls
        & ~hides_values
        & (
            _mask(pc.not_equal(count, single(expected["null_count"])))
            | _mask(pc.not_equal(single(stated["value_count"]), single(expected["value_count"])))
        )
    )
    return [
        (
            ~known & any_known & has_values,
            MetadataProblem.MISSING,
            "without a record beside others it counts as all null",
        ),
        (narrow, MetadataProblem.DIFFERS, "narrower than the values: queries lose rows"),
        (hides_nulls, MetadataProblem.DIFFERS, "the count of nulls hides nulls: queries for them lose rows"),
        (hides_values, MetadataProblem.DIFFERS, "the counts hide all values: queries lose rows"),
        (
            without_bounds & ~hides_values,
            MetadataProblem.LOOSE,
            "no bounds: skep reads it, Hudi takes all values to be null",
        ),
        (wide & ~narrow, MetadataProblem.LOOSE, "wider than the values"),
        (other_counts, MetadataProblem.LOOSE, "other counts"),
    ]


def _hides_nan(high: pa.Array, most: pa.Array) -> _Mask:
    """Whether there is a NaN, which Spark orders behind all numbers, and a number is stated as the largest value."""
    if not pa.types.is_floating(high.type):
        return np.zeros(len(high), np.bool_)
    return _mask(pc.is_nan(high)) & _mask(pc.is_valid(most))


def _comparable(ours: pa.Array, theirs: pa.Array) -> _Mask:
    """Without long texts and those beyond the plain order."""
    if not (pa.types.is_string(ours.type) or pa.types.is_binary(ours.type)):
        return np.ones(len(ours), np.bool_)
    length = pc.utf8_length if pa.types.is_string(ours.type) else pc.binary_length
    fits = ~_mask(pc.greater(length(theirs), _LONGEST))
    if pa.types.is_binary(ours.type):
        return fits
    odd = (_mask(pc.match_substring_regex(texts, _BEYOND_PLAIN_ORDER)) for texts in (ours, theirs))
    return fits & ~np.logical_or(*odd)


def _text(table: pa.Table, row: int) -> str:
    names = ("min_value", "max_value", "null_count", "value_count")
    low, high, nulls, values = (table[name][row].as_py() for name in names)
    return f"{low!s} … {high!s}, {nulls} of {values} null"


def _mask(mask: pa.Array) -> _Mask:
    found: _Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found
