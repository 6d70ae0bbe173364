"""Files in Spark's legacy calendar, known by their footers, come out in the proleptic Gregorian one."""

from __future__ import annotations

from datetime import date, datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.basefile import read_base
from skep_format.errors import UnsupportedError
from skep_format.storage import LocalStorage
from skep_table.query.filters.text import parse_predicate

# From each of these days of the Julian calendar on (the first of March, but for the year 1 and the end of it) the
# Gregorian day of the same name is so many days away.
AWAY = {
    -719_164: 2,
    -682_945: 1,
    -646_420: 0,
    -609_895: -1,
    -536_845: -2,
    -500_320: -3,
    -463_795: -4,
    -390_745: -5,
    -354_220: -6,
    -317_695: -7,
    -244_645: -8,
    -208_120: -9,
    -171_595: -10,
    -141_427: 0,
}
LEGACY = {
    "org.apache.spark.version": "3.5.0",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.timeZone": "UTC",
}
OLD = {"org.apache.spark.version": "2.4.8"}
DAY = 86_400_000_000


def read_as(
    folder: Path, entries: dict[str, str], column: pa.Array, where: str | None = None, **how: Any
) -> pa.ChunkedArray:
    """The column of a file with such entries in its footer."""
    table = pa.table({"c": column})
    with pq.ParquetWriter(folder / "f.parquet", table.schema, store_schema=False, **how) as file:
        file.write_table(table)
        file.add_key_value_metadata(entries)
    condition = None if where is None else parse_predicate(where, pa.schema([("c", column.type)]))
    batches = read_base(LocalStorage(str(folder)), "f.parquet", condition=condition)
    return pa.Table.from_batches(batches)["c"]


@pytest.mark.parametrize("entries", [LEGACY, OLD], ids=["marked", "of Spark 2.4"])
def test_days_keep_their_names(entries: dict[str, str], tmp_path: Path) -> None:
    starts = list(AWAY)
    days = [*starts, *(start - 1 for start in starts[1:]), None, 0, 20_000]
    expected = [day + AWAY[start] for day, start in zip(starts, starts, strict=True)]
    expected += [start - 1 + AWAY[before] for before, start in pairwise(starts)]
    found = read_as(tmp_path, entries, pa.array(days, pa.int32()).cast(pa.date32()))
    assert found.cast(pa.int32()).to_pylist() == [*expected, None, 0, 20_000]
    assert found[0].as_py() == date(1, 1, 1)


@pytest.mark.parametrize("int96", [False, True], ids=["int64", "int96"])
def test_times_keep_their_names_in_utc(int96: bool, tmp_path: Path) -> None:
    entries = {**LEGACY, "org.apache.spark.legacyINT96": ""} if int96 else LEGACY
    times = [-171_595 * DAY + 1, -141_428 * DAY + 7, -1, None, 5 * DAY]
    column = pa.array(times, pa.timestamp("us"))
    found = read_as(tmp_path, entries, column, use_deprecated_int96_timestamps=int96)
    assert found.cast(pa.int64()).to_pylist() == [-171_605 * DAY + 1, -141_438 * DAY + 7, -1, None, 5 * DAY]


@pytest.mark.parametrize(
    "entries",
    [{}, {"org.apache.spark.version": "3.5.0"}, {"writer.model.name": "avro"}],
    ids=["nobody's", "of Spark 3", "of Hudi"],
)
def test_other_files_are_as_they_are(entries: dict[str, str], tmp_path: Path) -> None:
    days = pa.array([-719_164, -141_428, 0], pa.int32()).cast(pa.date32())
    assert read_as(tmp_path, entries, days).cast(pa.int32()).to_pylist() == [-719_164, -141_428, 0]


def test_a_mark_counts_for_its_own_kind_of_times(tmp_path: Path) -> None:
    times = pa.array([-141_428 * DAY], pa.timestamp("us"))
    only = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": "", "org.apache.spark.timeZone": "UTC"}
    assert read_as(tmp_path, only, times).cast(pa.int64()).to_pylist() == [-141_428 * DAY]
    assert read_as(tmp_path, LEGACY, times, use_deprecated_int96_timestamps=True).cast(pa.int64())[0].as_py() == (
        -141_428 * DAY
    )


def test_statistics_in_the_legacy_calendar_exclude_nothing(tmp_path: Path) -> None:
    days = pa.array([-141_428], pa.int32()).cast(pa.date32())
    assert len(read_as(tmp_path, LEGACY, days, "c = DATE '1582-10-04'")) == 1


@pytest.mark.parametrize(
    ("column", "entries"),
    [
        (
            pa.array([datetime(1850, 1, 1, tzinfo=timezone.utc)]),
            {**LEGACY, "org.apache.spark.timeZone": "Europe/Berlin"},
        ),
        (pa.array([datetime(1850, 1, 1, tzinfo=timezone.utc)]), OLD),
        (pa.array([[date(1500, 1, 1)]]), LEGACY),
        (pa.array([{"x": date(1500, 1, 1)}]), LEGACY),
    ],
    ids=["another zone", "no zone", "in a list", "in a struct"],
)
def test_what_is_not_converted_is_an_error(column: pa.Array, entries: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"f\.parquet, column c: ancient"):
        read_as(tmp_path, entries, column)


def test_times_of_any_zone_from_1900_on_are_read(tmp_path: Path) -> None:
    column = pa.array([datetime(1901, 1, 1, tzinfo=timezone.utc), None])
    assert read_as(tmp_path, OLD, column).cast(pa.int64()).to_pylist() == column.cast(pa.int64()).to_pylist()
