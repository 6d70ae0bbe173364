"""Synced tables that change their version: engines read each version that their Hudi library knows, and refuse others.

Those of the other tests have Hudi 0.14 or 0.15, which know version 6 alone; with a newer one Hive and Spark read all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_asking import Engine, EngineRefused, hive_like
from engine_launch import ProcessLauncher
from engine_services import SERVICES, ServiceMissing
from engine_starting import engine_param, start_spark_thrift
from engine_tables import PLAIN, plain

from skep.handles.table import Table
from skep.lake import Lake
from skep_catalog.client import Metastore
from skep_catalog.embedded import EmbeddedMetastore

KINDS = ("cow", "mor")
WAY = (8, 9, 8, 6)
# Engine → the error for a version that its library does not know.
REFUSALS = {
    "hive-2.3.10": "IllegalArgumentException",
    "spark-3.5": "IllegalArgumentException",
    "presto-0.287": "Internal error",
}


@pytest.fixture
def lake_at(tmp_path: Path) -> Iterator[Callable[[str], Lake]]:
    """A lake of a database of its own in a metastore; its entries are dropped afterwards."""
    opened: list[Lake] = []

    def of(uri: str) -> Lake:
        client = Metastore.connect(uri, timeout=30, attempts=2)
        opened.append(Lake(client, str(tmp_path / "lake"), database=f"db_{uuid.uuid4().hex[:8]}"))
        return opened[-1]

    yield of
    for lake in opened:
        for name in lake.metastore.tables(lake.database):
            lake.metastore.drop_table(lake.database, name)
        lake.metastore.close()


def made(lake: Lake, kind: str) -> Table:
    """Base files, and log files on them in a merge-on-read table: its views differ until it is compacted."""
    table = lake.create_table("t", PLAIN, key="id", ordering="ts", partition_by="part", type=kind, table_version=6)
    table.insert(plain(range(8), 1, lambda i: ("north", "south")[i % 2]))
    table.upsert(plain(range(3), 2, lambda i: ("north", "south")[i % 2], "second"))
    return table


def move(table: Table, version: int) -> None:
    (table.upgrade if table.hudi.config.version < version else table.downgrade)(version)
    assert table.hudi.config.version == version
    table.sync()


def write_on(table: Table) -> None:
    version = table.hudi.config.version
    table.upsert(plain([1, 20 + version], 10 + version, "south", f"as version {version}"))


def views(table: Table) -> dict[str, str]:
    """Entry → the query of skep with the same rows."""
    name = table.name
    if not table.hudi.config.is_mor:
        return {name: "snapshot"}
    return {f"{name}_ro": "read_optimized", f"{name}_rt": "snapshot"}


def in_engine(engine: Engine, entry: str) -> list[tuple[Any, ...]]:
    return sorted(engine.ask(f"select {', '.join(PLAIN.names)} from {engine.quote(entry)}").rows)


def here(table: Table, query: str) -> list[tuple[Any, ...]]:
    found: pa.Table = table.read(query=query, columns=PLAIN.names).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in PLAIN.names), strict=True))


@pytest.mark.parametrize("engine", [engine_param(name) for name in REFUSALS], indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_engines_of_version_6_refuse_others_and_read_it_again(
    engine: Engine, lake_at: Callable[[str], Lake], kind: str
) -> None:
    """Never rows that are not those of the table."""
    table = made(lake_at(engine.metastore), kind)
    for version in (6, *WAY):
        if version != table.hudi.config.version:
            move(table, version)
            write_on(table)
        for entry, query in views(table).items():
            if version == 6:
                assert in_engine(engine, entry) == here(table, query), f"{entry} as version {version}"
            else:
                with pytest.raises(EngineRefused, match=REFUSALS[engine.name]):
                    in_engine(engine, entry)


@pytest.fixture(scope="module", params=["hive-2.3.10", "spark-3.5"])
def newer_engine(
    request: pytest.FixtureRequest, processes: ProcessLauncher, scratch: Path, metastore_server: EmbeddedMetastore
) -> Iterator[Engine]:
    """With Hudi 1.1.1, which reads all versions."""
    kind, uri = request.param.partition("-")[0], metastore_server.uri

    def opened(port: int) -> Engine:
        return hive_like(request.param, kind, uri, port)

    def ready(port: int) -> None:
        opened(port).ready()

    try:
        if kind == "spark":
            running = start_spark_thrift(processes, scratch, uri, ready, hudi="1.1.1")
        else:
            service = replace(SERVICES[request.param], name=f"{request.param}-hudi-1.1.1", hudi="1.1.1")
            running = processes.start(service, ready, {"METASTORE": uri, "WAREHOUSE": f"file://{scratch}/warehouse"})
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    engine = opened(running.port)
    yield engine
    engine.close()
    running.stop()


@pytest.mark.slow
@pytest.mark.engine("hive-2.3.10", "spark-3.5")
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_hudi_reads_every_version(newer_engine: Engine, lake_at: Callable[[str], Lake], kind: str) -> None:
    table = made(lake_at(newer_engine.metastore), kind)
    for version in (6, *WAY):
        if version != table.hudi.config.version:
            move(table, version)
        for _ in range(2):
            for entry, query in views(table).items():
                assert in_engine(newer_engine, entry) == here(table, query), f"{entry} as version {version}"
            write_on(table)
