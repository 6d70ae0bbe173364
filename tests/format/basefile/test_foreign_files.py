"""Base files that others wrote: Hudi's own of the golden tables, ORC, and damaged ones."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from skep_format.basefile import read_base, read_footer
from skep_format.errors import CorruptFileError, FormatError, SkepError
from skep_format.schema.arrow import to_arrow
from skep_format.schema.types import RECORD_KEY, DoubleType, Field, LongType, Schema, StringType
from skep_format.storage import LocalStorage
from skep_table.query.filters.text import parse_predicate

CASES = ["cow_types_edge", "cow_bulk_insert_global_sort", "mor_upsert", "cow_bootstrap_metadata_only"]


def base_files(golden: Path) -> list[Path]:
    return [
        file
        for case in CASES
        for version in ("0.15.0", "1.0.2", "1.1.1")
        for file in sorted((golden / version / case / "table").rglob("*.parquet"))
        if ".hoodie" not in file.parts
    ]


def test_hudis_footers_have_rows_keys_and_schema(golden):
    files = base_files(golden)
    assert len(files) > 30
    for file in files:
        footer = read_footer(LocalStorage(str(file.parent)), file.name)
        keys = pq.read_table(file, columns=[RECORD_KEY])[RECORD_KEY]
        assert footer.num_rows == len(keys)
        if len(keys):
            assert footer.min_key == pc.min(keys).as_py()
            assert footer.max_key == pc.max(keys).as_py()
        assert footer.bloom is not None
        assert pc.all(footer.bloom.might_contain(keys)).as_py() in (True, None)
        assert set(footer.schema.names()) >= set(footer.arrow_schema.names[:5])


def test_hudis_rows_read_the_same_with_their_schema_and_without(golden):
    """Lists of two levels, of Spark's `bag` and of three levels among them."""
    for file in base_files(golden):
        storage = LocalStorage(str(file.parent))
        footer = read_footer(storage, file.name)
        plain = pq.read_table(file).to_pylist()
        back = pa.Table.from_batches(read_base(storage, file.name, schema=footer.schema))
        back.validate(full=True)
        names = back.schema.names
        assert repr(back.to_pylist()) == repr([{name: row[name] for name in names} for row in plain])


