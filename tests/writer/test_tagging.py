"""Keys are looked up by Spark with one read of each candidate file, and every row gets the tag of its own key."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import counting_storage
import pyarrow as pa
import pytest
from counting_storage import Calls, CountingStorage
from log_positions import blocks_with_positions
from own_record_index import KEPT, MadeRecordIndex
from pyspark import cloudpickle

from skep_format.errors import RowsChangedError, StorageError, UnsupportedError
from skep_format.storage import LocalStorage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.table import HudiTable
from skep_table.write.local import LocalWriter
from skep_table.write.planning import plan
from skep_writer import SparkWriter
from skep_writer.writing import spark_rows, tagging

pytestmark = [pytest.mark.spark, pytest.mark.engine("spark")]

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
FILES, TASKS, ROWS = 200, 8, 4000
FRAME = "concat('k', lpad(cast((id * 7919) % {modulo} as string), 6, '0')) id", "'p' part", "{ts}L ts", "id v"


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 200 base files in one partition."""
    folder = tmp_path_factory.mktemp("many") / "t"
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(LocalStorage(str(folder)), spec)
    options = {
        "hoodie.copyonwrite.insert.auto.split": "false",
        "hoodie.copyonwrite.insert.split.size": str(ROWS // FILES),
        "hoodie.bloom.index.filter.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "100",
    }
    numbers = range(ROWS)
    rows = {"id": [f"k{n:06d}" for n in numbers], "part": ["p"] * ROWS, "ts": [1] * ROWS, "v": [0] * ROWS}
    LocalWriter(table.with_options(options)).insert(pa.table(rows, SCHEMA))
    return folder


def changes(spark: Any, rows: int, *, ts: int = 2, modulo: int = 2 * ROWS) -> Any:
    """Rows in 8 tasks, whose keys are spread over the files of the table; half of them are new."""
    return spark.range(0, rows, 1, TASKS).selectExpr(*(each.format(ts=ts, modulo=modulo) for each in FRAME))


@pytest.fixture
def calls_of_tagging(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, str]]]:
    """(method, path) of each call on a base file, also of the metadata table, while rows are tagged, by write."""
    cloudpickle.register_pickle_by_value(counting_storage)  # executors don't have the tests
    seen: list[list[tuple[str, str]]] = []
    real = spark_rows.SparkRows.tag

    def tag(self: Any, found: Any) -> Any:
        calls: Calls = getattr(found.look_up, "by_files", found.look_up).table.storage.calls
        calls.clear()
        result = real(self, found)
        seen.append([(call.method, call.path) for call in calls if call.path.endswith((".parquet", ".hfile"))])
        return result

    monkeypatch.setattr(spark_rows.SparkRows, "tag", tag)
    return seen


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("index", ["BLOOM", "GLOBAL_BLOOM"])
def test_each_candidate_file_is_read_once_whatever_the_number_of_tasks(
    spark: Any,
    many_files: Path,
    tmp_path: Path,
    calls_of_tagging: list[list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    index: str,
    ranges: bool,
) -> None:
    monkeypatch.setattr(tagging, "_FOOTER_BYTES", 0 if ranges else 1 << 40)
    shutil.copytree(many_files, tmp_path / "t")
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")), Calls(tmp_path / "calls.log"))
    writer = SparkWriter(HudiTable.open(storage, {"hoodie.index.type": index}), spark)
    result = writer.upsert(changes(spark, 2 * ROWS))
    assert (result.updated, result.inserted) == (ROWS, ROWS)
    (calls,) = calls_of_tagging
    opened = Counter(path for method, path in calls if method == "open_input")
    footers = Counter(path for method, path in calls if method == "read_suffix")
    assert (len(opened), max(opened.values())) == (FILES, 1)
    # where ranges pay, a first step reads the footers; else each file's is read with its key column
    assert (len(footers), max(footers.values(), default=0)) == ((FILES, 1) if ranges else (0, 0))
    assert {method for method, _ in calls} <= {"open_input", "read_suffix"}


@pytest.mark.parametrize("index", ["BLOOM", "GLOBAL_BLOOM", "INMEMORY"])
@pytest.mark.filterwarnings("ignore::skep_table.write.indexes.memory.InMemoryWarning")
def test_numbers_come_back_to_their_rows_by_a_shuffle_too(
    spark: Any, make_table: Callable[..., HudiTable], snapshot: Any, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """As in a write of more rows than fit into a broadcast, with keys that occur in several payloads."""
    monkeypatch.setattr(tagging, "_BROADCAST_BYTES", -1)
    monkeypatch.setattr(tagging, "_FOOTER_BYTES", 0)
    table = make_table(SCHEMA)
    writer = SparkWriter(table.with_options({"hoodie.index.type": index}), spark)
    writer.insert(changes(spark, 500, ts=1, modulo=500))
    writer.upsert(changes(spark, 3000, modulo=1000))
    found = snapshot(table)
    assert len(found) == 1000
    # of rows that compare the same the one that arrives last stays
    last = {(n * 7919) % 1000: n for n in range(3000)}
    assert {key: row["v"] for key, row in found.items()} == {f"k{key:06d}": n for key, n in last.items()}


class Outdated(MadeRecordIndex):
    """Every tenth entry names a file group that is not there."""

    def entries(self, keys: pa.Table) -> pa.Table:
        lost = [f"{key}-0" if at % 10 == 0 else key for at, key in enumerate(keys.column("file_id").to_pylist())]
        return keys.set_column(keys.schema.get_field_index("file_id"), "file_id", pa.array(lost))


@pytest.mark.parametrize("is_global", [True, False])
@pytest.mark.parametrize("kind", [MadeRecordIndex, Outdated])
def test_a_record_index_is_opened_once_and_base_files_where_it_is_outdated(
    spark: Any,
    many_files: Path,
    tmp_path: Path,
    calls_of_tagging: list[list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[MadeRecordIndex],
    is_global: bool,
) -> None:
    monkeypatch.setattr(plan, "index_of", lambda _config, _options: kind(is_global, moves=True))
    shutil.copytree(many_files, tmp_path / "t")
    storage = CountingStorage(LocalStorage(str(tmp_path / "t")), Calls(tmp_path / "calls.log"))
    result = SparkWriter(HudiTable.open(storage, KEPT), spark).upsert(changes(spark, 2 * ROWS))
    assert (result.updated, result.inserted) == (ROWS, ROWS)
    (calls,) = calls_of_tagging
    opened = Counter(path for method, path in calls if method == "open_input")
    base_files = {path: count for path, count in opened.items() if path.endswith(".parquet")}
    assert (len(base_files), set(base_files.values())) == ((0, set()) if kind is MadeRecordIndex else (FILES, {1}))
    index = Counter(path for _, path in calls if "record_index" in path)
    assert (len(index), max(index.values())) == (3, 6)  # as many ranges as one open file is read by
    found = read(HudiTable.open(storage), ReadRequest()).to_arrow()
    assert (len(found), len(set(found["id"].to_pylist()))) == (2 * ROWS, 2 * ROWS)
    assert set(found["ts"].to_pylist()) == {2}


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("index", ["SIMPLE", "GLOBAL_SIMPLE"])
def test_logs_name_the_rows_that_tagging_found(
    spark: Any, make_table: Callable[..., HudiTable], monkeypatch: pytest.MonkeyPatch, index: str, few: bool
) -> None:
    """Keys are in several payloads, and files are read by several tasks; no log has to read its base file."""
    if not few:
        monkeypatch.setattr(tagging, "_BROADCAST_BYTES", -1)
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ, version=9)
    options = {
        "hoodie.index.type": index,
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.copyonwrite.insert.auto.split": "false",
        "hoodie.copyonwrite.insert.split.size": "100",
    }
    SparkWriter(table.with_options(options), spark).insert(changes(spark, 500, ts=1, modulo=500))
    calls = Calls(Path(table.storage.root).parent / "calls.log")
    cloudpickle.register_pickle_by_value(counting_storage)
    counted = HudiTable.open(CountingStorage(table.storage, calls), options)
    SparkWriter(counted, spark).upsert(changes(spark, 1200, modulo=1000))
    opened = Counter(call.path for call in calls if call.method == "open_input" and call.path.endswith(".parquet"))
    assert set(opened.values()) == {1}
    named, blocks = blocks_with_positions(table)
    assert named == blocks >= 5
    rows = {
        how: read(table.reload(), ReadRequest(options={"hoodie.merge.use.record.positions": how})).to_arrow()
        for how in ("false", "true")
    }
    assert rows["true"].num_rows == 1000
    assert rows["true"].sort_by("id").equals(rows["false"].sort_by("id"))


@pytest.mark.parametrize("few", [True, False])
def test_keys_that_logs_delete_are_where_they_came_back(
    spark: Any, make_table: Callable[..., HudiTable], monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """They are in several files: which of these counts is found out once more."""
    if not few:
        monkeypatch.setattr(tagging, "_BROADCAST_BYTES", -1)
    table = make_table(SCHEMA, type=TableType.MERGE_ON_READ)
    apart = LocalWriter(table.with_options({"hoodie.parquet.small.file.limit": "0"}))
    rows = {"id": [f"k{n:06d}" for n in range(100)], "part": ["p"] * 100, "ts": [1] * 100, "v": [0] * 100}
    given = pa.table(rows, SCHEMA)
    for at in range(0, 100, 20):
        apart.insert(given.slice(at, 20))
    apart.delete(given.slice(10, 60))
    for at in range(10, 70, 15):
        apart.insert(given.slice(at, 15))
    result = SparkWriter(table, spark).upsert(changes(spark, 300, modulo=150))
    assert (result.updated, result.inserted) == (100, 50)
    found = read(table.reload(), ReadRequest()).to_arrow()
    assert (len(found), len(set(found["id"].to_pylist()))) == (150, 150)
    assert set(found["ts"].to_pylist()) == {2}


def test_rows_that_change_between_two_evaluations_are_not_written(
    spark: Any, make_table: Callable[..., HudiTable], snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(SCHEMA)
    writer = SparkWriter(table, spark)
    writer.insert(changes(spark, 50, ts=1, modulo=50))
    real = tagging._hits

    def lost(payloads: Any, *more: Any) -> Any:
        hits = real(payloads, *more)
        return hits.selectExpr("id", "checksum + 1 checksum", "rows", "files", "positions", "several")

    monkeypatch.setattr(tagging, "_hits", lost)
    with pytest.raises(RowsChangedError, match="evaluated some of them again"):
        writer.upsert(changes(spark, 50, ts=2, modulo=50))
    assert {row["ts"] for row in snapshot(table).values()} == {1}
    assert not table.reload().timeline.pending().instants


def test_one_rate_of_puts_for_all_tasks_is_refused(spark: Any, many_files: Path) -> None:
    """They are processes of their own. What the driver's threads write has it."""
    given = {"hoodie.index.type": "HBASE", "hoodie.index.hbase.table": "keys", "skep.hbase.thrift": "127.0.0.1:9"}
    table = HudiTable.open(many_files, {**given, "hoodie.index.hbase.put.batch.size.autocompute": "true"})
    with pytest.raises(UnsupportedError, match="share no rate"):
        SparkWriter(table, spark).upsert(changes(spark, 8))
    with pytest.raises(StorageError, match="Thrift gateway"):
        SparkWriter(table, spark).upsert(changes(spark, 8).toPandas())
