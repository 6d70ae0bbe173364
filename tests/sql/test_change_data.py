"""Statements on a table with change data: what each changed is what hudi_table_changes returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skep.lake import Lake

pytestmark = pytest.mark.metastore


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("mode", ["data_before_after", "op_key_only"])
def test_statements_leave_their_changes(lake: Lake, kind: str, mode: str) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, name STRING, ts BIGINT, day STRING) USING hudi PARTITIONED BY (day)"
        f" TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts',"
        f" 'hoodie.table.cdc.enabled' = 'true', 'hoodie.table.cdc.supplemental.logging.mode' = '{mode}')"
    )
    assert lake.table("t").hudi.config.captured == mode.upper()
    steps = {
        "INSERT INTO t VALUES (1, 'a', 1, 'd'), (2, 'b', 1, 'd'), (3, 'c', 1, 'e')": [
            *(("i", None, "a"), ("i", None, "b"), ("i", None, "c"))
        ],
        "UPDATE t SET name = 'A' WHERE id = 1": [("u", "a", "A")],
        "DELETE FROM t WHERE id = 2": [("d", "b", None)],
        "MERGE INTO t USING (SELECT 1 id, 'x' name, 'd' day) s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name, ts, day) VALUES (s.id, s.name, 1, s.day)": [
            ("d", "A", None)
        ],
        "ALTER TABLE t DROP PARTITION (day = 'e')": [("d", "c", None)],
    }
    before: list[tuple[str | None, ...]] = []
    for statement, changed in steps.items():
        lake.sql(statement)
        found = changes(lake)
        assert sorted(found[len(before) :], key=str) == sorted(changed, key=str), statement
        before = found


def changes(lake: Lake) -> list[tuple[str | None, ...]]:
    rows = lake.sql("SELECT * FROM hudi_table_changes('t', 'cdc', 'earliest') ORDER BY ts_ms").to_arrow().to_pylist()
    return [(row["op"], name_of(row["before"]), name_of(row["after"])) for row in rows]


def name_of(image: str | None) -> Any:
    row = json.loads(image or "null")
    return row and row["name"]
