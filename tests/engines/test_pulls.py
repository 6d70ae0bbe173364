"""Incremental pulls that Hive carries out: the same rows and files as those of a pull without it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest
from engine_asking import Engine
from engine_starting import engine_param
from engine_tables import PLAIN, plain

from skep.flows.pulls import Pull, pull
from skep.lake import Lake
from skep.metastore.hive_client import HiveClient
from skep_catalog.client import Metastore


@pytest.fixture
def lake(engine: Engine, tmp_path: Path) -> Iterator[Lake]:
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(tmp_path / "lake"), database=f"db_{uuid.uuid4().hex[:8]}")
        yield lake
        for database in {lake.database, f"{lake.database}_temp"} & set(client.databases()):
            client.drop_database(database, cascade=True)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[Any] = []
    for path in sorted(folder.iterdir()):
        if path.stat().st_size and not path.name.startswith("."):
            with path.open("rb") as file:
                found += fastavro.reader(file)
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("engine", [engine_param("hive-2.3.10")], indirect=True)
def test_hive_pulls_what_is_pulled_without_it(engine: Engine, lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("trips", PLAIN, key="id", ordering="ts", partition_by="part")
    times = [str(table.upsert(plain(range(at, at + 3), at + 1)).instant.requested_time) for at in range(4)]
    sql = f"SELECT id, amount FROM {lake.database}.trips WHERE `_hoodie_commit_time` > '%s'"
    described: dict[str, Any] = {
        "source_db": lake.database,
        "source_table": "trips",
        "target_table": "copies",
        "sql": sql,
        "tmpdb": f"{lake.database}_temp",
    }
    with closing(engine._connect()) as connection:
        hive = HiveClient(connection)
        for since, most, last in ((times[0], 2, times[2]), (times[2], -1, times[3])):
            asked = {**described, "from_commit_time": since, "max_commits": most}
            here = pull(lake, Pull(**asked, tmp=str(tmp_path / "here")))
            there = pull(lake, Pull(**asked, tmp=str(tmp_path / "there")), hive)
            assert here is not None
            assert there is not None
            assert here.until == there.until == last
            found = rows(tmp_path / "there" / "copies__trips" / last)
            assert found == rows(tmp_path / "here" / "copies__trips" / last)
            assert len(found) == here.rows
        assert rows(tmp_path / "there" / "copies__trips" / times[2])  # the table of that pull is no longer there
