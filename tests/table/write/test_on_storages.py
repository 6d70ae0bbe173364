"""A table from creation to rollback on each storage: S3 has no renames, but conditional creates; HDFS has both."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from copied_groups import copied_groups

from skep_format.errors import NotATableError, StorageError
from skep_format.options import Options
from skep_format.runner import ThreadRunner
from skep_format.schema.arrow import to_arrow
from skep_format.storage import Storage, open_storage
from skep_format.table_config import TableType
from skep_table.commit.create import TableSpec, create_table
from skep_table.query import ReadRequest, read
from skep_table.services.compaction.compact import compact
from skep_table.services.undo.rollback import roll_back_instant
from skep_table.table import HudiTable
from skep_table.write.bootstrap.options import BootstrapSettings
from skep_table.write.bootstrap.source import open_source, read_source
from skep_table.write.local import LocalWriter

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])

MOR = TableType.MERGE_ON_READ


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def answer(table: HudiTable, **request: Any) -> dict[str, int]:
    found = read(table.reload(), ReadRequest(columns=("id", "v"), **request)).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture(params=["local", "s3", pytest.param("hdfs", marks=pytest.mark.peer("hdfs"))])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty folder."""
    if request.param == "local":
        return open_storage(tmp_path)
    make: Callable[[], Storage] = request.getfixturevalue(f"{request.param}_folder")
    return make()


def test_a_table_lives_there(storage: Storage, s3_options: dict[str, str]) -> None:
    with pytest.raises(NotATableError):
        HudiTable.open(storage)
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts")
    table = create_table(storage, spec)
    writer = LocalWriter(table.with_options({"hoodie.parquet.block.size": "1"}))  # each row is a row group
    first = writer.bulk_insert(rows(("a", "x", 1, 1), ("b", "x", 1, 2), ("c", "y", 1, 3)))
    with copied_groups() as copied:
        writer.upsert(rows(("a", "x", 2, 10), ("b", "x", 0, 20), ("d", "y", 1, 4)))
        writer.delete(rows(("c", "y", 1, 0)).select(["id", "part"]))
    assert len(copied) == 2  # of c, and of d
    assert answer(table) == {"a": 10, "b": 2, "d": 4}
    assert answer(table, query="incremental", since=table.format.reads.time_in_range(first.instant)) == {
        "a": 10,
        "d": 4,
    }
    assert answer(HudiTable.open(storage.root, s3_options)) == {"a": 10, "b": 2, "d": 4}
    names = {file.path.partition("/")[0] for file in storage.list_prefix("", recursive=True)}
    assert names == {".hoodie", "x", "y"}
    assert storage.list_prefix(".hoodie/.temp", recursive=True) == []


def test_a_folder_is_bootstrapped_there(storage: Storage, s3_options: dict[str, str]) -> None:
    data = io.BytesIO()
    pq.write_table(rows(("a", "x", 1, 1), ("b", "x", 1, 2)).drop_columns(["part"]), data)
    for part in ("x", "y z"):
        storage.create_exclusive(f"source/part={part}/0.parquet", data.getvalue())
    mixed = {
        "hoodie.bootstrap.mode.selector": "BootstrapRegexModeSelector",
        "hoodie.bootstrap.mode.selector.regex": "part=x",
    }
    options = Options({**s3_options, "hoodie.bootstrap.base.path": f"{storage.root}/source", **mixed})
    source = read_source(open_source(options), ("id",), BootstrapSettings.of(options), ThreadRunner())
    schema = to_arrow(source.columns)
    spec = TableSpec(
        name="t", schema=schema, record_key=("id",), partition_by=("part",), ordering="ts", hive_style=True
    )
    table = create_table(open_storage(f"{storage.root}/table", s3_options), spec, options)
    writer = LocalWriter(table)
    assert len(writer.bootstrap(source)) == 2
    opened = HudiTable.open(f"{storage.root}/table", s3_options)
    assert opened.config.raw["hoodie.bootstrap.base.path"] == f"{storage.root}/source".removeprefix("file://")
    found = read(opened, ReadRequest(columns=("id", "part"))).to_arrow().to_pylist()
    assert sorted((row["id"], row["part"]) for row in found) == [("a", "x"), ("a", "y z"), ("b", "x"), ("b", "y z")]
    LocalWriter(opened).upsert(pa.table({"id": ["a"], "ts": [2], "v": [10], "part": ["x"]}))
    assert sorted(read(opened.reload(), ReadRequest()).to_arrow()["v"].to_pylist()) == [1, 2, 2, 10]


def test_a_merge_on_read_table_lives_there(storage: Storage) -> None:
    spec = TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",), ordering="ts", type=MOR)
    table = create_table(storage, spec)
    writer = LocalWriter(table)
    writer.bulk_insert(rows(("a", "x", 1, 1), ("b", "x", 1, 2), ("c", "y", 1, 3)))
    first = writer.upsert(rows(("a", "x", 2, 10), ("b", "x", 0, 20)))
    assert all(stat.is_log for stat in first.metadata.stats)
    undone = writer.delete(rows(("c", "y", 1, 0)).select(["id", "part"]))
    roll_back_instant(table, undone.instant.requested_time)
    writer.upsert(rows(("c", "y", 3, 30)))
    assert answer(table) == {"a": 10, "b": 2, "c": 30}
    compact(table)
    assert answer(table) == answer(table, query="read_optimized") == {"a": 10, "b": 2, "c": 30}
    assert storage.list_prefix(".hoodie/.temp", recursive=True) == []


def test_what_a_dead_writer_left_is_rolled_back(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(storage, TableSpec(name="t", schema=SCHEMA, record_key=("id",), partition_by=("part",)))
    LocalWriter(table).upsert(rows(("a", "x", 1, 1)))
    real = type(storage).create_exclusive

    def dies_at_the_commit(self: Any, path: str, data: bytes, **how: Any) -> None:
        if path.endswith(".commit"):
            monkeypatch.setattr(type(storage), "delete", _dead)
            monkeypatch.setattr(type(storage), "read", _dead)
            raise StorageError("the writer is dead", path=path)
        real(self, path, data, **how)

    monkeypatch.setattr(type(storage), "create_exclusive", dies_at_the_commit)
    with pytest.raises(StorageError, match="dead"):
        LocalWriter(table).upsert(rows(("a", "x", 2, 2), ("b", "x", 2, 2)))
    monkeypatch.undo()
    assert len(storage.list_prefix("x")) == 3  # the metafile and two base files, one of nobody's
    assert answer(table) == {"a": 1}
    LocalWriter(table).upsert(rows(("c", "x", 1, 3)))
    assert answer(table) == {"a": 1, "c": 3}
    assert len(storage.list_prefix("x")) == 3
    assert [i for i in table.reload().timeline.instants if not i.is_completed] == []


def _dead(*_: Any, **__: Any) -> Any:
    raise StorageError("the writer is dead")
