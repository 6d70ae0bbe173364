"""A read that leaves out files by indexes has the rows of one that does not, whatever the filter and the values."""

from __future__ import annotations

import datetime as dt
import io
import random
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from counting_storage import CountingStorage
from golden_metadata import RELEASES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_tables import SCHEMA, everything, indexed, rows_of, written
from random_filters import conditions, literals, text

from skep_format.errors import FormatError
from skep_format.instant_time import InstantTime
from skep_format.schema.arrow import from_arrow
from skep_format.schema.types import RECORD_KEY, StringType
from skep_format.storage import LocalStorage
from skep_format.table_config import USER_PROVIDED, TableType
from skep_format.timeline.instant import Action
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table import FOLDER
from skep_table.metadata_table.definitions import INDEX_DEFINITIONS, read_definitions
from skep_table.metadata_table.records import PartitionUpdate
from skep_table.metadata_table.records.column_stats import column_stats_update, indexable, partition_stats_update
from skep_table.metadata_table.records.secondary_index import (
    record_keys_behind,
    secondary_index_update,
    secondary_keys,
    secondary_prefixes,
)
from skep_table.metadata_table.records.summaries import ColumnSummary, summaries_of_rows
from skep_table.metadata_write.delta_commit import write_delta_commit
from skep_table.metadata_write.own import open_own
from skep_table.query import ReadRequest, plan, read
from skep_table.query.filters.text import parse_predicate
from skep_table.query.pruning.slices import Steps, record_keys
from skep_table.query.read import explain
from skep_table.services.cleaning.archive import move_to_archive
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
KINDS = [
    pytest.param((6, MOR, False)),
    pytest.param((9, MOR, False)),
    pytest.param((9, COW, True)),
    pytest.param((8, COW, False)),
    pytest.param((6, COW, False), marks=pytest.mark.slow),
    pytest.param((8, MOR, False), marks=pytest.mark.slow),
    pytest.param((9, COW, False), marks=pytest.mark.slow),
    pytest.param((9, MOR, True), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HudiTable:
    version, kind, partitioned = request.param
    made = written(tmp_path_factory.mktemp("indexed") / "t", version, kind, seed=version)
    return indexed(made, partitioned=partitioned)


@pytest.fixture(scope="module")
def rows(table: HudiTable) -> pa.Table:
    return everything(table)


VALUES = st.text(st.sampled_from("a$\\\0ü\n\U00010000"), max_size=6)


def check(table: HudiTable, rows: pa.Table, data: st.DataObject) -> None:
    where = data.draw(conditions(literals(rows)))
    expected = rows.filter(parse_predicate(where, rows.schema).mask(rows))
    found = read(table, ReadRequest(where=where)).to_arrow()
    assert found.sort_by(RECORD_KEY)["id"].to_pylist() == expected.sort_by(RECORD_KEY)["id"].to_pylist(), where


@given(st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
def test_no_row_of_an_incremental_query_is_lost(table: HudiTable, data: st.DataObject) -> None:
    instants = [each.requested_time for each in table.timeline.data().completed()]
    since, *until = sorted(data.draw(st.lists(st.sampled_from(instants), min_size=1, max_size=2, unique=True)))
    changes = ReadRequest(query="incremental", since=since, until=next(iter(until), None))
    rows = read(table, replace(changes, data_skipping=False)).to_arrow()
    where = data.draw(conditions(literals(everything(table))))
    expected = rows.filter(parse_predicate(where, rows.schema).mask(rows))
    found = read(table, replace(changes, where=where)).to_arrow()
    assert found.sort_by(RECORD_KEY)["id"].to_pylist() == expected.sort_by(RECORD_KEY)["id"].to_pylist(), where


def test_statistics_leave_out_files_of_an_incremental_query(table: HudiTable) -> None:
    since = table.timeline.data().completed().instants[0].requested_time
    request = ReadRequest(where="number < -500000000000000", query="incremental", since=since)
    found = {step.by: step.slices for step in explain(table, request).steps}
    completed_from_before = table.config.is_mor and table.format.reads.has_partial_updates
    assert (found["by column statistics"] < found["by partition paths"]) is not completed_from_before


@given(st.data())
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
def test_no_row_is_lost(table: HudiTable, rows: pa.Table, data: st.DataObject) -> None:
    check(table, rows, data)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
def test_no_row_is_lost_by_many_filters(table: HudiTable, rows: pa.Table, data: st.DataObject) -> None:
    check(table, rows, data)


def steps(table: HudiTable, where: str) -> dict[str, int]:
    return {step.by: step.slices for step in explain(table, ReadRequest(where=where)).steps}


@pytest.mark.parametrize(
    "where",
    [
        "1 = 2", "false", "1 = 1 AND id = 'k005'", "id <=> 'k005'", "NOT id <=> 'k005'", "id = ''", "id IN ('', 'k5')",
        "line IN (1, 3000000000)", "line = 3000000000", "tag = ''", "part = '' OR id = 'k005'", "note LIKE ''",
        "ratio IN ('NaN')", "ratio IN (0.0)", "raw = X'00'", "number = 1e0", "id IN (NULL, 'k005')", "id = NULL",
        "tag = NULL AND part = 'north'",
    ],
)  # fmt: skip
def test_conditions_that_are_easily_forgotten(table: HudiTable, rows: pa.Table, where: str) -> None:
    expected = rows.filter(parse_predicate(where, rows.schema).mask(rows))
    found = read(table, ReadRequest(where=where)).to_arrow()
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())


class TestWhatIsLeftOut:
    def test_by_a_key(self, table: HudiTable, rows: pa.Table) -> None:
        row = rows.slice(5, 1).to_pylist()[0]
        where = f"id = '{row['id']}' AND part = {text(row['part'])}"
        assert steps(table, where)["by the record index"] == 1
        assert steps(table, f"id = 'none' AND part = {text(row['part'])}")["by the record index"] == 0

    def test_by_statistics(self, table: HudiTable) -> None:
        found = steps(table, "number < -500000000000000")
        assert found["by column statistics"] < found["in the table"]
        if table.config.version >= 8:
            assert found["by partition statistics"] <= 2
            assert found["in the table"] == 8

    def test_by_a_secondary_index(self, table: HudiTable, rows: pa.Table) -> None:
        if table.config.version < 8:
            return
        row = rows.filter(pc.is_valid(rows["number"])).slice(7, 1).to_pylist()[0]
        where = f"number = {row['number']} AND part = {text(row['part'])}"
        assert steps(table, where)["by the secondary index number"] == 1

    def test_an_index_for_each_partition_needs_the_partition(self, table: HudiTable) -> None:
        metadata = table.metadata_table()
        assert metadata is not None
        assert ("by the record index" in steps(table, "id = 'k001'")) is not metadata.has_partitioned_record_index

    def test_too_many_keys_are_not_looked_up(self, table: HudiTable) -> None:
        listed = ", ".join(f"'k{number}'" for number in range(10_001))
        assert "by the record index" not in steps(table, f"id IN ({listed}) AND part = 'north'")


class TestKeysOfSeveralFields:
    @pytest.mark.parametrize("version", [6, 9])
    def test_all_fields_make_the_key(self, tmp_path: Path, version: int) -> None:
        table = indexed(written(tmp_path / "t", version, MOR, keys=("id", "line")))
        row = everything(table).slice(3, 1).to_pylist()[0]
        where = f"id = '{row['id']}' AND line IN ({row['line']}, 7)"
        assert steps(table, where)["by the record index"] == 1
        assert read(table, ReadRequest(where=where)).to_arrow()["id"].to_pylist() == [row["id"]]
        assert "by the record index" not in steps(table, f"id = '{row['id']}'")

    def test_numbers_that_no_key_can_be_are_in_no_row(self, tmp_path: Path) -> None:
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "n": [1, 2]})
        options = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
        made = create_table(
            LocalStorage(str(tmp_path)), TableSpec(name="t", schema=rows.schema, record_key=("id",)), options
        )
        LocalWriter(made).upsert(rows)
        table = HudiTable.open(tmp_path)
        assert steps(table, "id = 3000000000")["by the record index"] == 0
        assert read(table, ReadRequest(where="id IN (1, 3000000000)")).to_arrow()["id"].to_pylist() == [1]

    def test_keys_of_a_generator_of_the_users_own_are_not_known(self, tmp_path: Path) -> None:
        table = indexed(written(tmp_path / "t", 6, COW))
        config = replace(table.config, key_generator=USER_PROVIDED)
        predicate = parse_predicate("id = 'k001'", everything(table).schema)
        assert record_keys(predicate, table.config) is not None
        assert record_keys(predicate, config) is None


