"""Commits as engines see them: each is there at once, in sessions opened before it; what Hive calls incremental."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from engine_asking import Answer, Engine
from engine_starting import engine_param
from engine_tables import COMPACT_NOW, PLAIN, Made, plain
from engine_values import difference, rows_answered, rows_of

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore

Tables = Callable[[str, str], Made]


@pytest.fixture
def lake(engine: Engine, tmp_path: Path) -> Iterator[Lake]:
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(tmp_path / "lake"), database=f"db_{uuid.uuid4().hex[:8]}")
        yield lake
        for name in client.tables(lake.database):
            client.drop_table(lake.database, name)


def amounts(engine: Engine, entry: str) -> dict[str, float]:
    return {row[0]: row[1] for row in engine.ask(f"select id, amount from {engine.quote(entry)}").rows}


def ours(table: Table, query: str = "snapshot") -> dict[str, float]:
    read = table.read(query=query, columns=["id", "amount"]).to_arrow()
    return dict(zip(read["id"].to_pylist(), read["amount"].to_pylist(), strict=True))


def test_each_commit_of_a_copy_on_write_table_shows_at_once(engine: Engine, lake: Lake) -> None:
    table = lake.create_table("seen", PLAIN, key="id", ordering="ts", partition_by="part")
    steps: list[Callable[[], object]] = [
        lambda: table.insert(plain(range(6), 1)),
        lambda: table.upsert(plain(range(3, 8), 2)),
        lambda: table.upsert(plain([20, 21], 3, "a new partition")),
        lambda: table.delete(plain([0, 20], 4, lambda i: "north" if i == 0 else "a new partition")),
        lambda: table.delete_partitions("a new partition"),
        lambda: table.upsert(plain([1], 5).append_column("added", pa.array(["x"]))),
    ]
    for step in steps:
        step()
        assert amounts(engine, table.name) == ours(table)
    added = engine.ask(f"select id, added from {engine.quote(table.name)} where added is not null").rows
    assert [tuple(row) for row in added] == [("id-001", "x")]


def test_read_optimized_shows_the_last_compaction(engine: Engine, lake: Lake) -> None:
    table = lake.create_table("seen", PLAIN, key="id", ordering="ts", partition_by="part", type="mor")

    def agree() -> tuple[dict[str, float], dict[str, float]]:
        base, merged = ours(table, "read_optimized"), ours(table)
        assert amounts(engine, f"{table.name}_ro") == base
        for view in (f"{table.name}_rt", table.name):
            # Trino's trap: a snapshot without an error and without what the log files hold.
            assert amounts(engine, view) == (merged if engine.merges else base)
        return base, merged

    table.insert(plain(range(6), 1))
    base, merged = agree()
    assert base == merged
    table.upsert(plain(range(3), 2))
    table.delete(plain([5], 3))
    before = base
    base, merged = agree()
    assert base == before
    assert merged == {"id-000": 2.0, "id-001": 2.25, "id-002": 2.5, "id-003": 1.75, "id-004": 2.0}
    table.upsert(plain([4], 4), **COMPACT_NOW)
    base, merged = agree()
    assert base == merged


def changes_asked(engine: Engine, table: Table, since: str) -> Answer:
    """The rows of later commits, as Hive's sessions and as Hudi's function in Spark's SQL give them."""
    if engine.kind == "spark":
        return engine.ask(f"select * from hudi_table_changes('{table.name}', 'latest_state', '{since}')")
    name = table.hudi.config.name  # the table's own, whatever its entry is called
    return engine.ask(
        f"select * from {engine.quote(table.name)} where `_hoodie_commit_time` > '{since}'",
        f"set hoodie.{name}.consume.mode=INCREMENTAL",
        f"set hoodie.{name}.consume.start.timestamp={since}",
        f"set hoodie.{name}.consume.max.commits=-1",
    )


@pytest.mark.parametrize("engine", [engine_param("hive-2.3.10"), engine_param("spark-3.5")], indirect=True)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_incremental_reads_agree(engine: Engine, tables: Tables, kind: str) -> None:
    table = tables("life", kind).table
    for commit in table.history()[:-1]:
        expected = table.read(since=commit.instant).to_arrow().drop_columns(["_hoodie_file_name"])
        answer = changes_asked(engine, table, commit.instant)
        rows = rows_answered(answer.names, answer.rows, table.read().to_arrow().schema)
        for row in rows:
            del row["_hoodie_file_name"]  # of rows in log files there are two ways to name it
        assert not (found := difference(rows, rows_of(expected))), f"since {commit.instant}: {found}"
