"""Dictionaries are for the columns that they make smaller."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_table.basefile.encoding import dictionary_columns
from skep_table.basefile.options import BaseFileOptions
from skep_table.basefile.writer import BaseFileWriter
from skep_table.schema.arrow import from_arrow
from skep_table.storage import LocalStorage

ROWS = 60_000
RANDOM = np.random.default_rng(7)
COLUMNS = {
    "unique": pa.array([f"key-{number:08d}" for number in range(ROWS)]),
    "constant": pa.repeat("20260101000000000", ROWS),
    "few": pa.array(RANDOM.integers(0, 50, ROWS)),
    "sorted": pa.array(np.arange(ROWS) // 1000),
    "many": pa.array(RANDOM.integers(0, 1 << 40, ROWS)),
    "large": pa.array([f"{number % 5000:0300d}" for number in range(ROWS)]),
    "flag": pa.array(RANDOM.integers(0, 2, ROWS).astype(bool)),
    "nothing": pa.nulls(ROWS, pa.string()),
    "mostly_null": pa.array([f"v{number}" if number % 100 == 0 else None for number in range(ROWS)]),
    "nested": pa.array([{"a": 1, "b": [{"x": "y"}]}] * ROWS),
    "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
}


def test_columns_are_chosen_by_what_they_hold() -> None:
    chosen = set(dictionary_columns(pa.table(COLUMNS)))
    assert {"constant", "few", "sorted"} <= chosen
    assert not chosen & {"unique", "many", "large", "flag"}


def test_paths_of_nested_columns_are_parquets_own(tmp_path: Path) -> None:
    table = pa.table({name: COLUMNS[name].slice(0, 10) for name in ("nested", "map")})
    chosen = dictionary_columns(table)
    pq.write_table(table, tmp_path / "file.parquet", use_dictionary=chosen)
    group = pq.ParquetFile(tmp_path / "file.parquet").metadata.row_group(0)
    assert sorted(chosen) == sorted(group.column(at).path_in_schema for at in range(group.num_columns))
    assert all(group.column(at).has_dictionary_page for at in range(group.num_columns))


@pytest.mark.parametrize("rows", [0, 1, 2047, 2048, 2049, ROWS])
def test_any_number_of_rows(rows: int) -> None:
    dictionary_columns(pa.table({name: column.slice(0, rows) for name, column in COLUMNS.items()}))


def test_a_file_is_never_larger_than_with_dictionaries_everywhere(tmp_path: Path) -> None:
    table = pa.table({name: column for name, column in COLUMNS.items() if name != "nested"})
    schema = from_arrow(table.schema, "t", "ns")
    with BaseFileWriter(LocalStorage(str(tmp_path)), "ours.parquet", schema, BaseFileOptions()) as writer:
        writer.write(table)
        ours = writer.close().size_bytes
    pq.write_table(table, tmp_path / "all.parquet", compression="snappy", store_schema=False)
    assert ours <= (tmp_path / "all.parquet").stat().st_size * 1.02
    assert pq.read_table(tmp_path / "ours.parquet").cast(table.schema).equals(table)
