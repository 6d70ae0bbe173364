"""MERGE INTO and UPDATE of some columns write log blocks of just these, where a table's logs can have such blocks."""

from __future__ import annotations

import pytest

from skep.lake import Lake
from skep_format.logfile import BlockType, LogBlock, read_blocks
from skep_format.schema.types import META_FIELDS

pytestmark = pytest.mark.metastore

COLUMNS = ("id", "ts", "a", "b", "part")
STORED = [{"id": 1, "ts": 1, "a": 1, "b": "x", "part": "p"}, {"id": 2, "ts": 1, "a": 2, "b": "y", "part": "p"}]
newer = pytest.mark.parametrize("table_version", [8, 9], indirect=True)

UPDATE = "update t set a = a + 10 where id = 1"
MERGE = """merge into t using (select 1 id, 1L ts, 11L a) s on t.id = s.id when matched then update set a = s.a"""


def make(lake: Lake, kind: str = "mor", **properties: str) -> None:
    given = {"primaryKey": "id", "preCombineField": "ts", "type": kind, **properties}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    lake.sql(
        "create table t (id int, ts bigint, a bigint, b string, part string) using hudi"
        f" tblproperties ({listed}) partitioned by (part)"
    )
    lake.sql("insert into t values (1, 1, 1, 'x', 'p'), (2, 1, 2, 'y', 'p')")


def last_blocks(lake: Lake) -> list[LogBlock]:
    """The blocks that the last commit wrote."""
    table = lake.table("t").hudi
    done = table.timeline.data().completed().last()
    assert done is not None
    paths = [stat.path for stat in table.commit_metadata(done).stats if stat.is_log]
    return [each for path in paths for each in read_blocks(table.storage.open_input(path), path)]


def rows(lake: Lake) -> list[dict[str, object]]:
    found = lake.sql(f"select {', '.join(COLUMNS)} from t order by id").to_arrow()
    return found.to_pylist()  # type: ignore[no-any-return]


def changed(**values: object) -> list[dict[str, object]]:
    return [{**STORED[0], **values}, STORED[1]]


@newer
@pytest.mark.parametrize("statement", [UPDATE, MERGE], ids=["update", "merge"])
def test_a_block_has_the_columns_that_a_statement_sets(statement: str, lake: Lake) -> None:
    make(lake)
    lake.sql(statement)
    (block,) = last_blocks(lake)
    assert (block.type, block.is_partial) == (BlockType.AVRO_DATA, True)
    assert set(block.schema.names()) - {*META_FIELDS} == {"ts", "a"}
    assert block.records().num_rows == 1
    assert rows(lake) == changed(a=11)


@newer
def test_a_merge_writes_new_rows_whole_and_stored_ones_in_part(lake: Lake) -> None:
    make(lake)
    lake.sql("update t set a = 7 where id = 2")  # a file that has logs takes no new rows
    lake.sql(
        "merge into t using (select * from values (1, 'new'), (3, 'three') as v(id, b)) s on t.id = s.id"
        " when matched then update set b = s.b"
        " when not matched then insert (id, ts, a, b, part) values (s.id, 1, 3, s.b, 'p')"
    )
    assert [each.is_partial for each in last_blocks(lake)] == [True]
    new = {"id": 3, "ts": 1, "a": 3, "b": "three", "part": "p"}
    assert rows(lake) == [{**STORED[0], "b": "new"}, {**STORED[1], "a": 7}, new]


@newer
def test_clauses_that_set_different_columns(lake: Lake) -> None:
    """One commit has one set of columns: those that any of its clauses sets."""
    make(lake)
    lake.sql(
        "merge into t using (select * from values (1, 'n'), (2, 'n') as v(id, b)) s on t.id = s.id"
        " when matched and t.id = 1 then update set b = s.b"
        " when matched then update set a = 20"
    )
    assert all(each.is_partial for each in last_blocks(lake))
    assert rows(lake) == [{**STORED[0], "b": "n"}, {**STORED[1], "a": 20}]


@newer
def test_a_statement_that_sets_every_column_writes_whole_rows(lake: Lake) -> None:
    make(lake)
    lake.sql(
        "merge into t using (select 1 id, 2L ts, 5L a, 'z' b, 'p' part) s on t.id = s.id when matched then update set *"
    )
    assert [each.is_partial for each in last_blocks(lake)] == [False]
    assert rows(lake) == changed(ts=2, a=5, b="z")


@newer
@pytest.mark.parametrize("statement", [UPDATE, MERGE], ids=["update", "merge"])
def test_the_option_that_writes_whole_rows(statement: str, lake: Lake) -> None:
    make(lake)
    lake.sql("set hoodie.spark.sql.merge.into.partial.updates = false")
    lake.sql(statement)
    (block,) = last_blocks(lake)
    assert not block.is_partial
    assert {*COLUMNS} <= {*block.schema.names()}
    assert rows(lake) == changed(a=11)


@pytest.mark.parametrize(("table_version", "kind"), [(6, "mor"), (6, "cow"), (9, "cow")], indirect=["table_version"])
@pytest.mark.parametrize("statement", [UPDATE, MERGE], ids=["update", "merge"])
def test_other_tables_get_whole_rows(statement: str, kind: str, lake: Lake) -> None:
    make(lake, kind)
    lake.sql(statement)
    assert not any(each.is_partial for each in last_blocks(lake))
    assert rows(lake) == changed(a=11)
