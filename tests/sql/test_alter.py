"""ALTER TABLE of columns: by their ids where the session has schema on read, and what is possible without."""

from __future__ import annotations

import pytest

from skep.lake import Lake
from skep_format.errors import InputError, SchemaError, UnsupportedError


@pytest.fixture
def table(lake: Lake, database: str) -> str:
    """One row, in a file of the first columns."""
    name = f"{database}.t"
    lake.sql(
        f"CREATE TABLE {name} (id INT, name STRING, n INT NOT NULL, s STRUCT<x: INT, y: STRING>, ts BIGINT, p STRING)"
        " USING hudi TBLPROPERTIES (primaryKey='id', preCombineField='ts') PARTITIONED BY (p)"
    )
    lake.sql(f"INSERT INTO {name} VALUES (1, 'a', 5, NULL, 1, 'p1')")
    lake.sql("RESET")
    return name


def columns(lake: Lake, table: str) -> list[tuple[str, str, str | None]]:
    rows = lake.sql(f"DESCRIBE {table}").to_arrow().to_pylist()
    found = [tuple(row.values()) for row in rows]
    return [row for row in found if not row[0].startswith(("_hoodie", "#")) and row[1]][:7]  # type: ignore[misc]


WITHOUT_IDS = [
    "RENAME COLUMN name TO label",
    "DROP COLUMN name",
    "DROP COLUMNS (name, s.y)",
    "ALTER COLUMN n TYPE BIGINT",
    "ALTER COLUMN n DROP NOT NULL",
    "ALTER COLUMN n AFTER id",
    "CHANGE COLUMN name label STRING",
    "ADD COLUMNS (z INT AFTER id)",
    "ADD COLUMNS (s.z INT)",
]


def test_changes_by_id_name_the_option_that_they_need(lake: Lake, table: str) -> None:
    before = lake.table(table).history()
    for change in WITHOUT_IDS:
        with pytest.raises(UnsupportedError, match=r"schema on read") as caught:
            lake.sql(f"ALTER TABLE {table} {change}")
        assert caught.value.hint == "SET hoodie.schema.on.read.enable=true"
    assert lake.table(table).history() == before


def test_columns_are_changed_by_id(lake: Lake, table: str) -> None:
    lake.sql("SET hoodie.schema.on.read.enable=true")
    try:
        for change in (
            "RENAME COLUMN NAME TO label",
            "ALTER COLUMN n TYPE BIGINT",
            "CHANGE COLUMN n number BIGINT COMMENT 'how many'",
            "ALTER COLUMN number DROP NOT NULL",
            "ADD COLUMNS (name INT AFTER id, last DATE)",
            "ADD COLUMN s.z DECIMAL(10, 2) FIRST",
            "DROP COLUMNS IF EXISTS (s.y, nope)",
            "ALTER COLUMN label AFTER ts",
        ):
            lake.sql(f"ALTER TABLE {table} {change}")
        with pytest.raises(SchemaError, match="incompatibility type: int"):
            lake.sql(f"ALTER TABLE {table} ALTER COLUMN label TYPE INT")
        with pytest.raises(InputError, match="optional to required"):
            lake.sql(f"ALTER TABLE {table} ALTER COLUMN label SET NOT NULL")
        with pytest.raises(InputError, match="primaryKey"):
            lake.sql(f"ALTER TABLE {table} DROP COLUMN id")
    finally:
        lake.sql("RESET hoodie.schema.on.read.enable")
    assert [(name, kind, comment) for name, kind, comment in columns(lake, table)] == [
        ("id", "int", None),
        ("name", "int", None),
        ("number", "bigint", "how many"),
        ("s", "struct<z:decimal(10,2),x:int>", None),
        ("ts", "bigint", None),
        ("label", "string", None),
        ("last", "date", None),
    ]
    rows = lake.table(table).read(columns=["id", "name", "number", "label", "last"]).to_arrow().to_pylist()
    assert rows == [{"id": 1, "name": None, "number": 5, "label": "a", "last": None}]
    database, _, name = table.partition(".")
    entry = [column.name for column in lake.metastore.table(database, name).storage.columns]
    assert sorted(entry[5:]) == ["id", "label", "last", "name", "number", "s", "ts"]  # it takes no other order
    lake.sql(f"INSERT INTO {table} (id, number, ts, p) VALUES (2, 6, 1, 'p1')")
    assert lake.table(table).read(where="label is null").count() == 1


def test_comments_need_no_option(lake: Lake, table: str) -> None:
    lake.sql(f"ALTER TABLE {table} CHANGE COLUMN name name STRING COMMENT 'what it is called'")
    lake.sql(f"ALTER TABLE {table} ALTER COLUMN n COMMENT 'how many'")
    found = {name: comment for name, _, comment in columns(lake, table)}
    assert (found["name"], found["n"], found["id"]) == ("what it is called", "how many", None)
    assert lake.table(table).read().count() == 1