def test_damaged_footers_are_errors_that_name_the_file(golden, tmp_path):
    whole = base_files(golden)[0].read_bytes()
    storage = LocalStorage(str(tmp_path))
    length = int.from_bytes(whole[-8:-4], "little")
    for keep in [*range(0, 64, 7), *range(len(whole) - length - 8, len(whole), max(1, length // 60))]:
        (tmp_path / "x.parquet").write_bytes(whole[:keep])
        with pytest.raises(CorruptFileError, match=r"x\.parquet"):
            read_footer(storage, "x.parquet")
    for place in range(len(whole) - length - 8, len(whole), max(1, length // 400)):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        (tmp_path / "x.parquet").write_bytes(broken)
        try:
            footer = read_footer(storage, "x.parquet")
            _ = footer.schema, footer.bloom
            list(read_base(storage, "x.parquet"))
        except SkepError as error:
            assert "x.parquet" in str(error)  # noqa: PT017


def test_orc_files_are_read_like_parquet(tmp_path):
    storage = LocalStorage(str(tmp_path))
    table = pa.table({RECORD_KEY: ["a", "b", "c"], "n": pa.array([1, None, 3], pa.int32()), "t": ["x", "y", None]})
    orc.write_table(table, tmp_path / "f_0-0-0_1.orc")
    footer = read_footer(storage, "f_0-0-0_1.orc")
    assert (footer.num_rows, footer.bloom, footer.min_key) == (3, None, None)
    assert footer.schema.names() == (RECORD_KEY, "n", "t")
    wanted = Schema((Field("t", StringType()), Field("n", LongType()), Field("new", StringType())))
    (batch,) = read_base(storage, "f_0-0-0_1.orc", schema=wanted)
    assert batch.to_pydict() == {"t": ["x", "y", None], "n": [1, None, 3], "new": [None] * 3}
    assert [b.schema.names for b in read_base(storage, "f_0-0-0_1.orc", columns=["t", RECORD_KEY])] == [
        ["t", RECORD_KEY]
    ]


@pytest.mark.parametrize("keep", [0, 3, 20, -1])
def test_a_cut_orc_file_is_an_error_that_names_it(tmp_path, keep):
    orc.write_table(pa.table({"n": list(range(1000))}), tmp_path / "f.orc")
    data = (tmp_path / "f.orc").read_bytes()
    (tmp_path / "f.orc").write_bytes(data[:keep])
    with pytest.raises(CorruptFileError, match=r"f\.orc"):
        read_footer(LocalStorage(str(tmp_path)), "f.orc")
    with pytest.raises(CorruptFileError, match=r"f\.orc"):
        list(read_base(LocalStorage(str(tmp_path)), "f.orc"))


def test_a_schema_or_filter_that_can_not_be_decoded_names_the_file(tmp_path):
    metadata = {"parquet.avro.schema": "{", "org.apache.hudi.bloomfilter": "!!"}
    table = pa.table({"n": [1]}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "f.parquet")
    footer = read_footer(LocalStorage(str(tmp_path)), "f.parquet")
    with pytest.raises(SkepError, match=r"f\.parquet"):
        _ = footer.schema
    with pytest.raises(FormatError, match=r"f\.parquet"):
        _ = footer.bloom


OF_FLOATS = ["x > 4", "x < 2", "x = 5.5", "x >= 0", "x <> 1.25", "x IN (5.5, 7)", "x NOT IN (1.25)", "NOT x > 4"]
OF_FLOATS += ["x IS NOT NULL", "x BETWEEN 5 AND 6"]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("low", [1.25, math.nan])
@pytest.mark.parametrize("high", [5.5, math.nan])
def test_bounds_beside_nan_spare_no_row(tmp_path, kind, low, high):
    """Arrow and others leave NaN out of the bounds, Java's writer has it as the greatest number, and as the lowest of
    a chunk that has no other."""
    rows = pa.table({"x": pa.array([1.25, 5.5, math.nan], kind)})
    pq.write_table(rows, tmp_path / "f.parquet", use_dictionary=False)
    data = bytearray((tmp_path / "f.parquet").read_bytes())
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[start:])
    for old, new in ((1.25, low), (5.5, high)):
        footer = footer.replace(*(np.array(value, kind.to_pandas_dtype()).tobytes() for value in (old, new)))
    (tmp_path / "f.parquet").write_bytes(data[:start] + footer)
    stats = pq.read_metadata(tmp_path / "f.parquet").row_group(0).column(0).statistics
    assert str([stats.min, stats.max]) == str([low, high])
    for text in OF_FLOATS:
        condition = parse_predicate(text, rows.schema)
        found = pa.Table.from_batches(
            read_base(LocalStorage(str(tmp_path)), "f.parquet", condition=condition), rows.schema
        )
        assert str(found.filter(condition.mask(found)).to_pydict()) == str(
            rows.filter(condition.mask(rows)).to_pydict()
        )


def test_statistics_of_a_column_that_was_widened_spare_nothing(tmp_path):
    """1.87 as float is 1.8700000047683716 to statistics, and 1.87 to the reader."""
    pq.write_table(pa.table({"x": pa.array([1.87], pa.float32())}), tmp_path / "f.parquet")
    wanted = Schema((Field("x", DoubleType()),))
    condition = parse_predicate("x <= 1.87", to_arrow(wanted))
    batches = read_base(LocalStorage(str(tmp_path)), "f.parquet", schema=wanted, condition=condition)
    assert [value for batch in batches for value in batch.column("x").to_pylist()] == [1.87]