@pytest.mark.parametrize("version", [6, 9])
def test_a_look_up_takes_the_same_requests_whatever_the_number_of_partitions(tmp_path: Path, version: int) -> None:
    """The table is opened, one group of the index and one base file are read; data folders are not listed."""
    asked = []
    for count in (2, 40):
        storage = CountingStorage(LocalStorage(str(tmp_path / str(count))))
        spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), version=version)
        options = {"hoodie.metadata.enable": "true"}
        rows = rows_of(random.Random(0), 0, list(range(80)), 0)
        parts = pa.array([f"p{number % count}" for number in range(80)])
        rows = rows.set_column(SCHEMA.get_field_index("part"), "part", parts)
        LocalWriter(create_table(storage, spec, options)).upsert(rows)
        indexed(HudiTable.open(LocalStorage(str(tmp_path / str(count)))))
        storage.calls.clear()
        assert read(HudiTable.open(storage), ReadRequest(where="id = 'k033'")).to_arrow()["id"].to_pylist() == ["k033"]
        assert all(path.startswith(".hoodie") for path in storage.calls.paths("list_folder", "list_prefix"))
        asked.append(storage.calls.counts())
    assert asked[0] == asked[1]


class _CountedBytes(LocalStorage):
    """A folder that counts the bytes that are read of the record index."""

    read_of_index = 0

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._counted(path, super().read_range(path, offset, length))

    def open_input(self, path: str, *, size: int | None = None) -> pa.NativeFile:
        return pa.PythonFile(_CountedFile(self, path))

    def _counted(self, path: str, data: bytes) -> bytes:
        if path.startswith(f"{FOLDER}/record_index"):
            self.read_of_index += len(data)
        return data


