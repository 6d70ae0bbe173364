"""Views that skep puts into the metastore, as engines answer them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from engine_asking import Engine
from engine_starting import SPARK_THRIFT, engine_param
from engine_tables import Made
from sql_lakes import NoSession

from skep.lake import Lake
from skep_catalog.client import Metastore

QUERIES = (
    "select note, count(*) from {table} where id > 'id-003' group by note",
    "with late as (select id from {table} where ts > 2) select count(*) n from late join {table} t on t.id = late.id",
    "select max(id) as id, upper(note) as words from {table} group by note union all select 'none', 'x'",
)


@pytest.mark.parametrize("engine", [engine_param("hive-2.3.10"), engine_param(SPARK_THRIFT)], indirect=True)
def test_engines_read_views_of_the_metastore(engine: Engine, tables: Callable[[str, str], Made], scratch: Path) -> None:
    made = tables("life", "cow")
    with Metastore.connect(engine.metastore, timeout=30, attempts=2) as client:
        lake = Lake(client, str(scratch / "lake"), NoSession(), database="zoo")
        for at, query in enumerate(QUERIES):
            name = f"zoo.seen_{at}"
            lake.sql(f"create or replace view {name} as {query.format(table=made.table.name.partition('.')[2])}")
            ours = lake.sql(f"select * from {name}").to_arrow().to_pylist()
            found = engine.ask(f"select * from {engine.quote(name)}")
            assert sorted(map(tuple, found.rows)) == sorted(tuple(row.values()) for row in ours), query
            assert ours
