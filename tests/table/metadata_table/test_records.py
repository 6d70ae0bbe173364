"""Records built for the metadata table: those of Hudi's own tables worked out again, and that no bound loses a row."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_metadata import RELEASES, opened
from hypothesis import given, settings
from hypothesis import strategies as st

from skep_format.avro import decode_values, encode_records, parse_record
from skep_format.avro_schemas import schema_of
from skep_format.basefile.footer import read_footer
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import arrow_type
from skep_format.schema.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    Field,
    FloatType,
    IntType,
    LongType,
    MapType,
    Schema,
    StringType,
    TimestampType,
    TimeType,
)
from skep_table.metadata_table import MetadataTable
from skep_table.metadata_table.entries import Entries, latest
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.build import PartitionUpdate
from skep_table.metadata_table.records.column_stats import column_stats_update, indexable, partition_stats_update
from skep_table.metadata_table.records.record_index import record_index_update
from skep_table.metadata_table.records.secondary_index import secondary_index_update, secondary_keys, sharded_parts
from skep_table.metadata_table.records.summaries import (
    ColumnSummary,
    merged,
    summaries_of_base_file,
    summaries_of_rows,
    summaries_without_rows,
    summary_of,
)
from skep_table.metadata_table.values import statistics
from skep_table.query.filters.predicate import Bounds, ColumnRef, Comparison, IsNull, Literal, Predicate
from skep_table.table import HudiTable

STATS = "ColumnStatsMetadata"
# The case named after column statistics names its columns, in the others Hudi picked them.
WITH_STATISTICS = [
    (release, case)
    for case in ("cow_column_stats", "cow_upsert_mdt", "cow_record_index")
    for release in ("1.0.2", "1.1.1")
]


def kept(metadata: MetadataTable, partition: str, member: str) -> dict[str, Any]:
    """The records of a partition, by key."""
    keys, records = latest(metadata._lookup(partition, None, member), member)
    return dict(zip(keys.to_pylist(), records.to_pylist(), strict=True))


def built(update: PartitionUpdate, member: str) -> dict[str, Any]:
    assert update.puts["key"].to_pylist() == sorted(update.puts["key"].to_pylist())
    return {row["key"]: row["record"][member] for row in update.puts.to_pylist()}


def live_files(table: HudiTable) -> list[tuple[str, str, str]]:
    """Partition path, path and file id of each base file of the latest slices."""
    view = table.view(metadata=False)
    return [
        (partition, slice_.base_file.path, slice_.file_id)
        for partition in view.partitions()
        for slice_ in view.slices(partition)
        if slice_.base_file is not None
    ]


def never(names: Sequence[str]) -> pa.Table:
    raise AssertionError(f"columns {names} were read")


def summaries(table: HudiTable, path: str, columns: dict[str, DataType]) -> list[ColumnSummary]:
    metadata = pq.read_metadata(Path(str(table.storage.root)) / path)
    return summaries_of_base_file(metadata, columns, never)


class TestTablesOfHudi:
    """What skep builds of the files is what Hudi built of them, member by member."""

    def test_record_index(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_record_index")
        expected = kept(metadata, "record_index", "recordIndexMetadata")
        rows = [
            (key, partition, file_id)
            for partition, path, file_id in live_files(table)
            for key in pq.read_table(
                Path(str(table.storage.root)) / path, columns=["_hoodie_record_key"], partitioning=None
            )
            .column(0)
            .to_pylist()
        ]
        assert {key for key, _, _ in rows} == set(expected)
        for time in {record["instantTime"] for record in expected.values()}:
            of_time = [row for row in rows if expected[row[0]]["instantTime"] == time]
            columns = (pa.array(column, pa.string()) for column in zip(*of_time, strict=True))
            found = built(record_index_update(*columns, time, release), "recordIndexMetadata")
            assert found == {key: expected[key] for key, _, _ in of_time}

    def test_bloom_filters(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        expected = kept(metadata, "bloom_filters", "BloomFilterMetadata")
        files = live_files(table)
        for partition, path, _ in files:
            name = path.rpartition("/")[2]
            bloom = read_footer(table.storage, path).bloom
            assert bloom is not None
            instant = InstantTime(name.rpartition("_")[2].partition(".")[0])
            found = built(bloom_filters_update({(partition, name): bloom}, [], instant, release), "BloomFilterMetadata")
            assert len(found) == 1
            assert found.items() <= expected.items()

    @pytest.mark.parametrize(("release", "case"), [("0.15.0", "cow_column_stats"), *WITH_STATISTICS])
    def test_column_statistics(self, golden: Path, release: str, case: str) -> None:
        table, metadata = opened(golden, release, case)
        expected = kept(metadata, "column_stats", STATS)
        columns = indexable(table.schema().with_meta(), {record["columnName"] for record in expected.values()}, release)
        written = {
            (partition, path.rpartition("/")[2]): summaries(table, path, dict(columns))
            for partition, path, _ in live_files(table)
        }
        found = built(column_stats_update(written, [], [], release), STATS)
        names = {name for _, name in written}
        assert found == {key: record for key, record in expected.items() if record["fileName"] in names}
        assert len(found) == len(columns) * len(names)

    @pytest.mark.parametrize(("release", "case"), WITH_STATISTICS)
    def test_partition_statistics(self, golden: Path, release: str, case: str) -> None:
        table, metadata = opened(golden, release, case)
        expected = kept(metadata, "partition_stats", STATS)
        columns = indexable(table.schema().with_meta(), {record["columnName"] for record in expected.values()}, release)
        files: dict[str, list[ColumnSummary]] = {}
        for partition, path, _ in live_files(table):
            files.setdefault(partition, []).extend(summaries(table, path, dict(columns)))
        written = {partition: merged(each) for partition, each in files.items()}
        assert built(partition_stats_update(written, [], [], release), STATS) == expected

    @pytest.mark.parametrize(("release", "case"), WITH_STATISTICS[2:])
    def test_the_columns_that_hudi_picks(self, golden: Path, release: str, case: str) -> None:
        table, metadata = opened(golden, release, case)
        expected = {record["columnName"] for record in kept(metadata, "column_stats", STATS).values()}
        meta = {"_hoodie_commit_seqno", "_hoodie_file_name"}  # the definition has three of the meta columns
        assert set(indexable(table.schema().with_meta(), None, release, at_most=32)) - meta == expected


# -- what no table of Hudi here has ------------------------------------------------------------------------------------


class TestRecordIndex:
    def one(self, file_id: str) -> dict[str, Any]:
        columns = (pa.array([text]) for text in ("k", "p", file_id))
        return built(record_index_update(*columns, 5, "1.1.1"), "recordIndexMetadata")["k"]

    @pytest.mark.parametrize(
        "file_id",
        [
            "00000007-0000-0000-0000", "", "80C91CC9-c230-47c5-8b9f-58c8c4d8d3b7-0", "ü",
            "80c91cc9-c230-47c5-8b9f-58c8c4d8d3b7-00", "80c91cc9-c230-47c5-8b9f-58c8c4d8d3b7-99999999999",
            "80c91cc9-c230-47c5-8b9f-58c8c4d8d3b7-0\n",
        ],
    )  # fmt: skip
    def test_an_id_that_would_not_come_back_is_kept_as_text(self, file_id: str) -> None:
        record = self.one(file_id)
        assert (record["fileId"], record["fileIdEncoding"]) == (file_id, 1)
        assert (record["fileIdHighBits"], record["fileIdLowBits"], record["fileIndex"]) == (-1, -1, -1)

    @pytest.mark.parametrize(("suffix", "index"), [("", -1), ("-0", 0), ("-123456789", 123456789)])
    def test_a_uuid_is_two_numbers(self, suffix: str, index: int) -> None:
        record = self.one("80c91cc9-c230-47c5-8b9f-58c8c4d8d3b7" + suffix)
        assert (record["fileId"], record["fileIdEncoding"], record["fileIndex"]) == ("", 0, index)
        high, low = record["fileIdHighBits"], record["fileIdLowBits"]
        assert f"{high % 2**64:016x}{low % 2**64:016x}" == "80c91cc9c23047c58b9f58c8c4d8d3b7"

    def test_a_key_that_moves_is_put_only(self) -> None:
        keys = pa.array(["\U00010000", "a", "\uffff"])
        places = pa.array(["p"] * 3)
        update = record_index_update(keys, places, places, 5, "0.15.0", deletes=pa.array(["c", "a", "b", "b"]))
        assert update.puts["key"].to_pylist() == ["a", "\uffff", "\U00010000"]
        assert update.deletes.to_pylist() == ["b", "c"]

    def test_a_key_is_put_once(self) -> None:
        twice = pa.array(["a", "a"])
        with pytest.raises(ValueError, match="'a'"):
            record_index_update(twice, twice, twice, 5, "0.15.0")

    def test_nothing(self) -> None:
        none = pa.array([], pa.string())
        update = record_index_update(none, none, none, 5, "0.15.0", deletes=pa.array(["a"]))
        assert (len(update.puts), update.deletes.to_pylist()) == (0, ["a"])


SPECIAL = st.text(st.sampled_from("a$\\\0ü\n\U00010000"), max_size=6)


class TestSecondaryIndex:
    @pytest.mark.parametrize(
        ("value", "key", "expected"),
        [
            ("user_id", "record_123", "user_id$record_123"), (None, "record_123", "\0$record_123"), ("", "", "$"),
            ("a$b", "c\\d", "a\\$b$c\\\\d"), ("\0", "k", "\\\0$k"),
        ],
    )  # fmt: skip
    def test_keys_are_those_of_hudi(self, value: str | None, key: str, expected: str) -> None:
        assert secondary_keys(pa.array([value], pa.string()), pa.array([key])).to_pylist() == [expected]

    @given(st.lists(st.tuples(st.none() | SPECIAL, SPECIAL), min_size=1))
    def test_the_group_is_chosen_by_the_value_alone(self, pairs: list[tuple[str | None, str]]) -> None:
        values, keys = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
        blank = pa.array([""] * len(pairs))
        assert sharded_parts(secondary_keys(values, keys)).equals(secondary_keys(values, blank))

    @pytest.mark.parametrize("release", ["1.0.2", "1.1.1"])
    def test_a_changed_value_moves_its_record_key(self, release: str) -> None:
        old, new = pa.array(["a", "b", None]), pa.array(["a", "c", "d"])
        keys = pa.array(["1", "2", "3"])
        added, removed = (secondary_keys(values, keys) for values in (new, old))
        update = secondary_index_update("secondary_index_x", added, removed, release, by_value=release == "1.1.1")
        assert update.puts["key"].to_pylist() == ["a$1", "c$2", "d$3"]
        assert update.deletes.to_pylist() == ["\0$3", "b$2"]
        assert update.puts["record"].to_pylist() == [{"type": 7, "SecondaryIndexMetadata": {"isDeleted": False}}] * 3


class TestEnds:
    def test_of_column_statistics(self, release: str) -> None:
        update = column_stats_update({}, [("p", "f.parquet")], ["a", "b"], release)
        if release == "1.1.1":
            assert (len(update.puts), len(update.deletes)) == (0, 2)
            return
        records = built(update, STATS).values()
        assert {record["columnName"] for record in records} == {"a", "b"}
        for record in records:
            assert (record["fileName"], record["isDeleted"], record["nullCount"]) == ("f.parquet", True, -1)
            assert record["minValue"] is record["maxValue"] is None

    def test_of_bloom_filters(self, release: str) -> None:
        (record,) = built(
            bloom_filters_update({}, [("p", "f")], InstantTime("1"), release), "BloomFilterMetadata"
        ).values()
        assert record == {"type": "", "timestamp": "1", "bloomFilter": b"", "isDeleted": True}


class TestColumns:
    SCHEMA = Schema(
        (
            Field("_hoodie_record_key", StringType()), Field("small", DecimalType(20, 10)),
            Field("wide", DecimalType(30, 10)), Field("bytes", BinaryType()), Field("map", MapType(StringType())),
            Field("last", IntType()),
        )
    )  # fmt: skip

    def test_types_with_statistics(self) -> None:
        older = ["_hoodie_record_key", "small", "bytes", "last"]
        assert list(indexable(self.SCHEMA, None, "0.15.0")) == older
        assert list(indexable(self.SCHEMA, None, "1.0.2")) == older
        assert list(indexable(self.SCHEMA, None, "1.1.1")) == [*older[:2], "wide", *older[2:]]

    def test_named_ones_and_the_first(self) -> None:
        assert list(indexable(self.SCHEMA, ["last", "map", "none"], "1.1.1")) == ["last"]
        assert list(indexable(self.SCHEMA, None, "1.1.1", at_most=2)) == ["_hoodie_record_key", "small", "wide"]


TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.sampled_from(["x" * 6000, "x" * 6000 + "y", "\U0010ffff" * 2000, "\uffff" * 1500, "a" + "\ud7ff" * 3000]),
)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
VALUES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (StringType(), TEXTS),
    (BinaryType(), st.binary(max_size=4) | st.sampled_from([b"\xff" * 5000, b"a" + b"\xff" * 5000, b"b" * 5000])),
    (DoubleType(), st.floats(allow_infinity=True) | st.just(-0.0)),
    (FloatType(), st.floats(width=32)),
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (IntType(), st.integers(-(2**31), 2**31 - 1)),
    (BooleanType(), st.booleans()),
    (DateType(), st.dates()),
    (TimestampType("us", utc=False), MOMENTS),
    (TimestampType("ms", utc=True), MOMENTS.map(lambda at: at.replace(microsecond=0))),
    (TimeType("us"), st.times()),
    (DecimalType(38, 6), st.decimals(-(10**20), 10**20, places=6)),
    (DecimalType(10, 2), st.decimals(-(10**7), 10**7, places=2)),
]
COLUMNS = st.sampled_from(VALUES).flatmap(
    lambda each: st.tuples(st.just(each[0]), st.lists(st.none() | each[1], min_size=1, max_size=8))
)


def parquet(values: pa.Array) -> tuple[pq.FileMetaData, pa.Table]:
    """A file with row groups of three rows, as Arrow writes it: no bounds above 4 KiB, none that count NaN."""
    table, sink = pa.table({"c": values}), io.BytesIO()
    pq.write_table(table, sink, row_group_size=3)
    return pq.ParquetFile(sink).metadata, table


def read_back(update: PartitionUpdate, release: str) -> Entries:
    """The records after a way through their bytes."""
    record = parse_record(schema_of("HoodieMetadataRecord", release))
    puts = update.puts["record"].combine_chunks()
    members = dict(zip((field.name for field in puts.type), puts.flatten(), strict=True))
    data, offsets = encode_records(record, pa.table({"key": [""] * len(puts), **members}))
    values = pa.Array.from_buffers(pa.large_binary(), len(puts), [None, pa.py_buffer(offsets), data])
    return Entries(update.puts["key"].combine_chunks(), decode_values(record, values, columns={STATS}))


def within(low: Any, value: Any, high: Any) -> bool:
    """As Spark compares: NaN is the greatest."""
    if isinstance(value, float):
        order = [(math.isnan(each), 0.0 if math.isnan(each) else each) for each in (low, value, high)]
        return order[0] <= order[1] <= order[2]
    return bool(low <= value <= high)


@given(COLUMNS)
@settings(max_examples=300)
def test_no_value_is_beyond_the_bounds(column: tuple[DataType, list[Any]]) -> None:
    kind, values = column
    array = pa.array(values, arrow_type(kind))
    metadata, table = parquet(array)
    (of_file,) = summaries_of_base_file(metadata, {"c": kind}, table.select)
    (of_rows,) = summaries_of_rows(table, {"c": kind})
    for summary in (of_file, of_rows, *merged([of_file, of_rows])):
        for value in array.drop_null():
            held = value.as_py()
            stored = held if isinstance(held, (str, bytes)) else summary_of("c", kind, pa.array([value])).low
            assert within(summary.low, stored, summary.high)
    assert (of_file.values, of_file.nulls) == (len(array), array.null_count) == (of_rows.values, of_rows.nulls)


@given(COLUMNS, st.sampled_from(RELEASES))
@settings(max_examples=300)
def test_pruning_by_what_was_written_loses_no_row(column: tuple[DataType, list[Any]], release: str) -> None:
    kind, values = column
    if not indexable(Schema((Field("c", kind),)), None, release):
        return
    array = pa.array(values, arrow_type(kind))
    metadata, table = parquet(array)
    written = {("p", "f.parquet"): summaries_of_base_file(metadata, {"c": kind}, table.select)}
    stats = statistics([read_back(column_stats_update(written, [], [], release), release)], array.type)
    names = ("min_value", "max_value", "null_count", "value_count")
    bounds = {("c",): Bounds(*(stats[name].combine_chunks() for name in names))}
    held = ColumnRef(("c",), array.type)
    conditions: list[Any] = [IsNull(held, negated=False)] if array.null_count else []
    for value in array.drop_null():
        literal = Literal(value)
        conditions += [Comparison(name, held, literal) for name in ("equal", "less_equal", "greater_equal")]
        conditions.append(IsNull(held, negated=True))
    for condition in conditions:
        if Predicate(condition, "c").filter(table.combine_chunks().to_batches()[0]).num_rows:
            assert Predicate(condition, "c").may_match(bounds, 1).tolist() == [True]


class TestSummaries:
    @pytest.mark.parametrize("text", ["x" * 6000, "é" * 6000])
    def test_long_texts_are_cut(self, text: str) -> None:
        summary = summary_of("c", StringType(), pa.array([text]))
        assert summary.low < text < summary.high
        assert len(summary.low) == len(summary.high) == 1024

    def test_a_text_that_nothing_is_above_is_kept(self) -> None:
        text = "\U0010ffff" * 2000
        assert summary_of("c", StringType(), pa.array([text])).high == text

    def test_all_null(self) -> None:
        summary = summary_of("c", LongType(), pa.array([None, None], pa.int64()))
        assert (summary.low, summary.high, summary.values, summary.nulls) == (None, None, 2, 2)

    def test_only_the_columns_that_a_file_has(self) -> None:
        metadata, table = parquet(pa.array([1]))
        kinds: dict[str, DataType] = {"c": LongType(), "d": LongType()}
        assert [each.column for each in summaries_of_base_file(metadata, kinds, table.select)] == ["c"]

    def test_a_column_of_another_type_in_the_file_is_read(self) -> None:
        metadata, _ = parquet(pa.array([datetime(1960, 1, 1)], pa.timestamp("ms")))
        micros = pa.table({"c": pa.array([datetime(1960, 1, 1)], pa.timestamp("us"))})
        (summary,) = summaries_of_base_file(metadata, {"c": TimestampType("us", utc=False)}, micros.select)
        assert summary.low == summary.high == -315_619_200_000_000
        assert summary.stored_bytes > 0

    def test_nan_is_the_greatest(self) -> None:
        some = summary_of("c", DoubleType(), pa.array([float("nan"), 1.0, None]))
        (both,) = merged([some, summary_of("c", DoubleType(), pa.array([7.0]))])
        assert both.low == 1.0
        assert math.isnan(both.high)

    def test_a_log_file_with_deletes_only(self, release: str) -> None:
        written = {("p", ".f.log.1"): summaries_without_rows({"c": LongType()})}
        (record,) = built(column_stats_update(written, [], [], release), STATS).values()
        assert (record["valueCount"], record["nullCount"], record["minValue"]) == (0, 0, None)
        assert record.get("valueType", {"typeOrdinal": 1})["typeOrdinal"] == 1

    def test_large_decimals_keep_their_digits(self) -> None:
        value = Decimal("-99999999999999999999999999999999.123456")
        summary = summary_of("c", DecimalType(38, 6), pa.array([value], pa.decimal128(38, 6)))
        (record,) = built(column_stats_update({("p", "f"): [summary]}, [], [], "1.1.1"), STATS).values()
        held = record["minValue"]["BytesWrapper"]["value"]
        assert int.from_bytes(held, "big", signed=True) == -99999999999999999999999999999999123456


def test_what_hudi_counts_as_null_for_want_of_bounds_is_unknown() -> None:
    summary = ColumnSummary("c", StringType(), None, None, 3, 3)
    stats = statistics(
        [read_back(column_stats_update({("p", "f"): [summary]}, [], [], "0.15.0"), "0.15.0")], pa.string()
    )
    assert stats["null_count"].to_pylist() == [None]