class _CountedFile(io.FileIO):
    def __init__(self, storage: _CountedBytes, path: str) -> None:
        super().__init__(storage.local_path(path))
        self._storage, self._path = storage, path

    def read(self, size: int | None = -1) -> bytes:
        return self._storage._counted(self._path, super().read(-1 if size is None else size) or b"")


def test_a_look_up_in_a_large_log_reads_its_index_and_one_block(tmp_path: Path) -> None:
    """A large write is a large block of the record index until that is compacted."""
    keys = random.Random(0).sample(range(10**9), 400_000)
    rows = pa.table({"id": pa.array(map(str, keys)), "n": pa.array(range(len(keys)))})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",))
    options = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true",
               "hoodie.metadata.record.index.min.filegroup.count": "1"}  # fmt: skip
    LocalWriter(create_table(LocalStorage(str(tmp_path / "t")), spec, options)).bulk_insert(rows.slice(0, 1))
    LocalWriter(HudiTable.open(str(tmp_path / "t"), options)).bulk_insert(rows.slice(1))
    sizes = [file.stat().st_size for file in (tmp_path / "t" / FOLDER / "record_index").glob(".record*.log*")]
    storage = _CountedBytes(str(tmp_path / "t"))
    found = read(HudiTable.open(storage), ReadRequest(where=f"id = '{keys[1234]}'")).to_arrow()
    assert found["n"].to_pylist() == [1234]
    assert max(sizes) > 2_000_000
    assert 0 < storage.read_of_index < max(sizes) / 4


