"""Facts of files: right for every reader, by the columns that each file was written with, or none at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden_metadata import RELEASES, opened
from metadata_listings import frame, new_table, reopened, writer

from skep_format.basefile import keys as footer_keys
from skep_format.names import BaseFileName, LogFileName
from skep_format.schema.change import AddColumn, ChangeType, ColumnChange, DropColumn, RenameColumn
from skep_format.schema.types import DecimalType, IntType, LongType, StringType
from skep_format.storage import FileStatus, LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table.entries import latest
from skep_table.metadata_table.records.bloom_filters import bloom_filters_update
from skep_table.metadata_table.records.column_stats import column_stats_update
from skep_table.metadata_table.records.summaries import Columns
from skep_table.metadata_write import updates
from skep_table.metadata_write.definitions import stats_columns
from skep_table.metadata_write.facts.files import FileFacts, facts_of_files
from skep_table.metadata_write.kinds import partition_stats
from skep_table.query import ReadRequest, read
from skep_table.services.metadata_check import check_metadata_table
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
versions = pytest.mark.parametrize("table_version", [6, 8, 9], indirect=True)
Bounds = Mapping[str, tuple[Any, Any, int, int]]


def data_files(table: HudiTable) -> list[tuple[str, FileStatus]]:
    view = table.view(metadata=False)
    named = [(path, file) for path in view.partitions() for file in view.listing.files(path)]
    return [(path, file) for path, file in named if BaseFileName.parse(file.name) or LogFileName.parse(file.name)]


def facts(table: HudiTable, columns: Sequence[str] = (), *, blooms: bool = False) -> list[FileFacts]:
    every = stats_columns(table)
    wanted = {name: every[name] for name in columns} if columns else every
    return list(facts_of_files(table, data_files(table), wanted, blooms=blooms))


def bounds(found: FileFacts) -> Bounds:
    return {each.column: (each.low, each.high, each.values, each.nulls) for each in found.summaries}


def altered(table: HudiTable, *changes: ColumnChange) -> HudiTable:
    LocalWriter(table).alter(changes)
    return HudiTable.open(table.storage)


def table_of(folder: Path, rows: pa.Table, kind: TableType = COW, **more: Any) -> HudiTable:
    spec: dict[str, Any] = {"record_key": ("id",), **more}
    table = create_table(LocalStorage(str(folder)), TableSpec(name="t", schema=rows.schema, type=kind, **spec))
    LocalWriter(table).insert(rows)
    return HudiTable.open(table.storage)


class TestTablesOfHudi:
    @pytest.mark.parametrize("release", RELEASES)
    def test_facts_are_those_of_the_records(self, golden: Path, release: str) -> None:
        table, metadata = opened(golden, release, "cow_column_stats")
        found = facts(table, blooms=True)
        files = [(each.partition_path, each.name) for each in found]
        summaries = dict(zip(files, (each.summaries for each in found), strict=True))
        filters = {file: bloom for file, bloom in zip(files, (each.bloom for each in found), strict=True) if bloom}
        assert len(filters) == len(files)
        instant = next(iter(table.timeline)).requested_time
        for update, member in (
            (column_stats_update(summaries, [], [], release), "ColumnStatsMetadata"),
            (bloom_filters_update(filters, [], instant, release), "BloomFilterMetadata"),
        ):
            keys, records = latest(metadata._lookup(update.partition, None, member), member)
            theirs = dict(zip(keys.to_pylist(), records.to_pylist(), strict=True))
            alive = {key: {**record, "timestamp": ""} for key, record in theirs.items() if not record["isDeleted"]}
            ours = {row["key"]: {**row["record"][member], "timestamp": ""} for row in update.puts.to_pylist()}
            assert {key: ours[key] for key in alive} == alive
            assert alive


@versions
class TestFiles:
    def test_in_the_order_given(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, COW)
        for number in range(3):
            writer(table).insert(frame(*((f"{number}{part}", part, number) for part in "pqr")))
        table = reopened(table)
        files = data_files(table)[::-1]
        found = list(facts_of_files(table, iter(files), stats_columns(table), blooms=True))
        assert [(each.partition_path, each.name) for each in found] == [(path, file.name) for path, file in files]

    def test_files_of_one_name_in_two_partitions(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, COW)
        writer(table).insert(frame(("a", "p", 1), ("b", "q", 2)))
        (of_p, of_q) = (tmp_path / file.path for _, file in data_files(reopened(table)))
        of_q.rename(of_q.parent / of_p.name)
        found = facts(reopened(table), ["ts", "part"])
        assert found[0].name == found[1].name
        assert [bounds(each)["ts"][:2] for each in found] == [(1, 1), (2, 2)]

    def test_log_files(self, tmp_path: Path) -> None:
        table = new_table(tmp_path, MOR)
        writer(table).insert(frame(("a", "p", 1), ("b", "p", 2)))
        writer(table).upsert(frame(("a", "p", 7), ("b", "p", 9)))
        writer(table).delete(frame(("b", "p", 10)))
        found = facts(reopened(table), ["ts", "id"], blooms=True)
        by_kind = {each.name.startswith("."): each for each in found if each.summaries}
        assert bounds(by_kind[False]) == {"ts": (1, 2, 2, 0), "id": ("a", "b", 2, 0)}
        logs = sorted((bounds(each) for each in found if each.name.startswith(".")), key=lambda each: each["ts"][2])
        assert logs == [
            {"ts": (None, None, 0, 0), "id": (None, None, 0, 0)},
            {"ts": (7, 9, 2, 0), "id": ("a", "b", 2, 0)},
        ]
        assert [each.bloom is None for each in found] == [each.name.startswith(".") for each in found]

    def test_logs_whose_rows_take_over_values_of_others_have_none(self, tmp_path: Path) -> None:
        payload = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
        table = new_table(tmp_path, MOR, payload_class=payload)
        writer(table).insert(frame(("a", "p", 1)))
        writer(table).upsert(frame(("a", "p", 7)))
        found = facts(reopened(table))
        assert {each.name.startswith("."): bool(each.summaries) for each in found} == {False: True, True: False}

    def test_members_of_structs(self, tmp_path: Path) -> None:
        rows = pa.table({"id": ["a", "b", "c"], "s": [{"x": 5, "t": "u"}, None, {"x": 3, "t": None}]})
        table = table_of(tmp_path, rows)
        columns = {"s.x": LongType(), "s.t": StringType()}
        (found,) = facts_of_files(table, data_files(table), columns, blooms=False)
        assert bounds(found) == {"s.x": (3, 5, 3, 1), "s.t": ("u", "u", 3, 2)}


@versions
class TestColumnsOfAnOlderFile:
    """Each file is read by the columns that it was written with."""

    ROWS = pa.table({"id": ["a", "b"], "n": pa.array([1, 2], pa.int32()), "m": pa.array([30, 40], pa.int64())})

    @pytest.fixture(params=[COW, MOR], ids=["base", "log"])
    def table(self, request: pytest.FixtureRequest, tmp_path: Path) -> HudiTable:
        table = table_of(tmp_path, self.ROWS, request.param)
        if request.param is MOR:
            LocalWriter(table).upsert(self.ROWS)
            (base,) = (file for _, file in data_files(table.reload()) if BaseFileName.parse(file.name))
            (tmp_path / base.path).unlink()
        return HudiTable.open(table.storage)

    def only(self, table: HudiTable, *columns: str) -> Bounds:
        (found,) = facts(table, columns)
        return bounds(found)

    def test_a_renamed_column_keeps_its_values(self, table: HudiTable) -> None:
        table = altered(table, RenameColumn("n", "number"))
        assert self.only(table, "number", "m") == {"number": (1, 2, 2, 0), "m": (30, 40, 2, 0)}

    def test_two_columns_that_change_names(self, table: HudiTable) -> None:
        table = altered(table, RenameColumn("n", "x"), RenameColumn("m", "n"), RenameColumn("x", "m"))
        assert self.only(table, "n", "m") == {"n": (30, 40, 2, 0), "m": (1, 2, 2, 0)}

    def test_a_column_that_was_added_again_has_no_old_values(self, table: HudiTable) -> None:
        table = altered(table, DropColumn("n"))
        table = altered(table, AddColumn("n", IntType()))
        found = self.only(table, "n", "m")
        assert found["m"] == (30, 40, 2, 0)
        assert found.get("n", (None, None, 2, 2)) == (None, None, 2, 2)

    def test_a_column_that_got_another_type(self, table: HudiTable) -> None:
        table = altered(table, ChangeType("n", DecimalType(12, 2)))
        assert self.only(table, "n") == {"n": (Decimal("1.00"), Decimal("2.00"), 2, 0)}


class TestTypes:
    """A file of another writer holds a column in another type than the table."""

    def rewritten(self, folder: Path, rows: pa.Table, held: pa.Array, **more: Any) -> Bounds:
        table = table_of(folder, rows)
        ((_, file),) = data_files(table)
        there = pq.read_table(folder / file.path, partitioning=None)
        at = there.column_names.index("c")
        metadata = {**(there.schema.metadata or {}), **more.get("metadata", {})}
        changed = there.set_column(at, "c", held)
        with pq.ParquetWriter(folder / file.path, changed.schema, store_schema=False) as parquet:
            parquet.write_table(changed)
            parquet.add_key_value_metadata(metadata)
        (found,) = facts(HudiTable.open(table.storage), ["c", "id"])
        return bounds(found)

    @pytest.mark.parametrize(
        ("kind", "held", "expected"),
        [
            (pa.decimal128(12, 4), pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(10, 2)),
             (Decimal("-3.5000"), Decimal("1.2500"))),
            (pa.timestamp("us", "UTC"), pa.array([5, 7], pa.timestamp("ms", "UTC")), (5_000, 7_000)),
            (pa.int64(), pa.array([5, 7], pa.int32()), (5, 7)),
        ],
    )  # fmt: skip
    def test_bounds_are_in_the_tables_type(
        self, tmp_path: Path, kind: pa.DataType, held: pa.Array, expected: tuple[Any, Any]
    ) -> None:
        rows = pa.table({"id": ["a", "b"], "c": pa.nulls(2, kind)})
        assert self.rewritten(tmp_path, rows, held)["c"] == (*expected, 2, 0)

    @pytest.mark.parametrize(
        ("kind", "held"),
        [
            (pa.decimal128(12, 2), pa.array([Decimal("1.2345"), None], pa.decimal128(10, 4))),
            (pa.int64(), pa.array(["x", "y"])),
            (pa.int64(), pa.array([[1], [2]])),
            (pa.float64(), pa.array([1.87, 2.0], pa.float32())),
        ],
    )
    def test_a_file_whose_values_are_not_sure_has_no_summaries(
        self, tmp_path: Path, kind: pa.DataType, held: pa.Array
    ) -> None:
        rows = pa.table({"id": ["a", "b"], "c": pa.nulls(2, kind)})
        assert self.rewritten(tmp_path, rows, held) == {}

    @pytest.mark.parametrize("kind", [COW, MOR])
    def test_a_file_with_nan_has_no_summaries(self, tmp_path: Path, kind: TableType) -> None:
        """Hudi's data skipping leaves out a file with NaN as a bound, and one without bounds: tests/peers ask it."""
        rows = pa.table({"id": ["1", "2"], "x": [float("nan"), -1.0]})
        table = table_of(tmp_path, rows, kind)
        LocalWriter(table).upsert(rows.slice(0, 1))
        assert [each.summaries for each in facts(table.reload(), ("id", "x"))] == [()] * len(data_files(table.reload()))
        assert all(each.summaries for each in facts(table.reload(), ("id",)))

    def test_dates_of_the_legacy_calendar(self, tmp_path: Path) -> None:
        rows = pa.table({"id": ["a", "b"], "c": pa.nulls(2, pa.date32())})
        held = pa.array([-171_500, 0], pa.date32())
        spark = {footer_keys.SPARK_VERSION: "3.5.0", footer_keys.LEGACY_DATETIME: ""}
        low, high, *_ = self.rewritten(tmp_path, rows, held, metadata=spark)["c"]
        shown = read(HudiTable.open(str(tmp_path)), ReadRequest()).to_arrow()["c"].cast(pa.int32()).to_pylist()
        assert (low, high) == (min(shown), max(shown))
        assert low != -171_500


