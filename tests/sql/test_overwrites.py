"""What an INSERT OVERWRITE replaces: named partitions, those of its rows, or the whole table."""

from __future__ import annotations

import pytest

from skep.lake import Lake

OPERATION = "hoodie.datasource.write.operation"
MODE = "hoodie.datasource.overwrite.mode"


@pytest.fixture
def table(lake: Lake, database: str) -> str:
    name = f"{database}.t"
    lake.sql(
        f"CREATE TABLE {name} (id INT, ts INT, org STRING) USING hudi"
        " TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts') PARTITIONED BY (org)"
    )
    lake.sql(f"INSERT INTO {name} VALUES (1, 1, 'A'), (2, 1, 'B'), (3, 1, 'C')")
    return name


@pytest.mark.parametrize(
    ("option", "partition", "left"),
    [
        ({}, "", {9}),
        ({}, "PARTITION (org = 'A')", {2, 3, 9}),
        ({MODE: "dynamic"}, "", {2, 3, 9}),
        ({OPERATION: "insert_overwrite"}, "", {2, 3, 9}),
        ({OPERATION: "insert_overwrite"}, "PARTITION (org = 'A')", {2, 3, 9}),
        ({OPERATION: "INSERT_OVERWRITE_TABLE"}, "", {9}),
        ({OPERATION: "insert_overwrite_table"}, "PARTITION (org = 'A')", {9}),
        ({OPERATION: "insert_overwrite_table", MODE: "dynamic"}, "", {9}),
    ],
)
def test_settings_decide_what_is_replaced(
    option: dict[str, str], partition: str, left: set[int], lake: Lake, table: str
) -> None:
    row = "9, 1" if partition else "9, 1, 'A'"
    try:
        for key, value in option.items():
            lake.sql(f"SET {key} = {value}")
        lake.sql(f"INSERT OVERWRITE TABLE {table} {partition} SELECT {row}")
    finally:
        for key in option:
            lake.sql(f"RESET {key}")
    assert set(lake.table(table).read(columns=["id"]).to_arrow()["id"].to_pylist()) == left