class TestChangesOfASecondaryIndex:
    """Values that change move their record keys, in blocks of later delta commits."""

    @pytest.mark.parametrize("version", [8, 9])
    def test_the_newest_entry_of_a_key_counts(self, tmp_path: Path, version: int) -> None:
        table = indexed(written(tmp_path / "t", version, COW))
        metadata = table.metadata_table()
        assert metadata is not None
        index = "secondary_index_tag"
        before = metadata.record_keys_of(index, pa.array(["red$1"]), 1 << 20)
        assert before is not None
        moved, added = before[:1], pa.array(["ä$ö\\"])
        comes = secondary_keys(pa.array(["new", "red$1"]), pa.concat_arrays([moved, added]))
        goes = secondary_keys(pa.array(["red$1"]), moved)
        release = table.format.metadata.release
        now = changed(table, secondary_index_update(index, comes, goes, release, by_value=version == 9))
        later = now.metadata_table()
        assert later is not None
        found = later.record_keys_of(index, pa.array(["red$1", "new"]), 1 << 20)
        assert found is not None
        assert sorted(found.to_pylist()) == sorted([*before.to_pylist(), "ä$ö\\"])
        rest = metadata.record_keys_of(index, pa.array(["", "\\"]), 1 << 20)
        rows = everything(table)
        assert sorted(rest.to_pylist()) == sorted(
            rows.filter(pc.is_in(rows["tag"], pa.array(["", "\\"])))["id"].to_pylist()
        )

    def test_a_value_of_very_many_rows_is_not_looked_up(self, tmp_path: Path) -> None:
        metadata = indexed(written(tmp_path / "t", 9, COW)).metadata_table()
        assert metadata is not None
        assert metadata.record_keys_of("secondary_index_tag", pa.array(["red"]), 10) is None

    @given(st.lists(st.tuples(VALUES, VALUES), min_size=1), VALUES)
    def test_keys_are_split_where_the_value_ends(self, pairs: list[tuple[str, str]], value: str) -> None:
        values, keys = (pa.array(column, pa.string()) for column in zip(*pairs, strict=True))
        (prefix,) = secondary_prefixes(pa.array([value])).to_pylist()
        found = record_keys_behind(prefix, secondary_keys(values, keys))
        assert found.to_pylist() == [key for each, key in pairs if each == value]


def summary(column: str, low: Any, high: Any, values: int, nulls: int) -> ColumnSummary:
    return ColumnSummary(column, from_arrow(SCHEMA)[column].type, low, high, values, nulls)


BEYOND = "TIMESTAMP '1990-01-01 00:00:00'"
STATED = [
    (summary("number", 0, 1, 10, 3), "number > 5", True, "a column of numbers with nulls"),
    (summary("number", 0, 1, 9, 0), "number > 5", False, "a file without the column"),
    (summary("number", 0, 1, 10, 0), "number IS NULL", True, "no nulls"),
    (summary("number", 0, 1, 9, 0), "number IS NULL", False, "nulls for want of the column"),
    (summary("number", None, None, 10, 10), "number > 5", False, "nulls, or values without bounds"),
    (summary("day", 0, 1, 10, 3), "day = DATE '1990-01-01'", True, "dates"),
    (summary("price", Decimal(0), Decimal(1), 10, 3), "price = 7", True, "decimals"),
    (summary("note", "b", "c", 10, 0), "note = 'x'", True, "texts"),
    (summary("note", "b", "c", 10, 1), "note = 'x'", False, "a long text, whose file has no bounds"),
    (summary("note", "10", "9", 10, 0), "note = '55'", False, "texts that were numbers"),
    (summary("note", "1960-01-01", "1960-01-02", 10, 0), "note = 'x'", True, "dates as texts"),
    (summary("note", "b", "\U0001f381", 10, 0), "note = 'a'", False, "another order than that of the bytes"),
    (summary("at", 10**15, 10**15 + 1, 10, 0), f"at = {BEYOND}", True, "times"),
    (summary("at", 10**15, 10**15, 10, 1), f"at = {BEYOND}", False, "times in INT96, whose file has no bounds"),
    (summary("ratio", 0.0, 1.0, 10, 0), "ratio = 5.0", False, "floats"),
]


@pytest.fixture(scope="module", params=[8, 9])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain") / "t"
    indexed(written(folder, request.param, COW))
    return folder


def changed(table: HudiTable, update: PartitionUpdate) -> HudiTable:
    """The table after a further delta commit of its metadata table, at a time of its own."""
    last = table.timeline.data().completed().instants[-1].requested_time
    write_delta_commit(open_own(table), InstantTime(f"{int(last) - 1}"), [update], table.context.clock)
    return HudiTable.open(table.storage)


