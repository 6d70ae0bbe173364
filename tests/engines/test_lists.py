"""A target of kind `manifest` as engines read it: the Hive connectors of Presto and Trino, which know no Hudi here."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from engine_asking import Engine
from engine_starting import engine_param
from engine_tables import COMPACT_NOW, PLAIN, plain

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.entities import Database
from skep_format.options import Options

pytestmark = pytest.mark.parametrize("engine", [engine_param("presto-0.287"), engine_param("trino-476")], indirect=True)


@pytest.fixture
def lake(engine: Engine, tmp_path: Path) -> Iterator[Lake]:
    database, listed = (f"{what}_{uuid.uuid4().hex[:8]}" for what in ("db", "listed"))
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        client.create_database(Database(listed, location=f"file://{tmp_path}/{listed}"))
        target = "skep.sync.target.plain."
        options = {
            "skep.sync.targets": "plain",
            target + "uris": engine.metastore,
            target + "database": listed,
            target + "kind": "manifest",
        }
        yield Lake(client, str(tmp_path / "lake"), database=database, options=Options(options))
        for name in (database, listed):
            client.drop_database(name, cascade=True)


def listed(engine: Engine, lake: Lake, table: Table, *columns: str) -> list[tuple[object, ...]]:
    """What the engine finds by the lists."""
    database = lake.options["skep.sync.target.plain.database"]
    name = f"hive.{database}.{table.name.rpartition('.')[2]}"
    return sorted(tuple(row) for row in engine.ask(f"select {', '.join(columns)} from {engine.quote(name)}").rows)


def ours(table: Table, *columns: str) -> list[tuple[object, ...]]:
    rows = table.read(query="read_optimized", columns=list(columns)).to_arrow()
    return sorted(zip(*(rows[column].to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_lists_show_what_was_compacted(engine: Engine, lake: Lake, kind: str) -> None:
    table = lake.create_table("t", PLAIN, key="id", ordering="ts", partition_by="part", type=kind)
    columns = ("id", "part", "note", "amount")

    def agree() -> list[tuple[object, ...]]:
        found = listed(engine, lake, table, *columns)
        assert found == ours(table, *columns)
        return found

    table.insert(plain(range(6), 1, lambda i: ("north", "a b%ü")[i % 2]))
    assert len(agree()) == 6
    table.upsert(plain(range(3), 2, lambda i: ("north", "a b%ü")[i % 2], note="second"))
    table.upsert(plain([9], 2, "new"))
    before = agree()
    table.upsert(plain([0], 3, note="third"), **COMPACT_NOW)
    assert agree() != before
    table.delete_partitions("new")
    assert "new" not in {row[1] for row in agree()}
    table.upsert(plain([1], 4, "a b%ü").append_column("added", pa.array(["x"])), **COMPACT_NOW)
    assert ("id-001", "x") in listed(engine, lake, table, "id", "added")
    agree()
