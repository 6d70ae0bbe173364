"""Statements that name a view of a merge-on-read table: queries read the view, changes are made of the newest rows."""

from __future__ import annotations

from typing import Any

import pytest
from sql_lakes import NoSession

from skep.lake import Lake
from skep_format.options import Options

pytestmark = pytest.mark.metastore

CREATE = (
    "create table m (id int, v string, ts bigint) using hudi "
    "tblproperties (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
)


@pytest.fixture
def view(lake: Lake) -> Lake:
    """Table m, of which the read-optimized view has an older row."""
    lake.sql(CREATE)
    lake.sql("insert into m values (1, 'a', 1), (2, 'b', 1)")
    lake.sql("update m set v = 'new' where id = 1")
    return lake


def stored(lake: Lake) -> list[dict[str, Any]]:
    return lake.table("m").read(columns=["id", "v", "ts"]).to_arrow().sort_by("id").to_pylist()


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update m_ro set ts = ts + 5 where id = 1", [(1, "new", 6), (2, "b", 1)]),
        ("update m_ro set ts = ts + 5 where v = 'a'", [(1, "new", 1), (2, "b", 1)]),
        ("delete from m_ro where v = 'a'", [(1, "new", 1), (2, "b", 1)]),
        ("delete from m_ro where v = 'new'", [(2, "b", 1)]),
        (
            "merge into m_ro t using (select 1 id, 9L ts) s on t.id = s.id when matched then update set ts = s.ts",
            [(1, "new", 9), (2, "b", 1)],
        ),
    ],
)
def test_changes_by_the_name_of_a_view(view: Lake, statement: str, expected: list[tuple[int, str, int]]) -> None:
    view.sql(statement)
    assert [tuple(row.values()) for row in stored(view)] == expected


def test_a_query_that_is_inserted_reads_the_view(view: Lake) -> None:
    view.sql("create table copied (id int, v string) using hudi tblproperties (primaryKey = 'id')")
    view.sql("insert into copied select id, v from m_ro")
    assert sorted(view.table("copied").read().to_arrow().column("v").to_pylist()) == ["a", "b"]


def test_a_name_that_the_sync_gave_to_the_view(lake: Lake) -> None:
    """Its queries are read-optimized, as engines answer them; its changes are not made of old rows."""
    options = Options({"hoodie.datasource.hive_sync.skip_ro_suffix": "true"})
    own = Lake(lake.metastore, lake.warehouse, NoSession(), lake.database, options)
    own.sql(CREATE)
    own.sql("insert into m values (1, 'a', 1)")
    own.sql("update m set v = 'new' where id = 1")
    own.sql("update m set ts = 7 where id = 1")
    assert [tuple(row.values()) for row in stored(own)] == [(1, "new", 7)]
    own.sql("create table copied (id int, v string) using hudi tblproperties (primaryKey = 'id')")
    own.sql("insert into copied select id, v from m")
    assert own.table("copied").read().to_arrow().column("v").to_pylist() == ["a"]