class TestStatisticsOfPartitions:
    @pytest.mark.parametrize(("stated", "where", "excluded", "of"), STATED, ids=[each[3] for each in STATED])
    def test_they_count_where_they_hold_for_all_rows(
        self, plain: Path, tmp_path: Path, stated: ColumnSummary, where: str, excluded: bool, of: str
    ) -> None:
        folder = Path(shutil.copytree(plain, tmp_path / "t"))
        table = HudiTable.open(folder)
        keys = ColumnSummary("_hoodie_record_key", StringType(), "k", "l", 10, 0)
        release = table.format.metadata.release
        update = partition_stats_update({"north": [keys, stated]}, [], [], release)
        left = plan(changed(table, update), ReadRequest(where=f"part = 'north' AND {where}"), steps := Steps())
        found = {step.by: step.slices for step in steps.found}
        assert found["by partition paths"] == 2
        assert (found["by partition statistics"] == 0) is excluded
        assert not (excluded and left)


class TestUnitsOfStatistics:
    """A file may have times in milliseconds, whatever the schema has: Hudi has an option for it."""

    MILLIS = dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc).timestamp() * 1000

    @pytest.mark.parametrize("version", [6, 8, 9])
    @pytest.mark.parametrize("unit", ["ms", "us"])
    def test_a_time_is_used_where_its_unit_is_sure(self, tmp_path: Path, version: int, unit: str) -> None:
        table = indexed(written(tmp_path / "t", version, COW))
        view, schema = table.view(), from_arrow(SCHEMA)
        names = [(path, str(found.base_file.name)) for path in view.partitions() for found in view.slices(path)
                 if found.base_file is not None]  # fmt: skip
        number = int(self.MILLIS) * (1 if unit == "ms" else 1000)
        kind = replace(schema["at"].type, unit=unit)
        stated = [ColumnSummary("at", kind, number, number, 10, 0)]
        update = column_stats_update(dict.fromkeys(names, stated), [], [], table.format.metadata.release)
        now = changed(table, update)
        assert steps(now, "at = TIMESTAMP '2024-01-01 00:00:00'")["by column statistics"] == len(names)
        beyond = steps(now, "at > TIMESTAMP '2024-01-02 00:00:00'")["by column statistics"]
        assert beyond == (0 if unit == "us" else len(names))

    def test_times_of_1970_are_sure_where_the_record_states_the_type(self, tmp_path: Path) -> None:
        for version, expected in ((8, False), (9, True)):
            now = indexed(written(tmp_path / str(version), version, COW))
            update = column_stats_update(
                {(path, str(found.base_file.name)): [summary("at", 0, 1, 10, 0)]
                 for path in now.view().partitions() for found in now.view().slices(path) if found.base_file},
                [], [], now.format.metadata.release,
            )  # fmt: skip
            found = steps(changed(now, update), "at = TIMESTAMP '2100-01-01 00:00:00'")
            assert (found["by column statistics"] == 0) is expected


def test_bounds_of_bytes_leave_nothing_out(tmp_path: Path) -> None:
    """Java compares bytes as signed numbers, so that 0x80 is the smallest: Hudi's bounds are of another order."""
    table = indexed(written(tmp_path / "t", 9, COW))
    view = table.view()
    names = [(path, str(found.base_file.name)) for path in view.partitions() for found in view.slices(path)
             if found.base_file is not None]  # fmt: skip
    stated = [summary("raw", b"\x80", b"\x01", 10, 0)]
    now = changed(table, column_stats_update(dict.fromkeys(names, stated), [], [], table.format.metadata.release))
    assert steps(now, "raw = X'00'")["by column statistics"] == len(names)


