"""Filters open only what they need: partitions, file groups by keys and statistics, columns."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.compute import field

from skep_format.errors import InputError, PredicateError, UnsupportedError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.metadata_table import MetadataTable
from skep_table.query import ReadRequest, execute, plan, read
from skep_table.query.pruning.slices import bounds_of_slices
from skep_table.query.read import explain
from skep_table.slices import read as slices_read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter

VERSIONS = ["0.15.0", "1.0.2", "1.1.1"]
Counting = Callable[[str, str], Any]


def opened(storage: Any, **request: Any) -> tuple[pa.Table, list[str]]:
    """The answer, and the data files that were opened for it."""
    table = HudiTable.open(storage)
    storage.opened.clear()
    rows = read(table, ReadRequest(**request)).to_arrow()
    return rows, sorted(set(storage.opened))


def test_a_slice_has_statistics_where_all_its_files_have() -> None:
    stated, missing = (5, 9, 0, 3), (None, None, None, None)
    names = ("min_value", "max_value", "null_count", "value_count")
    columns = zip(names, zip(stated, missing, stated, stated, strict=True), strict=True)
    rows = pa.table({name: pa.array(values, pa.int64()) for name, values in columns})
    files = [(0, "p", "base"), (0, "p", "log"), (1, "p", "base"), (1, "p", "log")]
    bounds = bounds_of_slices(rows, files, 3)
    assert bounds.lowest.to_pylist() == [None, 5, None]
    assert bounds.highest.to_pylist() == [None, 9, None]
    assert bounds.nulls.to_pylist() == [None, 0, None]
    assert bounds.rows.to_pylist() == [None, 6, None]


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions(counting: Counting, version: str) -> None:
    storage = counting(version, "cow_multi_partition_hive")
    everything, all_files = opened(storage)
    rows, files = opened(storage, where="country = 'NL' AND qty > 0")
    assert all(path.startswith("country=NL/") for path in files)
    assert set(files) == {path for path in all_files if path.startswith("country=NL/")} != set(all_files)
    assert rows.num_rows == everything.filter((field("country") == "NL") & (field("qty") > 0)).num_rows


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "case", ["cow_bloom_index", "cow_record_index", "cow_column_stats", "cow_upsert", "cow_insert"]
)
@pytest.mark.parametrize("metadata", [True, False])
def test_point_look_up_opens_the_file_group_of_the_key(
    counting: Counting, version: str, case: str, metadata: bool
) -> None:
    storage = counting(version, case)
    everything, all_files = opened(storage)
    key = everything["order_id"][0].as_py()
    rows, files = opened(storage, where=f"order_id = '{key}'", metadata=metadata)
    expected = everything.filter(field("order_id") == key)
    assert rows.sort_by("_hoodie_commit_seqno").equals(expected.sort_by("_hoodie_commit_seqno"))
    file_ids = {name.split("_")[0] for name in expected["_hoodie_file_name"].to_pylist()}
    assert {path.rpartition("/")[2].split("_")[0] for path in files} == file_ids
    assert len(files) < len(all_files)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_key_that_is_not_there_opens_nothing(counting: Counting, version: str) -> None:
    rows, files = opened(counting(version, "cow_bloom_index"), where="order_id = 'no such order'")
    assert (rows.num_rows, files) == (0, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_index_spares_the_footers(counting: Counting, version: str) -> None:
    storage = counting(version, "cow_record_index")
    table = HudiTable.open(storage)
    key = read(table).to_arrow()["order_id"][0].as_py()
    storage.footers.clear()
    assert len(plan(table, ReadRequest(where=f"order_id = '{key}'"))) == 1
    assert storage.footers == []
    assert len(plan(table, ReadRequest(where=f"order_id = '{key}'", metadata=False))) == 1
    assert len(set(storage.footers)) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_column_statistics(counting: Counting, version: str) -> None:
    storage = counting(version, "cow_column_stats")
    everything, all_files = opened(storage)
    where = "qty > 99000"
    rows, files = opened(storage, where=where)
    expected = everything.filter(field("qty") > 99000)
    assert rows.sort_by("order_id").equals(expected.sort_by("order_id"))
    assert len(files) < len(all_files)
    assert opened(storage, where=where, data_skipping=False)[0].num_rows == rows.num_rows


def left(table: HudiTable, where: str, **request: Any) -> dict[str, int]:
    """How many file slices each step of a read leaves."""
    return {step.by: step.slices for step in explain(table, ReadRequest(where=where, **request)).steps}


@pytest.mark.parametrize("version", ["1.0.2", "1.1.1"])
def test_whole_partitions_are_left_out_by_their_statistics(counting: Counting, version: str) -> None:
    table = HudiTable.open(counting(version, "cow_column_stats"))
    rows = read(table).to_arrow()
    highest = rows.group_by("city").aggregate([("order_id", "max"), ("qty", "max")]).sort_by("order_id_max").to_pylist()
    beyond, within = highest[0]["order_id_max"], highest[1]["order_id_max"]
    where = f"order_id > '{beyond}' AND order_id <= '{within}'"
    slices = left(table, where)
    assert slices["by partition statistics"] < slices["by partition paths"] == slices["in the table"] == 3
    expected = rows.filter((field("order_id") > beyond) & (field("order_id") <= within))
    assert read(table, ReadRequest(where=where)).count() == expected.num_rows > 0
    most = max(each["qty_max"] for each in highest)
    assert left(table, f"qty > {most}")["by partition statistics"] == 0
    assert left(table, f"qty = {most}")["by partition statistics"] == 1


@pytest.mark.parametrize("version", ["1.0.2", "1.1.1"])
def test_statistics_of_partitions_serve_snapshots_of_the_present(counting: Counting, version: str) -> None:
    table = HudiTable.open(counting(version, "cow_column_stats"))
    first, *_, last = [instant.requested_time for instant in table.timeline.data().completed()]
    where = "qty > 1000000000"
    assert "by partition statistics" in left(table, where)
    assert "by partition statistics" in left(table, where, as_of=last)
    assert "by partition statistics" not in left(table, where, as_of=first)
    assert "by partition statistics" not in left(table, where, query="incremental", since="000")
    assert "by partition statistics" not in left(table, where, data_skipping=False)
    assert "by partition statistics" not in left(table, where, metadata=False)
    assert "by partition statistics" not in left(table.with_options({"hoodie.metadata.enable": "false"}), where)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_record_index_serves_snapshots_of_the_present(counting: Counting, version: str) -> None:
    table = HudiTable.open(counting(version, "cow_record_index"))
    first, *_, last = [instant.requested_time for instant in table.timeline.data().completed()]
    where = f"order_id = '{read(table).to_arrow()['order_id'][0].as_py()}'"
    assert left(table, where)["by the record index"] == 1
    assert left(table, where, as_of=last)["by the record index"] == 1
    assert "by the record index" not in left(table, where, as_of=first)
    assert "by the record index" not in left(table, where, query="incremental", since="000")
    assert "by the record index" not in left(table, where, data_skipping=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_with_the_record_index_no_other_partition_is_listed(
    counting: Counting, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HudiTable.open(counting(version, "cow_record_index"))
    row = read(table).to_arrow().slice(0, 1).to_pylist()[0]
    asked: list[str] = []
    files, partitions = MetadataTable.files, MetadataTable.partitions

    def spied(self: MetadataTable, path: str) -> Any:
        asked.append(path)
        return files(self, path)

    def listed(self: MetadataTable, within: Any = None) -> Any:
        asked.append("all")
        return partitions(self, within)

    monkeypatch.setattr(MetadataTable, "files", spied)
    monkeypatch.setattr(MetadataTable, "partitions", listed)
    table = HudiTable.open(table.storage)
    assert read(table, ReadRequest(where=f"order_id = '{row['order_id']}'")).to_arrow().to_pylist() == [row]
    assert asked == [row["_hoodie_partition_path"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_record_index_of_many_keys(counting: Counting, version: str) -> None:
    table = HudiTable.open(counting(version, "cow_record_index"))
    everything = read(table).to_arrow()
    keys = [*everything["order_id"].to_pylist()[::3], "none", "ord-000578"]
    listed = ", ".join(f"'{key}'" for key in keys)
    found = read(table, ReadRequest(where=f"order_id IN ({listed}) AND qty IS NOT NULL")).to_arrow()
    expected = everything.filter(field("order_id").isin(keys) & field("qty").is_valid())
    assert found.sort_by("order_id").equals(expected.sort_by("order_id"))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_explains_a_read(counting: Counting, version: str) -> None:
    table = HudiTable.open(counting(version, "cow_bloom_index"))
    key = read(table).to_arrow()["order_id"][0].as_py()
    text = str(explain(table, ReadRequest(where=f"order_id = '{key}'", metadata=False)))
    assert text.splitlines() == [
        f"cow_bloom_index: snapshot where order_id = '{key}'",
        " file slices   partitions",
        "           3            3  in the table",
        "           3            3  by partition paths",
        "           1            1  by key ranges and bloom filters",
        "row groups: 1 of 1 are read, by footers",
    ]
    found = explain(table, ReadRequest(where="ts > 9000000000000"))
    assert (found.row_groups, found.row_groups_read) == (3, 0)
    with pytest.raises(UnsupportedError, match="cdc"):
        explain(table, ReadRequest(query="cdc"))  # type: ignore[arg-type]


def test_logs_are_never_left_out_by_keys_of_their_base_file(counting: Counting) -> None:
    storage = counting("0.15.0", "mor_bucket_index")
    everything, _ = opened(storage)
    for key in everything["order_id"].to_pylist():
        rows, _ = opened(storage, where=f"order_id = '{key}'")
        assert rows["order_id"].to_pylist() == [key]


@pytest.mark.parametrize("version", VERSIONS)
def test_of_slices_with_logs_only_base_files_that_may_hold_the_key_are_opened(counting: Counting, version: str) -> None:
    storage = counting(version, "mor_upsert")
    everything, all_files = opened(storage)
    bases = {path for path in all_files if path.endswith(".parquet")}
    for row in everything.take([0, everything.num_rows // 2, everything.num_rows - 1]).to_pylist():
        rows, files = opened(storage, where=f"order_id = '{row['order_id']}'")
        assert rows.to_pylist() == [row]
        file_id = row["_hoodie_file_name"].partition("_")[0]
        assert {path for path in files if path in bases} == {path for path in bases if file_id in path}
    rows, files = opened(storage, where="order_id = 'no such order'")
    assert (rows.num_rows, bases.intersection(files)) == (0, set())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ["cow_upsert", "cow_complex_key", "mor_upsert", "cow_types_edge"])
def test_filters_agree_with_arrow_over_everything(counting: Counting, version: str, case: str) -> None:
    storage = counting(version, case)
    everything = read(HudiTable.open(storage)).to_arrow()
    middle = sorted(everything["ts"].to_pylist())[everything.num_rows // 2]
    for where, expected in [
        (f"ts > {middle}", field("ts") > middle),
        (
            f"ts <= {middle} AND city <> 'utrecht'",
            (field("ts") <= middle) & (field("city") != "utrecht"),
        ),
    ]:
        rows, _ = opened(storage, where=where)
        keys = sorted(rows["_hoodie_record_key"].to_pylist())
        assert keys == sorted(everything.filter(expected)["_hoodie_record_key"].to_pylist()), where


@pytest.mark.parametrize("case", ["cow_upsert", "mor_upsert"])
def test_projection_reads_only_the_wanted_columns(
    counting: Counting, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []
    iter_batches = pq.ParquetFile.iter_batches

    def spy(self: pq.ParquetFile, *args: Any, **options: Any) -> Any:
        asked.append(set(options["columns"]))
        return iter_batches(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", spy)
    rows, _ = opened(counting("1.1.1", case), columns=("qty", "order_id"), where="is_gift")
    assert rows.column_names == ["qty", "order_id"]
    needed = {"qty", "order_id", "is_gift"}
    merging = {"_hoodie_record_key", "ts", "_hoodie_commit_time"} if case == "mor_upsert" else set()
    assert asked
    assert all(columns <= needed | merging for columns in asked)


def test_partition_columns_alone_count_the_rows_of_each_file(counting: Counting) -> None:
    storage = counting("1.1.1", "cow_upsert")
    everything, _ = opened(storage)
    rows, _ = opened(storage, columns=("city",))
    assert sorted(rows["city"].to_pylist()) == sorted(everything["city"].to_pylist())


def test_count_reads_footers_only(counting: Counting) -> None:
    storage = counting("1.1.1", "cow_upsert")
    table = HudiTable.open(storage)
    rows = read(table).to_arrow().num_rows
    storage.opened.clear()
    assert read(table).count() == rows
    assert storage.opened == []
    mor = HudiTable.open(counting("1.1.1", "mor_delete"))
    assert read(mor).count() == read(mor).to_arrow().num_rows


def test_a_limit_stops_early(counting: Counting) -> None:
    storage = counting("1.1.1", "cow_upsert")
    rows, files = opened(storage, limit=3)
    assert rows.num_rows == 3
    assert len(files) == 1
    assert opened(storage, limit=0) == (rows.slice(0, 0), [])


def test_tasks_travel(golden: Any) -> None:
    table = HudiTable.open(golden / "1.1.1" / "mor_upsert" / "table")
    request = ReadRequest(where="qty > 10", columns=("order_id", "qty"))
    tasks = pickle.loads(pickle.dumps(plan(table, request)))
    rows = pa.Table.from_batches([batch for task in tasks for batch in execute.run(task)])
    assert rows.sort_by("order_id").equals(read(table, request).to_arrow().sort_by("order_id"))


def test_every_form_of_the_result(golden: Any) -> None:
    table = HudiTable.open(golden / "1.1.1" / "cow_upsert" / "table")
    result = read(table, ReadRequest(columns=("order_id", "qty")))
    rows = result.to_arrow()
    assert result.schema == rows.schema
    assert result.to_reader().read_all() == rows
    assert result.to_pandas()["order_id"].tolist() == rows["order_id"].to_pylist()
    assert result.to_polars()["order_id"].to_list() == rows["order_id"].to_pylist()
    assert result.to_duckdb().aggregate("count(*)").fetchall() == [(rows.num_rows,)]


def test_unknown_names(golden: Any) -> None:
    table = HudiTable.open(LocalStorage(str(golden / "1.1.1" / "cow_upsert" / "table")))
    with pytest.raises(InputError, match="no column price_eur"):
        read(table, ReadRequest(columns=("price_eur",)))
    with pytest.raises(PredicateError, match="price_eur is no column"):
        read(table, ReadRequest(where="price_eur > 1"))
    with pytest.raises(InputError, match="cdc query"):
        read(table, ReadRequest(query="cdc", columns=("order_id",)))  # type: ignore[arg-type]


@pytest.mark.parametrize("table_version", [6, 9], indirect=True)
def test_of_a_base_file_under_logs_the_rows_of_the_key_are_read(
    table_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the logs hold of it: an update, a deletion, a new row, nothing."""
    count = 20_000
    rows = pa.table({"id": [f"k{n:05}" for n in range(count)], "ts": [1] * count, "v": ["before"] * count})
    spec = TableSpec(name="t", schema=rows.schema, record_key=("id",), ordering="ts", type=TableType.MERGE_ON_READ)
    create_table(LocalStorage(str(tmp_path)), spec)
    small = {"hoodie.parquet.block.size": "100000", "hoodie.parquet.small.file.limit": "0"}
    LocalWriter(HudiTable.open(tmp_path, small)).bulk_insert(rows)
    changed = pa.table({"id": ["k00007", "k15000"], "ts": [2, 2], "v": ["after", "after"]})
    LocalWriter(HudiTable.open(tmp_path, small)).upsert(changed)
    LocalWriter(HudiTable.open(tmp_path, small)).delete(rows.slice(9, 1).select(["id"]))
    read_rows = []
    real = slices_read.read_base

    def counted(*arguments: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(*arguments, **named):
            read_rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(slices_read, "read_base", counted)
    for where, values in {
        "id = 'k00007'": ["after"],
        "id = 'k00009'": [],
        "id = 'k00010'": ["before"],
        "id in ('k15000', 'k15001', 'none')": ["after", "before"],
        "id = 'k15000' and v = 'before'": [],
        "_hoodie_record_key = 'k15000'": ["after"],
    }.items():
        read_rows.clear()
        answer = read(HudiTable.open(tmp_path), ReadRequest(columns=("v",), where=where)).to_arrow()
        assert sorted(answer["v"].to_pylist()) == values, where
        assert sum(read_rows) < count // 2, where
    read_rows.clear()
    assert read(HudiTable.open(tmp_path), ReadRequest(where="v = 'after'")).to_arrow().num_rows == 2
    assert sum(read_rows) == count
