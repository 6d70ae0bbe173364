"""Reads for joins: of rows with none of the values that a join looks for, most are left out."""

from __future__ import annotations

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
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.query.filters import among
from skep_table.query.filters.among import OneOf, both
from skep_table.query.filters.text import parse_predicate
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

ROWS = 40_000
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("day", pa.date32()), ("part", pa.string())])


def rows(numbers: range | list[int]) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{at:06d}" for at in numbers],
            "n": list(numbers),
            "day": pa.array([at // 100 for at in numbers], pa.int32()).cast(pa.date32()),
            "part": [f"p{at % 2}" for at in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    """Two files with several large row groups each."""
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="n")
    made = create_table(LocalStorage(str(tmp_path_factory.mktemp("among") / "t")), spec)
    options = Options({"hoodie.parquet.block.size": "900000"})
    LocalWriter(made.with_context(options=options)).bulk_insert(rows(range(ROWS)))
    return made.reload()


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("n").to_pylist())


class TestValues:
    @pytest.mark.parametrize("most_bytes", [0, 1 << 20])
    def test_rows_with_others_are_left_out(self, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(among, "_COMPARED_BYTES", most_bytes)
        batches = [pa.record_batch({"id": [f"k{at}", None, f"k{at + 1}"], "n": [at, at, 1]}) for at in range(0, 90, 2)]
        only, schema = OneOf("id", pa.array(["k3", "k40", "k700", None])), batches[0].schema
        found = pa.Table.from_batches(only.filtered(batches, schema), schema)
        assert found.to_pydict() == {"id": ["k3", "k40"], "n": [1, 40]}

    def test_they_are_hashed_once_for_many_batches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Compute:
            calls = 0

            def is_in(self, column: pa.ChunkedArray, **given: Any) -> pa.ChunkedArray:
                self.calls += 1
                return pc.is_in(column, **given)

        compute = Compute()
        monkeypatch.setattr(among, "pc", compute)
        batches = [pa.record_batch({"id": [f"k{at}"]}) for at in range(50)]
        found = OneOf("id", pa.array(["k7"])).filtered(batches, batches[0].schema)
        assert sum(each.num_rows for each in found) == 1
        assert compute.calls == 1

    @pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.int64(), pa.date32()], ids=str)
    def test_many_rows_are_joined_to_the_same_answer(self, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
        random = np.random.default_rng(3)
        stored, wanted = (
            pa.array(random.integers(0, 3000, count), pa.int32(), mask=random.random(count) < 0.1).cast(kind)
            for count in (100_000, 700)
        )
        only, few = (
            OneOf("c", wanted),
            pa.table({"c": pa.chunked_array([stored.slice(0, 40_000), stored.slice(40_000)])}),
        )
        joined = only.mask(few)
        monkeypatch.setattr(among, "_JOINED_ROWS", 1 << 30)
        looked_up = only.mask(few).combine_chunks()
        assert joined.equals(looked_up)
        assert 10_000 < pc.sum(joined).as_py() < 30_000

    def test_without_any_there_is_no_range(self) -> None:
        nothing = OneOf("id", pa.array([None, None], pa.string()))
        assert nothing.expression is None
        assert not pc.any(OneOf("id", pa.array([], pa.string())).mask(rows([1, 2]))).as_py()


WANTED = st.lists(st.integers(-3, ROWS + 3), max_size=60)


@given(wanted=WANTED, column=st.sampled_from(["id", "n", "day", "part"]), where=st.sampled_from([None, "n < 900"]))
def test_rows_with_one_of_the_values_are_there(
    table: HudiTable, wanted: list[int], column: str, where: str | None
) -> None:
    values = rows([each for each in wanted if 0 <= each < ROWS]).column(column).combine_chunks()
    only = OneOf(column, values)
    found = read(table, ReadRequest(columns=SCHEMA.names, where=where, only=only)).to_arrow()
    every = read(table, ReadRequest(columns=SCHEMA.names, where=where)).to_arrow()
    assert ids(found.filter(only.mask(found))) == ids(every.filter(only.mask(every)))
    assert set(ids(found)) <= set(ids(every))


def test_other_rows_and_row_groups_are_not_decoded(table: HudiTable) -> None:
    only = OneOf("id", pa.array([f"k{at:06d}" for at in (3, 70, 900)]))
    found = read(table, ReadRequest(columns=("n", "id", "_hoodie_file_name"), only=only)).to_arrow()
    assert ids(found) == [3, 70, 900]


def test_of_small_row_groups_nothing_is_left_out_file_by_file(tmp_path: Path) -> None:
    """The values are hashed for each of them."""
    pq.write_table(rows(range(1000)), tmp_path / "f.parquet")
    with pa.OSFile(str(tmp_path / "f.parquet")) as file:
        base = OpenBaseFile(file, "f.parquet")
        only = OneOf("n", pa.array(np.arange(5000, 9000)[:10]))
        assert sum(each.num_rows for each in base.rows(columns=["n", "id"], condition=only)) == 0
        many = OneOf("n", pa.array(np.concatenate([[0, 999], np.arange(5000, 90_000)])))
        assert sum(each.num_rows for each in base.rows(columns=["n", "id"], condition=many)) == 1000


def test_slices_with_logs_are_merged_first(tmp_path: Path) -> None:
    spec = TableSpec(
        name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="n", type=TableType.MERGE_ON_READ
    )
    made = create_table(LocalStorage(str(tmp_path / "t")), spec)
    LocalWriter(made).upsert(rows(range(100)))
    changed = rows([4, 6]).set_column(1, "n", pa.array([1000, 1001]))
    LocalWriter(made.reload()).upsert(changed)
    only = OneOf("n", pa.array([1000, 7]))
    found = read(made.reload(), ReadRequest(columns=SCHEMA.names, only=only)).to_arrow()
    assert ids(found.filter(only.mask(found))) == [7, 1000]


def test_two_conditions() -> None:
    where, only = parse_predicate("n < 50", SCHEMA), OneOf("n", pa.array([7, 70]))
    assert both(None, None) is None
    assert both(where, None) is where
    assert both(None, only) is only
    found = both(where, only)
    assert found is not None
    assert found.columns == ("n",)
    batch = rows(range(100)).combine_chunks().to_batches()[0]
    assert batch.filter(found.mask(batch)).column("n").to_pylist() == [7]
    assert found.expression is not None
