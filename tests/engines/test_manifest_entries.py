"""Values of all kinds through entries over lists of base files."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_asking import Engine
from engine_starting import engine_param
from engine_tables import Made
from engine_values import difference, rows_answered, rows_of

from skep.table import Table
from skep_catalog.client import Metastore
from skep_sync.sync import sync_table

Tables = Callable[[str, str], Made]
pytestmark = pytest.mark.parametrize("engine", [engine_param("presto-0.287")], indirect=True)
LISTED = "listed"
KINDS = ("types", "nested", "odd_partitions", "two_levels", "added_columns", "widened_columns")


def agree(engine: Engine, table: Table) -> None:
    expected = table.read(query="read_optimized").to_arrow()
    answer = engine.ask(f"select * from hive.{LISTED}.{engine.quote(table.name.rpartition('.')[2])}")
    rows = rows_answered(answer.names, answer.rows, expected.schema)
    assert not (found := difference(rows, rows_of(expected))), found


@pytest.mark.parametrize("name", KINDS)
def test_values_and_partitions_of_all_kinds(engine: Engine, tables: Tables, name: str) -> None:
    table = tables(name, "mor").table
    with Metastore.connect(engine.metastore, timeout_seconds=30, attempts=2) as client:
        sync_table(table.hudi, client, LISTED, options={"skep.sync.kind": "manifest"})
    agree(engine, table)
