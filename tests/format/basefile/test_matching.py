"""Rows that fulfil a condition, of row groups that are too large to be read for a few rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.basefile import OpenBaseFile
from skep_format.schema.arrow import from_arrow
from skep_format.schema.types import Schema
from skep_table.query.filters.predicate import Predicate
from skep_table.query.filters.text import parse_predicate

ROWS, GROUP = 40_000, 15_000
ARROW = pa.schema(
    [
        ("number", pa.int64()),
        ("word", pa.string()),
        ("text", pa.string()),
        ("ratio", pa.float64()),
        ("nested", pa.struct([("flag", pa.bool_()), ("tag", pa.string())])),
    ]
)
SCHEMA = Schema(from_arrow(ARROW).fields)


def made() -> pa.Table:
    """Ascending numbers, words of which a dictionary is kept, texts that are all different, and nulls in all."""
    dice = np.random.default_rng(5)
    numbers = np.arange(ROWS)
    holes = dice.random(ROWS) < 0.1
    words = pa.array(dice.integers(0, 50, ROWS)).cast(pa.string())
    flags = pa.array(dice.random(ROWS) < 0.001, mask=dice.random(ROWS) < 0.1)
    nested = pa.StructArray.from_arrays([flags, words], ["flag", "tag"], mask=pa.array(holes))
    columns: list[Any] = [
        pa.array(numbers, mask=holes),
        pa.array(words.to_pylist(), pa.string(), mask=holes),
        pa.array(numbers * 7919 % ROWS).cast(pa.string()),
        pa.array(np.where(holes, np.nan, dice.random(ROWS))),
        nested,
    ]
    return pa.Table.from_arrays(columns, schema=ARROW)


TABLE = made()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matching")
    pq.write_table(TABLE, folder / "f.parquet", row_group_size=GROUP, store_schema=False)
    return folder / "f.parquet"


class Counting(io.FileIO):
    """A file that counts the bytes which are read."""

    bytes = 0

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self.bytes += count or 0
        return count

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(-1 if size is None else size)
        self.bytes += len(found or b"")
        return found or b""


def rows_of(path: Path, condition: Predicate | None, **how: Any) -> tuple[pa.Table, int]:
    """What a file gives, with this condition, and the bytes that are read for it."""
    file = Counting(str(path))
    batches = list(OpenBaseFile(pa.PythonFile(file), str(path)).rows(condition=condition, **how))
    return pa.Table.from_batches(batches), file.bytes


CONDITIONS = st.recursive(
    st.one_of(
        st.builds("number {} {}".format, st.sampled_from(["=", "<", ">=", "<>"]), st.integers(-5, ROWS + 5)),
        st.builds("text {} '{}'".format, st.sampled_from(["=", "<"]), st.integers(0, ROWS)),
        st.builds("word IN ('{}', '{}')".format, st.integers(0, 60), st.integers(0, 60)),
        st.builds("ratio {} {}".format, st.sampled_from(["<", "<>"]), st.floats(0, 1)),
        st.sampled_from(["nested.flag", "NOT nested.flag", "nested IS NULL", "number IS NULL", "word IS NOT NULL"]),
    ),
    lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=3,
)


def comparable(rows: pa.Table) -> pa.Table:
    """With a number for NaN, which does not equal itself."""
    at = rows.schema.get_field_index("ratio")
    ratio = rows.column(at) if at >= 0 else None
    return rows if ratio is None else rows.set_column(at, "ratio", pc.if_else(pc.is_nan(ratio), -1.0, ratio))


@given(where=CONDITIONS, columns=st.sets(st.sampled_from(ARROW.names)), batch_rows=st.sampled_from([1000, 65_536]))
def test_the_rows_that_fulfil_it_are_there_in_their_order(
    path: Path, where: str, columns: set[str], batch_rows: int
) -> None:
    condition = parse_predicate(where, ARROW)
    names = tuple(name for name in ARROW.names if name in columns or name in condition.columns)
    found, _ = rows_of(path, condition, schema=SCHEMA.select(names), batch_rows=batch_rows)
    wanted = TABLE.filter(condition.mask(TABLE)).select(names)
    assert comparable(found.filter(condition.mask(found))).equals(comparable(wanted))


@pytest.mark.parametrize(
    ("where", "rows"),
    [("text = 'none'", 0), ("text = '7919'", 1), ("word = '7' AND nested.flag", None), ("number IS NULL", None)],
)
def test_rows_that_fail_it_are_left_out(path: Path, where: str, rows: int | None) -> None:
    condition = parse_predicate(where, ARROW)
    found, _ = rows_of(path, condition, schema=SCHEMA)
    assert found.num_rows == TABLE.filter(condition.mask(TABLE)).num_rows
    assert rows in (None, found.num_rows)


def test_other_columns_are_not_read_where_no_row_fulfils_it(path: Path) -> None:
    condition = parse_predicate("ratio > 0.3 AND ratio < 0.30000001", ARROW)
    found, read = rows_of(path, condition, schema=SCHEMA)
    _, of_column = rows_of(path, None, schema=SCHEMA.select(("ratio",)))
    _, of_all = rows_of(path, None, schema=SCHEMA)
    assert not found.num_rows
    assert read < of_column + (of_all - of_column) / 5


def test_a_column_that_was_widened_is_compared_as_readers_see_it(tmp_path: Path) -> None:
    """1.87 as float is 1.8700000047683716 in the file, and 1.87 to the reader."""
    held = pa.table({"x": pa.array(np.full(ROWS, 1.87), pa.float32()), "n": pa.array(np.arange(ROWS))})
    pq.write_table(held, tmp_path / "f.parquet")
    wider = pa.schema([("x", pa.float64()), ("n", pa.int64())])
    condition = parse_predicate("x <= 1.87", wider)
    found, _ = rows_of(tmp_path / "f.parquet", condition, schema=Schema(from_arrow(wider).fields))
    assert found.filter(condition.mask(found)).num_rows == ROWS
