"""bulk_insert: in which order its rows lie in their files, by sort mode."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep_format.errors import OptionError, UnsupportedError
from skep_format.options import Options
from skep_format.storage import LocalStorage
from skep_table import plug_ins
from skep_table.commit.create import TableSpec, create_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.output.files import RowNumbers
from skep_table.write.planning import arrange
from skep_table.write.planning.arrange import Arrangement

MODE = "hoodie.bulkinsert.sort.mode"
CLASS = "hoodie.bulkinsert.user.defined.partitioner.class"
COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
SMALL: dict[str, Any] = {"hoodie.parquet.max.file.size": 20_000, "hoodie.parquet.block.size": 8_192}


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    spec = TableSpec(name="t", schema=rows(1).schema, record_key=("id",), partition_by=("part",))
    return create_table(LocalStorage(str(tmp_path / "t")), spec)


def rows(count: int) -> pa.Table:
    random = np.random.default_rng(7).permutation(count)
    return pa.table(
        {
            "id": [f"k{at:06d}" for at in random],
            "part": ["p" if at % 3 else "q" for at in random],
            "v": (random * 7919) % 1000,
            "tags": [["a"]] * count,
        }
    )


def files(table: HudiTable, partition: str) -> list[pa.Table]:
    """The partition's files, in the order in which they were opened."""
    slices = table.reload().view().slices(partition)
    paths = [slice_.base_file.path for slice_ in slices if slice_.base_file]
    by_number = sorted(paths, key=lambda path: int(path.partition("_")[0].rpartition("-")[2]))
    return [pq.ParquetFile(Path(table.storage.root) / path).read() for path in by_number]


def write(table: HudiTable, count: int = 20_000, **options: Any) -> None:
    result = LocalWriter(table.with_context(options=Options(options))).bulk_insert(rows(count))
    assert result.inserted == count


@pytest.mark.parametrize("mode", ["GLOBAL_SORT", "PARTITION_SORT"])
def test_sorted_files_hold_ranges_of_keys(table: HudiTable, mode: str) -> None:
    write(table, **{MODE: mode, **SMALL})
    found = files(table, "p")
    assert len(found) > 2
    keys = [key for file in found for key in file["id"].to_pylist()]
    assert keys == sorted(keys)


@pytest.mark.parametrize("options", [{}, {MODE: "NONE"}, {MODE: "NONE_SORT"}])
def test_rows_are_written_as_they_come_by_default(table: HudiTable, options: dict[str, str]) -> None:
    write(table, 100, **options)
    given = rows(100).to_pylist()
    assert files(table, "q")[0]["id"].to_pylist() == [row["id"] for row in given if row["part"] == "q"]


@pytest.mark.parametrize("mode", ["PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT"])
def test_a_partition_is_written_by_one_task(table: HudiTable, mode: str) -> None:
    write(table, 5_000, **{MODE: mode})
    assert [len(files(table, partition)) for partition in ("p", "q")] == [1, 1]


@pytest.mark.parametrize("named", [{}, {CLASS: "org.apache.hudi.execution.bulkinsert.RowCustomColumnsSortPartitioner"}])
def test_rows_are_sorted_by_columns(table: HudiTable, named: dict[str, str]) -> None:
    write(table, **{COLUMNS: "v,id", **named, **SMALL})
    found = [(row["v"], row["id"]) for file in files(table, "p") for row in file.select(["v", "id"]).to_pylist()]
    assert found == sorted(found)


def test_rows_are_sorted_also_when_they_are_combined(table: HudiTable) -> None:
    write(table, 500, **{MODE: "GLOBAL_SORT", "hoodie.combine.before.insert": True})
    keys = files(table, "p")[0]["id"].to_pylist()
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({COLUMNS: "nope"}, "sort column nope is not there"),
        ({COLUMNS: "tags"}, "sort column tags is of type list"),
        ({CLASS: "RDDCustomColumnsSortPartitioner"}, "needs .*sort.columns"),
        ({MODE: "RANDOM"}, "sort.mode"),
    ],
)
def test_what_can_not_be_sorted_by_is_refused(table: HudiTable, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        write(table, 5, **options)
    assert not table.reload().timeline.instants


class Backwards:
    """A plug-in."""

    @staticmethod
    def parts(rows: pa.Table, count: int) -> np.ndarray:
        return np.arange(rows.num_rows) % count

    @staticmethod
    def sort(rows: pa.Table) -> pa.Table:
        return rows.sort_by([("id", "descending")])


def test_a_partitioner_of_ones_own(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("backwards", "x:y", arrange.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: Backwards)
    monkeypatch.setattr(plug_ins, "entry_points", lambda group, name: [entry] if name == "backwards" else [])
    write(table, 100, **{CLASS: "backwards"})
    keys = files(table, "p")[0]["id"].to_pylist()
    assert keys == sorted(keys, reverse=True)
    with pytest.raises(UnsupportedError, match="no partitioner nope"):
        write(table, 1, **{CLASS: "nope"})


@given(st.lists(st.integers(0, 20), min_size=1, max_size=200), st.integers(1, 8))
def test_ranges_do_not_overlap(values: list[int], count: int) -> None:
    """Whatever the samples: a task's greatest value is not above the next task's smallest, and no task is too many."""
    rows = pa.table({"_hoodie_partition_path": ["p"] * len(values), "v": values})
    arrangement = Arrangement(("_hoodie_partition_path", "v"), by_range=True)
    bounds = arrangement.bounds(rows.slice(0, max(1, len(values) // 3)), count)
    codes = arrangement.parts(rows, count, bounds)
    assert set(codes.tolist()) <= set(range(count))
    order = np.argsort(codes, kind="stable")
    found = [(int(codes[at]), values[at]) for at in order]
    for code in range(count - 1):
        mine, rest = [v for c, v in found if c <= code], [v for c, v in found if c > code]
        assert not mine or not rest or max(mine) <= min(rest)


@pytest.mark.parametrize("first", [0, 8, 99_998, 2**32 - 2, 10**10 - 1])
def test_numbers_of_rows_are_written_out_at_each_length(first: int) -> None:
    numbers = RowNumbers(first)
    expected = [f"20261128_7_{first + at}" for at in range(5)]
    assert numbers.take(3, "20261128_7_").to_pylist() == expected[:3]
    assert numbers.take(0, "20261128_7_").to_pylist() == []
    assert numbers.take(2, "20261128_7_").to_pylist() == expected[3:]


def test_rows_of_several_batches_lie_in_their_order_with_numbers(table: HudiTable) -> None:
    given = rows(30_000)
    batches = pa.Table.from_batches(given.to_batches(max_chunksize=10_000))
    LocalWriter(table.with_context(options=Options({MODE: "NONE"}))).bulk_insert(batches)
    (found,) = files(table, "p")
    assert found["id"].to_pylist() == [
        key for key, part in zip(given["id"].to_pylist(), given["part"].to_pylist(), strict=True) if part == "p"
    ]
    assert [int(text.as_py().rpartition("_")[2]) for text in found["_hoodie_commit_seqno"]] == list(range(20_000))
