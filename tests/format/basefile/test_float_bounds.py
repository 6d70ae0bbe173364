"""Bounds of floating-point numbers in footers (format guide 5.7): none where a chunk holds NaN; zeros of both signs."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.basefile import BaseFileOptions, BaseFileWriter, can_copy, open_base, parquet_bytes
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage

NAN = math.nan
PATH = "f0-0_0-0-0_20261121000000000.parquet"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("f", pa.float32()),
        ("n", pa.int64()),
        ("s", pa.struct([("text", pa.string()), ("d", pa.float64())])),
        ("l", pa.list_(pa.float64())),
        ("m", pa.map_(pa.string(), pa.struct([("d", pa.float64()), ("n", pa.int32())]))),
        ("d", pa.float64()),
    ]
)
FLOATS = ["f", "s.d", "l.list.element", "m.key_value.value.d", "d"]


def rows(*numbers):
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{at}",
                "f": number,
                "n": at,
                "s": None if at == 1 else {"text": "x", "d": number},
                "l": [number, number],
                "m": [("a", {"d": number, "n": 1})],
                "d": number,
            }
            for at, number in enumerate(numbers)
        ],
        SCHEMA,
    )


def written(tmp_path, *groups, dictionary=True):
    """A file with one row group for each table."""
    with BaseFileWriter(
        LocalStorage(str(tmp_path)), PATH, from_arrow(SCHEMA), BaseFileOptions(dictionary=dictionary)
    ) as writer:
        for group in groups:
            writer.write(group)
            writer.flush()
        size = writer.close().size_bytes
    assert size == (tmp_path / PATH).stat().st_size
    return pq.ParquetFile(tmp_path / PATH)


def bounds(file, group):
    chunks = [file.metadata.row_group(group).column(at) for at in range(file.metadata.num_columns)]
    return {
        chunk.path_in_schema: (chunk.statistics.min, chunk.statistics.max) if chunk.statistics.has_min_max else None
        for chunk in chunks
    }


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("nan_in", [(0,), (1,), (0, 2), ()])
def test_chunks_with_nan_have_no_bounds_and_others_keep_theirs(tmp_path, nan_in, dictionary):
    groups = [rows(NAN if at in nan_in else 3.0, None, -1.0) for at in range(3)]
    file = written(tmp_path, *groups, dictionary=dictionary)
    for group in range(3):
        found = bounds(file, group)
        assert {found[path] for path in FLOATS} == {None if group in nan_in else (-1.0, 3.0)}
        assert (found["id"], found["n"], found["m.key_value.value.n"]) == (("k0", "k2"), (0, 2), (1, 1))
        chunks = map(file.metadata.row_group(group).column, range(10))
        assert [chunk.statistics.null_count for chunk in chunks] == [0, 1, 0, 1, 1, 2, 0, 1, 0, 1]
    back = file.read().to_pydict()
    expected = pa.concat_tables(groups).to_pydict()
    assert str(back) == str(expected)
    assert b"parquet.avro.schema" in file.metadata.metadata


def test_only_the_columns_with_nan_lose_their_bounds(tmp_path):
    group = rows(1.0, 1.5, 2.0).set_column(6, "d", pa.array([NAN, 1.5, 2.0]))
    found = bounds(written(tmp_path, group), 0)
    assert {path: found[path] for path in FLOATS} == {**dict.fromkeys(FLOATS, (1.0, 2.0)), "d": None}


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_bounds_of_zero_have_both_signs(tmp_path, value):
    found = bounds(written(tmp_path, rows(value)), 0)
    assert {str(found[path]) for path in FLOATS} == {"(-0.0, 0.0)"}


def test_blocks_of_logs_have_no_bounds_with_nan(tmp_path):
    data = parquet_bytes(from_arrow(SCHEMA), rows(NAN, None, 1.0), BaseFileOptions())
    file = pq.ParquetFile(pa.BufferReader(data))
    assert {path: bounds(file, 0)[path] for path in FLOATS} == dict.fromkeys(FLOATS)
    assert bounds(file, 0)["n"] == (0, 2)
    assert str(file.read().to_pydict()) == str(rows(NAN, None, 1.0).to_pydict())
    assert b"parquet.avro.schema" in file.metadata.metadata


def test_a_file_whose_bounds_may_leave_nan_out_is_not_copied(tmp_path):
    """As Arrow and Rust write them: a file of skep is read as one whose bounds are those of all values."""
    storage, schema = LocalStorage(str(tmp_path)), from_arrow(SCHEMA)
    pq.write_table(rows(3.0, NAN, -1.0), tmp_path / "other.parquet", compression="snappy", store_schema=False)
    written(tmp_path, rows(3.0, NAN, -1.0))
    with open_base(storage, "other.parquet") as other, open_base(storage, PATH) as ours:
        assert not can_copy(other, schema, BaseFileOptions())
        assert can_copy(ours, schema, BaseFileOptions())
