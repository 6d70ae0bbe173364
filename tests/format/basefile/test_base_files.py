"""Base files (format guide 5): what is written is read back; footers have what Hudi's writers look for."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.basefile import BaseFileOptions, BaseFileWriter, read_base, read_footer
from skep_format.basefile.writer import key_range
from skep_format.bloom import BloomKind
from skep_format.errors import CorruptFileError
from skep_format.schema.arrow import from_arrow, to_arrow
from skep_format.schema.types import IntType
from skep_format.storage import LocalStorage
from skep_table.query.filters.text import parse_predicate

PATH = "a/f0-0_0-0-0_20261121000000000.parquet"
COLUMNS = pa.schema(
    [
        ("id", pa.string()),
        ("small", pa.int8()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)


def rows_of(count: int, start: int = 0) -> pa.Table:
    numbers = pa.array(range(start, start + count), pa.int64())
    keys = pc.binary_join_element_wise("key", pc.utf8_lpad(numbers.cast(pa.string()), 9, "0"), "-")
    text = pa.repeat("x", count)
    return pa.table(
        {
            "_hoodie_commit_time": text,
            "_hoodie_commit_seqno": text,
            "_hoodie_record_key": keys,
            "_hoodie_partition_path": text,
            "_hoodie_file_name": text,
            "id": keys,
            "small": pc.bit_wise_and(numbers, 127).cast(pa.int8()),
            "at": numbers.cast(pa.timestamp("us", "UTC")),
            "price": numbers.cast(pa.decimal128(19, 0)).cast(pa.decimal128(10, 2)),
            "tags": pa.array([["a", None], None, []] * (count // 3 + 1), pa.list_(pa.string()))[:count],
        }
    )


SCHEMA = from_arrow(COLUMNS, "t_record", "hoodie.t").with_meta()


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def write(storage, *tables, options=None):
    with BaseFileWriter(storage, PATH, SCHEMA, options) as writer:
        for table in tables:
            writer.write(table)
        return writer.close()


def test_rows_come_back_in_order_with_their_types(storage):
    written = write(storage, rows_of(1000), rows_of(500, 1000))
    back = pa.Table.from_batches(read_base(storage, PATH, schema=SCHEMA))
    assert back.equals(pa.concat_tables([rows_of(1000), rows_of(500, 1000)]).cast(back.schema))
    assert written.num_rows == 1500
    assert written.size_bytes == storage.size(PATH)
    assert (written.min_key, written.max_key) == ("key-000000000", "key-000001499")


def test_rows_in_several_chunks_have_one_key_range_and_filter(storage):
    rows = pa.concat_tables([rows_of(300, 700), rows_of(500, 100), rows_of(0)])
    written = write(storage, rows)
    assert (written.num_rows, written.min_key, written.max_key) == (800, "key-000000100", "key-000000999")
    assert pc.all(read_footer(storage, PATH).bloom.might_contain(rows["_hoodie_record_key"])).as_py()


def test_footer_has_filter_key_range_and_avro_schema(storage):
    write(storage, rows_of(100))
    footer = read_footer(storage, PATH)
    assert (footer.num_rows, footer.min_key, footer.max_key) == (100, "key-000000000", "key-000000099")
    assert footer.bloom.kind is BloomKind.DYNAMIC_V0
    assert pc.all(footer.bloom.might_contain(rows_of(100)["_hoodie_record_key"])).as_py()
    assert footer.entries["writer.model.name"] == "avro"
    assert footer.schema.names() == SCHEMA.names()
    assert footer.schema.name == "t_record"


def test_footer_states_the_calendar_as_spark_and_hive_look_for_it(storage):
    write(storage, rows_of(1))
    entries = read_footer(storage, PATH).entries
    assert entries["org.apache.spark.version"] >= "3.1.0"  # from there on also INT96 times; compared as text by Spark
    assert not {"org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"} & entries.keys()
    assert entries["writer.date.proleptic"] == "true"


def test_a_simple_filter_has_no_type_code(storage):
    write(storage, rows_of(10), options=BaseFileOptions(bloom_type=BloomKind.SIMPLE, bloom_entries=10))
    footer = read_footer(storage, PATH)
    assert "hoodie_bloom_filter_type_code" not in footer.entries
    assert footer.bloom.kind is BloomKind.SIMPLE


def test_physical_types_are_those_hudi_writes(storage):
    write(storage, rows_of(3))
    columns = {
        column.path: column
        for column in (pq.read_metadata(storage.local_path(PATH)).schema.column(i) for i in range(10))
    }
    assert columns["small"].physical_type == "INT32"
    assert columns["at"].physical_type == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(columns["at"].logical_type)
    assert (columns["price"].physical_type, columns["price"].length) == ("FIXED_LEN_BYTE_ARRAY", 5)
    assert columns["tags.list.element"].max_repetition_level == 1


def test_an_empty_file_has_columns_and_no_key_range(storage):
    write(storage)
    footer = read_footer(storage, PATH)
    assert (footer.num_rows, footer.min_key) == (0, None)
    assert [batch.schema.names for batch in read_base(storage, PATH, schema=SCHEMA)] == [list(SCHEMA.names())]


def test_row_groups_end_at_the_block_size_and_statistics_spare_them(storage):
    write(
        storage,
        *(rows_of(1000, start) for start in range(0, 10_000, 1000)),
        options=BaseFileOptions(block_bytes=100_000),
    )
    groups = pq.read_metadata(storage.local_path(PATH)).num_row_groups
    assert groups > 3
    late = parse_predicate("id > 'key-000009990'", to_arrow(SCHEMA))
    left = pa.Table.from_batches(read_base(storage, PATH, columns=["id"], condition=late))
    assert 9 <= left.num_rows < 10_000 / groups * 2
    other = parse_predicate("nobody > 1", pa.schema([("nobody", pa.int64())]))
    every = pa.Table.from_batches(read_base(storage, PATH, columns=["id"], condition=other))
    assert every.num_rows == 10_000


def test_an_error_while_writing_leaves_no_file(storage):
    def stop():
        with BaseFileWriter(storage, PATH, SCHEMA) as writer:
            writer.write(rows_of(10))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    assert not storage.exists(PATH)


@pytest.mark.parametrize("keep", [0, 3, 11, 100, -9, -1])
def test_a_cut_file_is_an_error_that_names_it(storage, keep):
    write(storage, rows_of(100))
    data = storage.read(PATH)
    storage.replace_atomic(PATH, data[:keep])
    with pytest.raises(CorruptFileError, match="f0-0"):
        read_footer(storage, PATH)
    with pytest.raises(CorruptFileError, match="f0-0"):
        list(read_base(storage, PATH))


@pytest.mark.parametrize("flavour", ["array", "bag", "list"])
def test_all_three_forms_of_lists_are_read(storage, tmp_path, flavour):
    """Two-level lists of Avro writers, Spark's `bag`, and the standard: format guide 5.3."""
    element = {"array": "array", "bag": "array", "list": "element"}[flavour]
    table = pa.table({"tags": pa.array([["a", "b"], [], None], pa.list_(pa.field(element, pa.string())))})
    storage.replace_atomic(PATH, b"")
    pq.write_table(table, tmp_path / PATH, use_compliant_nested_type=flavour == "list", store_schema=False)
    wanted = from_arrow(pa.schema([("tags", pa.list_(pa.string()))]))
    back = pa.Table.from_batches(read_base(storage, PATH, schema=wanted))
    assert back["tags"].to_pylist() == [["a", "b"], [], None]


def test_int96_times_are_read_as_microseconds(storage, tmp_path):
    table = pa.table({"at": pa.array([0, 1_700_000_000_000_001], pa.timestamp("us"))})
    storage.replace_atomic(PATH, b"")
    pq.write_table(table, tmp_path / PATH, use_deprecated_int96_timestamps=True)
    assert [batch.column(0).cast(pa.int64()).to_pylist() for batch in read_base(storage, PATH)] == [
        [0, 1_700_000_000_000_001]
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_the_key_range_is_in_javas_order(texts):
    order = sorted(texts, key=lambda text: text.encode("utf-16-be"))
    assert key_range(pa.array(texts)) == (order[0], order[-1])
    assert key_range(pa.chunked_array([texts[:1], texts[1:]], pa.string())) == (order[0], order[-1])


def test_bytes_and_shorts_come_back_as_ints_from_the_avro_schema(storage):
    write(storage, rows_of(3))
    assert read_footer(storage, PATH).schema["small"].type == IntType()
