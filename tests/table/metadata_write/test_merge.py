"""What a compaction of the metadata table keeps: readers find the same in it as in the changes that it merged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden_metadata import RELEASES
from hypothesis import given
from hypothesis import strategies as st

from skep_format.avro import decode_values, parse_record
from skep_format.errors import MetadataTableError
from skep_format.instant_time import InstantTime
from skep_format.schema.types import DataType, DecimalType, DoubleType, LongType, StringType
from skep_table.metadata_table.entries import Entries, latest
from skep_table.metadata_table.partitions import BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX, member_of
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update, partition_stats_update
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.summaries import ColumnSummary
from skep_table.metadata_table.values import statistics
from skep_table.metadata_write.compaction.merge import merged_puts
from skep_table.metadata_write.records import entries_of, record_schema
from tests.blooms import build_bloom

FILE = ("p", ".f_1.log.1_0-0-0")
releases = pytest.mark.parametrize("release", RELEASES)


def entries(update: PartitionUpdate, release: str) -> Iterator[Entries]:
    """An update as it is read out of a block."""
    schema = record_schema(release)
    keys, values = entries_of(update.puts, schema)
    record = parse_record(schema.file_text)
    yield Entries(keys, decode_values(record, values, columns={member_of(update.partition)}))
    if len(update.deletes):
        yield Entries(update.deletes, None)


def compacted(partition: str, release: str, *updates: PartitionUpdate) -> list[Entries]:
    """The base file that a compaction of these updates writes, read again."""
    every = itertools.chain.from_iterable(entries(each, release) for each in updates)
    found = list(merged_puts(partition, every, release))
    keys = [key for puts in found for key in puts["key"].to_pylist()]
    assert keys == sorted(set(keys))
    return [each for puts in found for each in entries(PartitionUpdate(partition, puts), release)]


def one(kind: DataType, low: Any, high: Any, values: int = 5, nulls: int = 0) -> ColumnSummary:
    return ColumnSummary("c", kind, low, high, values, nulls, 10, 20)


def of_file(release: str, *summaries: ColumnSummary) -> PartitionUpdate:
    return column_stats_update({FILE: summaries}, (), (), release)


def shown(found: Sequence[Entries], kind: pa.DataType) -> list[dict[str, Any]]:
    return list(statistics(found, kind).drop_columns(["key"]).to_pylist())


@releases
class TestStatistics:
    def test_of_a_log_file_that_was_appended_to_add_up(self, release: str) -> None:
        first, second = of_file(release, one(LongType(), 3, 7)), of_file(release, one(LongType(), -1, 4, 2, 1))
        (row,) = shown(compacted(COLUMN_STATS, release, first, second), pa.int64())
        assert (row["min_value"], row["max_value"], row["value_count"], row["null_count"]) == (-1, 7, 7, 1)

    def test_end_with_the_file(self, release: str) -> None:
        written, ended = of_file(release, one(LongType(), 3, 7)), column_stats_update({}, [FILE], ["c"], release)
        assert compacted(COLUMN_STATS, release, written, ended) == []
        again = of_file(release, one(LongType(), 5, 5))
        (row,) = shown(compacted(COLUMN_STATS, release, written, ended, again), pa.int64())
        assert (row["min_value"], row["max_value"], row["value_count"]) == (5, 5, 5)

    def test_all_null_beside_values(self, release: str) -> None:
        null = of_file(release, one(LongType(), None, None, 4, 4))
        (row,) = shown(compacted(COLUMN_STATS, release, null, of_file(release, one(LongType(), 3, 7))), pa.int64())
        assert (row["min_value"], row["max_value"], row["null_count"], row["value_count"]) == (3, 7, 4, 9)

    def test_bounds_that_a_footer_left_out_hold_for_any_text(self, release: str) -> None:
        unknown = of_file(release, one(StringType(), None, None, 4, 4))
        known = of_file(release, one(StringType(), "k", "m"))
        (row,) = shown(compacted(COLUMN_STATS, release, unknown, known), pa.string())
        assert row["min_value"] == ""
        assert row["max_value"] > "\U0010ffff"

    def test_nan_is_above_all_numbers(self, release: str) -> None:
        with_nan = of_file(release, one(DoubleType(), 1.0, math.nan))
        (found,) = compacted(COLUMN_STATS, release, with_nan, of_file(release, one(DoubleType(), -2.0, 9.0)))
        assert found.records is not None
        record = found.records.column(0)[0].as_py()
        assert record["minValue"]["DoubleWrapper"]["value"] == -2.0
        assert math.isnan(record["maxValue"]["DoubleWrapper"]["value"])

    def test_of_two_types_are_refused_by_name(self, release: str) -> None:
        first, second = of_file(release, one(LongType(), 3, 7)), of_file(release, one(StringType(), "a", "b"))
        with pytest.raises(MetadataTableError, match=r"column c of \.f_1"):
            compacted(COLUMN_STATS, release, first, second)

    @given(numbers=st.lists(st.decimals(-(10**7), 10**7, places=2), min_size=2, max_size=5))
    def test_of_decimals_are_compared_as_numbers(self, release: str, numbers: list[Decimal]) -> None:
        updates = [of_file(release, one(DecimalType(10, 2), number, number)) for number in numbers]
        (row,) = shown(compacted(COLUMN_STATS, release, *updates), pa.decimal128(10, 2))
        assert (row["min_value"], row["max_value"]) == (min(numbers), max(numbers))


@pytest.mark.parametrize("release", RELEASES[1:])
class TestPartitionStatistics:
    def of_p(self, release: str, low: int, high: int, *, tight: bool) -> PartitionUpdate:
        found = {"p": [one(LongType(), low, high)]}
        return partition_stats_update(found if tight else {}, (), (), release, {} if tight else found)

    def test_tight_ones_replace_and_loose_ones_widen(self, release: str) -> None:
        updates = [
            self.of_p(release, 0, 99, tight=True),
            self.of_p(release, 3, 7, tight=True),
            self.of_p(release, 5, 9, tight=False),
        ]
        found = compacted(PARTITION_STATS, release, *updates)
        (row,) = shown(found, pa.int64())
        assert (row["min_value"], row["max_value"], row["value_count"]) == (3, 9, 10)
        assert found[0].records is not None
        assert not found[0].records.column(0)[0].as_py()["isTightBound"]

    def test_a_tight_one_stays_tight(self, release: str) -> None:
        (found,) = compacted(PARTITION_STATS, release, self.of_p(release, 3, 7, tight=True))
        assert found.records is not None
        assert found.records.column(0)[0].as_py()["isTightBound"]


@releases
class TestNewestWins:
    def keys(self, release: str, keys: list[str], file_id: str, deletes: Sequence[str] = ()) -> PartitionUpdate:
        columns = (pa.array(column, pa.string()) for column in (keys, ["p"] * len(keys), [file_id] * len(keys)))
        return record_index_update(*columns, 5, release, deletes=pa.array(deletes, pa.string()))

    def test_record_index(self, release: str) -> None:
        updates = [
            self.keys(release, ["a", "b", "ü"], "one"),
            self.keys(release, ["a"], "two", ["b"]),
            self.keys(release, ["b", "c"], "three", ["ü"]),
        ]
        member = member_of(RECORD_INDEX)
        keys, found = latest(compacted(RECORD_INDEX, release, *updates), member)
        ids = pc.struct_field(found, "fileId").to_pylist()
        assert dict(zip(keys.to_pylist(), ids, strict=True)) == {"a": "two", "b": "three", "c": "three"}

    def test_bloom_filters_that_ended_are_left_out(self, release: str) -> None:
        bloom = build_bloom(pa.array(["k"]), "SIMPLE", entries=10)
        time = InstantTime("20240101000000000")
        written = bloom_filters_update({("p", "f"): bloom, ("p", "g"): bloom}, (), time, release)
        ended = bloom_filters_update({}, [("p", "f")], time, release)
        (found,) = compacted(BLOOM_FILTERS, release, written, ended)
        assert len(found.keys) == 1
