"""Dictionaries are for the columns that they make smaller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skep_format.basefile import open_base
from skep_format.basefile.encoding import ENCODED_TEXT, dictionary_columns
from skep_format.basefile.options import BaseFileOptions
from skep_format.basefile.row_groups import RowGroups
from skep_format.basefile.writer import BaseFileWriter
from skep_format.schema.arrow import from_arrow
from skep_format.storage import LocalStorage

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


def test_plain_columns_get_none() -> None:
    table = pa.table(COLUMNS)
    assert set(dictionary_columns(table, plain=["few", "unique"])) == set(dictionary_columns(table)) - {"few"}


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


TEXTS = pa.schema([("key", pa.string()), ("city", pa.string()), ("flag", pa.bool_())])


def encoded(*texts: str | None) -> pa.DictionaryArray:
    return pa.array(texts, pa.string()).dictionary_encode()


def batch(keys: range, city: pa.Array) -> pa.RecordBatch:
    columns = [pa.array([f"k{key}" for key in keys]), city, pa.array([True] * len(keys))]
    return pa.RecordBatch.from_arrays(columns, ["key", "city", "flag"])


def written(folder: Path, *batches: pa.RecordBatch, **options: Any) -> pq.ParquetFile:
    schema = from_arrow(TEXTS, "t", "ns")
    with BaseFileWriter(LocalStorage(str(folder)), "f.parquet", schema, BaseFileOptions(**options)) as writer:
        for each in batches:
            writer.write(each)
    return pq.ParquetFile(folder / "f.parquet")


def encoded_columns(folder: Path) -> list[str]:
    with pa.OSFile(str(folder / "f.parquet")) as source:
        return RowGroups(source, "f.parquet").encoded_columns(TEXTS.names)


def test_text_with_dictionaries_is_written_as_plain_text_is(tmp_path: Path) -> None:
    many = ["Oslo", None, "Rome"] * 1000
    first, second = encoded(*many), pa.array(["Rome", "Bonn"])
    batches = [batch(range(3000), first), batch(range(2), second), batch(range(1), encoded("Lima"))]
    file = written(tmp_path, *batches)
    assert file.read().column("city").to_pylist() == [*many, "Rome", "Bonn", "Lima"]
    column = file.metadata.row_group(0).column(1)
    assert column.has_dictionary_page
    assert (column.statistics.min, column.statistics.max) == ("Bonn", "Rome")
    assert encoded_columns(tmp_path) == ["city"]


def test_later_row_groups_have_the_columns_of_the_first(tmp_path: Path) -> None:
    plain, coded = pa.array(["Oslo"] * 3000), encoded(*["Rome"] * 3000)
    for at, pair in enumerate(((plain, coded), (coded, plain))):
        folder = tmp_path / str(at)
        folder.mkdir()
        file = written(folder, *(batch(range(3000), city) for city in pair), block_bytes=10_000)
        assert file.metadata.num_row_groups > 2
        assert file.read().column("city").to_pylist() == [*pair[0].to_pylist(), *pair[1].to_pylist()]


def test_texts_that_no_row_has_any_more_leave_the_dictionary(tmp_path: Path) -> None:
    unused = pa.DictionaryArray.from_arrays(pa.array([2, 2, None] * 1000, pa.int32()), ["Oslo" * 1000, "Rome", "Bonn"])
    file = written(tmp_path, batch(range(3000), unused))
    assert file.read().column("city").to_pylist() == ["Bonn", "Bonn", None] * 1000
    assert file.metadata.row_group(0).column(1).total_uncompressed_size < 1000


def test_a_dictionary_that_saves_nothing_is_not_written(tmp_path: Path) -> None:
    different = encoded(*(f"city {number}" for number in range(3000)))
    file = written(tmp_path, batch(range(3000), different))
    assert not file.metadata.row_group(0).column(1).has_dictionary_page
    assert encoded_columns(tmp_path) == []


def test_an_option_turns_all_dictionaries_off(tmp_path: Path) -> None:
    file = written(tmp_path, batch(range(3000), encoded(*["Rome"] * 3000)), dictionary=False)
    assert not file.metadata.row_group(0).column(1).has_dictionary_page
    assert set(file.read().column("city").to_pylist()) == {"Rome"}


def test_base_files_are_read_with_the_dictionaries_they_have(tmp_path: Path) -> None:
    written(tmp_path, batch(range(3000), encoded(*["Rome", None] * 1500)))
    schema = from_arrow(TEXTS, "t", "ns")
    with open_base(LocalStorage(str(tmp_path)), "f.parquet") as file:
        plain = pa.Table.from_batches(file.rows(schema=schema))
        kept = pa.Table.from_batches(file.rows(schema=schema, encoded=("key", "city")))
    assert kept.schema.types == [pa.string(), ENCODED_TEXT, pa.bool_()]
    assert kept.cast(plain.schema).equals(plain)