class TestIndexesThatAreNotTrue:
    @pytest.mark.parametrize("archived", [False, True])
    @pytest.mark.parametrize("version", [6, 9])
    def test_keys_may_be_missing_after_an_overwrite(self, tmp_path: Path, version: int, archived: bool) -> None:
        """Hudi takes keys from the index that had moved to another partition."""
        table = written(tmp_path / "t", version, COW)
        options = {"hoodie.metadata.enable": "true"}
        LocalWriter(HudiTable.open(table.storage, options)).insert_overwrite(rows_of(random.Random(1), 0, [5, 6], 10))
        if archived:
            replaced = HudiTable.open(table.storage).timeline.completed().of(Action.REPLACE_COMMIT)
            move_to_archive(HudiTable.open(table.storage), list(replaced))
        table = indexed(HudiTable.open(table.storage))
        assert steps(table, "id = 'k005'")["by the record index"] == 1
        assert "by the record index" not in steps(table, "id = 'none'")
        assert "by the record index" not in steps(table, "id IN ('k005', 'none')")

    @pytest.mark.parametrize("release", RELEASES)
    def test_a_compaction_mixes_in_what_came_after_the_snapshot(
        self, golden: Path, tmp_path: Path, release: str
    ) -> None:
        folder = Path(shutil.copytree(golden / release / "cow_record_index" / "table", tmp_path / "t"))
        timeline = ".hoodie" if release == "0.15.0" else ".hoodie/timeline"
        now = HudiTable.open(folder)
        last = now.timeline.data().completed().instants[-1].requested_time
        for file in (folder / timeline).glob(f"{last}*"):
            file.unlink()
        where = "order_id = 'none'"
        assert steps(HudiTable.open(folder), where)["by the record index"] == 0
        later = f"{last}001.commit" if release == "0.15.0" else f"{last[:-1]}9_{last[:-1]}9.commit"
        (folder / FOLDER / timeline / later).write_bytes(b"")
        assert "by the record index" not in steps(HudiTable.open(folder), where)

    @pytest.mark.parametrize("archived", [False, True])
    def test_statistics_of_partitions_after_writes_that_completed_out_of_order(
        self, tmp_path: Path, archived: bool
    ) -> None:
        table = indexed(written(tmp_path / "t", 9, COW))
        where = "number < -500000000000000"
        assert steps(table, where)["by partition statistics"] < 8
        first, second, *_ = table.timeline.data().completed()
        (file,) = (tmp_path / "t/.hoodie/timeline").glob(f"{first.requested_time}_*")
        late = f"{first.requested_time}_{int(second.completion_time or 0) + 1}{file.suffix}"
        file.rename(file.with_name(late))
        if not archived:
            assert steps(HudiTable.open(table.storage), where)["by partition statistics"] == 8
            return
        now = HudiTable.open(table.storage)
        move_to_archive(now, now.timeline.data().completed().instants[:2])
        written_to = set(now.commit_metadata(now.timeline.data().completed().instants[0]).partition_to_write_stats)
        steps_ = Steps()
        plan(HudiTable.open(table.storage), ReadRequest(where="number < -5000000000000000"), steps_)
        (found,) = (step for step in steps_.found if step.by == "by partition statistics")
        assert found.partitions == len(written_to) == 1

    def test_archived_writes_that_completed_in_order_are_no_reason(self, tmp_path: Path) -> None:
        table = indexed(written(tmp_path / "t", 9, COW))
        move_to_archive(table, table.timeline.data().completed().instants[:2])
        found = steps(HudiTable.open(table.storage), "number < -500000000000000")
        assert found["by partition statistics"] < 8

    def test_damaged_definitions_are_an_error_that_names_them(self, tmp_path: Path) -> None:
        table = indexed(written(tmp_path / "t", 9, COW))
        table.storage.replace_atomic(INDEX_DEFINITIONS, b"{")
        with pytest.raises(FormatError, match=r"index\.json"):
            plan(HudiTable.open(table.storage), ReadRequest(where="tag = 'red'"))
        assert read_definitions(table.storage, "none") == {}


def test_files_of_one_name_in_two_partitions_have_statistics_of_their_own(tmp_path: Path) -> None:
    """Bucketed tables may have the same file names in all partitions."""
    table = indexed(written(tmp_path / "t", 6, COW))
    metadata = table.metadata_table()
    assert metadata is not None
    view = table.view()
    (one, *_), (other, *_) = view.slices("a b"), view.slices("north")
    names = [(each.partition_path, str(each.base_file.name)) for each in (one, other) if each.base_file]
    columns = indexable(table.schema(), ["number"], "0.15.0")
    summaries = {
        (path, "same.parquet"): summaries_of_rows(pa.table({"number": [number]}), columns)
        for (path, _), number in zip(names, (1, 2), strict=True)
    }
    now = changed(table, column_stats_update(summaries, [], [], "0.15.0")).metadata_table()
    assert now is not None
    found = now.statistics_of_files("number", pa.int64(), [*summaries, ("none", "same.parquet")])
    assert found is not None
    assert found["min_value"].to_pylist() == [1, 2, None]