@versions
@pytest.mark.parametrize("kind", [COW, MOR])
class TestFoundByTasks:
    """What a write's own tasks have found in its files."""

    OPTIONS: Mapping[str, object] = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.partition.stats.enable": "true",
    }
    BLOOMS: Mapping[str, object] = {"hoodie.metadata.index.bloom.filter.enable": "true"}

    @pytest.fixture
    def read_again(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
        """The files of which facts are read for a commit, with the columns of these."""
        seen: list[tuple[str, tuple[str, ...]]] = []

        def recorded(table: HudiTable, files: Any, columns: Columns, **how: Any) -> Any:
            listed = list(files)
            seen.extend((file.name, tuple(columns)) for _, file in listed)
            return facts_of_files(table, listed, columns, **how)

        for module in (updates, partition_stats):
            monkeypatch.setattr(module, "facts_of_files", recorded)
        return seen

    def written(self, folder: Path, kind: TableType, *commits: pa.Table, **options: object) -> HudiTable:
        new_table(folder, kind)
        for rows in commits:
            LocalWriter(HudiTable.open(str(folder), {**self.OPTIONS, **options})).upsert(rows)
        return HudiTable.open(str(folder))

    def test_files_are_not_read_again(
        self, tmp_path: Path, kind: TableType, read_again: list[tuple[str, tuple[str, ...]]]
    ) -> None:
        rows = frame(("a", "p", 1), ("b", "q", 2))
        table = self.written(tmp_path, kind, rows)
        read_again.clear()
        writer = LocalWriter(table.with_options(self.OPTIONS))
        writer.upsert(frame(("a", "p", 7), ("c", "r", 9)))
        assert read_again == []
        now = HudiTable.open(str(tmp_path))
        assert check_metadata_table(now).differences == ()
        found = {each.name: bounds(each) for each in facts(now)}
        assert any(each["ts"][:2] == (9, 9) for each in found.values())

    @pytest.mark.parametrize("nan", [False, True])
    def test_bounds_of_floating_point_numbers(self, tmp_path: Path, kind: TableType, nan: bool) -> None:
        first = pa.table({"id": ["1", "2"], "x": [-1.5, 0.0], "f": pa.array([2.5, None], pa.float32())})
        table = table_of(tmp_path, first, kind).with_options(self.OPTIONS)
        second = pa.table({"id": ["2", "3"], "x": [float("nan") if nan else 4.5, 1.0], "f": first["f"]})
        for rows in (first, second):
            LocalWriter(table).upsert(rows)
        now = HudiTable.open(str(tmp_path))
        assert check_metadata_table(now).differences == ()
        index = now.metadata_table()
        assert index is not None
        found = index.statistics_of_files("x", pa.float64(), [(path, file.name) for path, file in data_files(now)])
        assert found is not None
        assert (found["min_value"].null_count > 0) is nan

    def test_of_base_files_their_bloom_filters_are_read(
        self, tmp_path: Path, kind: TableType, read_again: list[tuple[str, tuple[str, ...]]]
    ) -> None:
        table = self.written(tmp_path, kind, frame(("a", "p", 1)), **self.BLOOMS)
        read_again.clear()
        LocalWriter(table.with_options({**self.OPTIONS, **self.BLOOMS})).upsert(frame(("a", "p", 7), ("c", "r", 9)))
        assert {columns for _, columns in read_again} == {()}
        assert not any(name.startswith(".") for name, _ in read_again)
        assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()

    def test_a_table_whose_columns_were_renamed_reads_them(
        self, tmp_path: Path, kind: TableType, read_again: list[tuple[str, tuple[str, ...]]]
    ) -> None:
        table = self.written(tmp_path, kind, frame(("a", "p", 1)))
        altered(table, AddColumn("more", LongType()))
        read_again.clear()
        nulls = {"hoodie.write.set.null.for.missing.columns": "true"}
        LocalWriter(HudiTable.open(str(tmp_path), {**self.OPTIONS, **nulls})).upsert(frame(("a", "p", 7)))
        assert read_again
        assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()

    def test_rows_that_take_over_values_of_others_have_none(
        self, tmp_path: Path, kind: TableType, read_again: list[tuple[str, tuple[str, ...]]]
    ) -> None:
        payload = "org.apache.hudi.common.model.OverwriteNonDefaultsWithLatestAvroPayload"
        new_table(tmp_path, kind, payload_class=payload)
        for ts in (1, 7):
            LocalWriter(HudiTable.open(str(tmp_path), self.OPTIONS)).upsert(frame(("a", "p", ts)))
        assert all(name.startswith(".") for name, _ in read_again[1:])
        assert check_metadata_table(HudiTable.open(str(tmp_path))).differences == ()


def test_tasks_need_no_library_besides_arrow() -> None:
    """Executors may have no more than that: what tasks have found travels without it."""
    absent = "import sys; sys.modules['xxhash'] = sys.modules['fastavro'] = None"
    used = "from skep_table.metadata_write.facts.files import ColumnReader, FileFacts"
    subprocess.run([sys.executable, "-c", f"{absent}; {used}"], check=True)
